#include <doctest/doctest.h>

#include "tests/transport/tcp_fixture.h"

namespace slime::transport::testing {

TEST_CASE("tcp keeps every promise of the transport") {
  run_conformance([] { return std::make_unique<TcpFixture>(); });
}

}  // namespace slime::transport::testing
