// The real verbs provider, for machines with an RDMA device: in the emulated machine of tests/rxe it is
// SoftRoCE's. Skipped, loudly, where there is none.
#include <doctest/doctest.h>

#include "base/log.h"
#include "tests/transport/socket_fixture.h"

namespace slime::transport::testing {

TEST_CASE("verbs keeps every promise of the transport") {
  run_conformance([] { return SocketFixture::of("verbs"); });
}

}  // namespace slime::transport::testing
