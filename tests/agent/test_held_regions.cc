// How an operation keeps the regions that it names.
#include <doctest/doctest.h>

#include <memory>

#include "agent/memory/devices.h"
#include "agent/memory/region.h"
#include "tests/agent/agents.h"

namespace slime::agent {
namespace {

using test::take;

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
