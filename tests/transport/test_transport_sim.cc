#include <doctest/doctest.h>

#include "tests/transport/sim_fixture.h"

namespace slime::transport::testing {

TEST_CASE("the simulator keeps every promise of the transport") {
  run_conformance([] { return std::make_unique<SimFixture>(1); });
}

TEST_CASE("the simulator keeps every promise with another seed") {
  run_conformance([] { return std::make_unique<SimFixture>(20'260'101); });
}

}  // namespace slime::transport::testing
