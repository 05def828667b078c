#include <doctest/doctest.h>

#include "tests/transport/socket_fixture.h"

namespace slime::transport::testing {

TEST_CASE("shm keeps every promise of the transport") {
  run_conformance([] { return SocketFixture::of("shm"); });
}

}  // namespace slime::transport::testing
