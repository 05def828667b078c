// What the hot paths ask the heap for: nothing.
#include <doctest/doctest.h>

#include "tests/instructions/heap.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/transport/socket_fixture.h"

namespace slime::rpc::testing {
namespace {

constexpr int kFirst = 2000;  // until every table has the size that it keeps
constexpr int kCalls = 2000;
// A timer that is armed again now and then takes an allocation, a call that took one would take as
// many as there are.
constexpr std::uint64_t kHousekeeping = kCalls / 100;

std::uint64_t allocations_of_calls(Fixture& fixture, int under_way) {
  Link link(fixture);
  Service service("calc");
  REQUIRE(service.add("next", [](std::uint64_t n) { return n + 1; }, {Run::kInline}).ok());
  REQUIRE(link.servers[1]->add(service).ok());
  struct Caller {
    Channel& channel;
    int begun = 0;
    int ended = 0;
    int right = 0;
    void next() {
      const auto number = static_cast<std::uint64_t>(begun++);
      channel.call({.service = "calc", .method = "next"}, encode_arguments(number),
                   [this, number](Result<Payload> reply) {
                     ++ended;
                     if (!reply) return;
                     const auto value = decode_value<std::uint64_t>(reply->bytes());
                     right += value && *value == number + 1 ? 1 : 0;
                   });
    }
  } caller{link.a()};
  std::uint64_t before = 0;
  while (caller.ended < kFirst + kCalls) {
    if (before == 0 && caller.ended >= kFirst) before = slime::testing::heap_allocations();
    while (caller.begun - caller.ended < under_way && caller.begun < kFirst + kCalls) caller.next();
    fixture.loop(0).poll(Nanos::zero());
    fixture.loop(1).poll(Nanos::zero());
  }
  const std::uint64_t after = slime::testing::heap_allocations();
  CHECK(caller.right == kFirst + kCalls);
  return after - before;
}

TEST_CASE("a short call over shared memory allocates nothing on either side") {
  for (const int under_way : {1, 16}) {
    const auto fixture = transport::testing::SocketFixture::of("shm");
    CHECK(allocations_of_calls(*fixture, under_way) < kHousekeeping);
  }
}

TEST_CASE("a short call over tcp allocates nothing on either side") {
  for (const int under_way : {1, 16}) {
    const auto fixture = transport::testing::SocketFixture::of("tcp");
    CHECK(allocations_of_calls(*fixture, under_way) < kHousekeeping);
  }
}

}  // namespace
}  // namespace slime::rpc::testing
