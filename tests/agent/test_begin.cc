// What an operation notes as it begins: its time, and the regions that it names.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "agent/memory/devices.h"
#include "agent/memory/region.h"
#include "agent/operations/begin_clock.h"
#include "tests/agent/agents.h"
#include "transport/loop.h"

namespace slime::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::take;

TEST_CASE("operations with a long timeout that begin within a tick share a reading of the clock") {
  const auto loop = take(transport::Loop::create());
  BeginClock clock;
  constexpr int kBegins = 100'000;  // a few ticks
  int readings = 0;
  TimePoint last{};
  for (int i = 0; i < kBegins; ++i) {
    const TimePoint before = steady_clock().now();
    const TimePoint began = clock.now(*loop, limits::kSharedReadingTimeout);
    REQUIRE(began >= last);
    REQUIRE(began <= steady_clock().now());
    REQUIRE(before - began < milliseconds(500));  // a machine with other work may miss ticks
    readings += began == last ? 0 : 1;
    last = began;
  }
  CHECK(readings > 0);
  CHECK(readings < kBegins / 10);
}

TEST_CASE("an operation with a short timeout begins at a reading of its own") {
  const auto loop = take(transport::Loop::create());
  BeginClock clock;
  for (int i = 0; i < 100; ++i) {
    const TimePoint before = steady_clock().now();
    clock.now(*loop, seconds(30));
    CHECK(clock.now(*loop, milliseconds(999)) >= before);
  }
}

TEST_CASE("with a manual clock each operation begins at the clock's time") {
  ManualClock time;
  const auto loop = take(transport::Loop::create({.clock = &time}));
  BeginClock clock;
  for (int i = 0; i < 3; ++i) {
    CHECK(clock.now(*loop, seconds(30)) == time.now());
    time.advance(Nanos(1));
  }
}

struct OneRegion {
  std::shared_ptr<Devices> devices = take(Devices::open("tcp"));
  RegionState region = std::make_shared<MemoryRegion::State>(
      devices, std::weak_ptr<RegionOwner>(),
      take(devices->allocate(4096, Rights::kReadWrite, transport::MemoryKind::kHost)));
  std::weak_ptr<MemoryRegion::State> seen = region;
};

TEST_CASE("a region lives until the last operation that pinned or counted it has gone") {
  OneRegion one;
  auto first = std::make_unique<HeldRegion>(*one.region);
  auto second = std::make_unique<HeldRegion>(*one.region);
  auto counted = std::make_unique<HeldRegion>(*one.region);
  first->pin();
  first->pin();  // once
  second->pin();
  counted->count();
  one.region = nullptr;
  first = nullptr;
  CHECK_FALSE(one.seen.expired());
  SUBCASE("a pin is the last") { counted = nullptr; }
  SUBCASE("a count is the last") { second = nullptr; }
  CHECK_FALSE(one.seen.expired());
  second = nullptr;
  counted = nullptr;
  CHECK(one.seen.expired());
}

TEST_CASE("a region may be pinned again after its last operation") {
  OneRegion one;
  for (int i = 0; i < 2; ++i) {
    HeldRegion held(*one.region);
    held.pin();
  }
  one.region = nullptr;
  CHECK(one.seen.expired());
}

}  // namespace
}  // namespace slime::agent
