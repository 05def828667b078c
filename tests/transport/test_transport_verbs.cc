// The real verbs provider, for machines with an RDMA device: in the emulated machine of tests/rxe
// it is SoftRoCE's. Skipped, loudly, where there is none.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "base/log.h"
#include "tests/transport/socket_fixture.h"

namespace slime::transport::testing {

TEST_CASE("verbs keeps every promise of the transport") {
  run_conformance([] { return SocketFixture::of("verbs"); });
}

TEST_CASE("200 endpoints on one port of a real device work, each and together") {
  constexpr std::size_t kEndpoints = 200;
  constexpr std::size_t kBytes = 64;
  const auto fixture = SocketFixture::of("verbs");
  fixture->open({});
  GuardedRegion here(fixture->device(0), kEndpoints * kBytes, Rights::kLocal, 1);
  GuardedRegion there(fixture->device(1), kEndpoints * kBytes, Rights::kRemoteRead, 2);
  std::deque<Connection> connections;
  for (std::size_t i = 0; i < kEndpoints; ++i) connections.emplace_back(*fixture);
  CHECK(fixture->port(0).endpoints() == kEndpoints);
  CHECK(fixture->port(1).endpoints() == kEndpoints);

  std::deque<TestOperation> operations;
  std::deque<RemoteRegion> remotes;
  std::deque<CopyBlock> copies;
  for (std::size_t i = 0; i < kEndpoints; ++i) {
    Connection& connection = connections[i];
    remotes.push_back(share(connection.a(), there.region));
    copies.push_back({&here.region, i * kBytes, &remotes.back(), i * kBytes, kBytes});
    REQUIRE(connection.a().read(std::span(&copies.back(), 1), operations.emplace_back()).ok());
    REQUIRE(send(connection.a(), there.bytes().subspan(i * kBytes, kBytes), operations.emplace_back()).ok());
  }
  CHECK(fixture->until([&] {
    return std::ranges::all_of(operations, [](const TestOperation& one) { return one.done(); }) &&
           std::ranges::all_of(connections,
                               [](const Connection& one) { return one.receiver_b.messages.size() == 1; });
  }));
  CHECK(std::ranges::all_of(operations, [](const TestOperation& one) { return one.last.ok(); }));
  CHECK(std::ranges::equal(here.bytes(), there.bytes()));
  for (int side = 0; side < 2; ++side) {
    CAPTURE(side);
    const PortCounters counters = fixture->port(side).counters();
    CHECK(counters.endpoints.error_completions == 0);
    CHECK(counters.stale_completions == 0);
    CHECK(counters.refused_endpoints == 0);
    // An overflown completion queue ends every endpoint.
    for (Connection& connection : connections)
      CHECK((side == 0 ? connection.a() : connection.b()).error().ok());
  }
  connections.clear();
  CHECK(fixture->port(0).endpoints() == 0);
  CHECK(fixture->port(1).endpoints() == 0);
}

}  // namespace slime::transport::testing
