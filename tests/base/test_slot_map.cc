#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/random.h"

using slime::Handle;
using slime::SlotMap;

TEST_CASE("a stored value is found by its handle only") {
  SlotMap<int> map(4);
  const Handle handle = map.insert(42).value();
  CHECK(handle.generation != 0);
  REQUIRE(map.find(handle) != nullptr);
  CHECK(*map.find(handle) == 42);
  CHECK(map.find(Handle{handle.index, handle.generation + 1}) == nullptr);
  CHECK(map.find(Handle{handle.index + 1, handle.generation}) == nullptr);
  CHECK(map.find(Handle{}) == nullptr);
  CHECK(map.find(Handle::unpack(~std::uint64_t{0})) == nullptr);
}

TEST_CASE("the handle of an earlier use never matches the next one") {
  SlotMap<int> map(1);
  const Handle first = map.insert(1).value();
  CHECK(map.take(first) == 1);
  CHECK(map.find(first) == nullptr);
  CHECK_FALSE(map.take(first).has_value());
  const Handle second = map.insert(2).value();
  CHECK(second.index == first.index);
  CHECK(second != first);
  CHECK(map.find(first) == nullptr);
  CHECK(*map.find(second) == 2);
}

TEST_CASE("a full table refuses, and accepts again after a take") {
  SlotMap<int> map(2);
  const Handle a = map.insert(1).value();
  CHECK(map.insert(2).has_value());
  CHECK_FALSE(map.insert(3).has_value());
  CHECK(map.size() == 2);
  map.take(a).reset();
  CHECK(map.insert(4).has_value());
  CHECK_FALSE(SlotMap<int>(0).insert(1).has_value());
}

TEST_CASE("taking a value destroys nothing but the place") {
  SlotMap<std::unique_ptr<int>> map(2);
  const Handle handle = map.insert(std::make_unique<int>(5)).value();
  const std::optional<std::unique_ptr<int>> out = map.take(handle);
  REQUIRE(out.has_value());
  CHECK(**out == 5);
  CHECK(map.empty());
}

TEST_CASE("a handle survives packing") {
  const Handle handle{7, 0x80000001};
  CHECK(Handle::unpack(handle.packed()) == handle);
  CHECK(handle.packed() == 0x8000000100000007ULL);
}

TEST_CASE("random use agrees with a plain map") {
  constexpr std::uint64_t kSeed = 20240517;
  CAPTURE(kSeed);
  slime::Rng rng(kSeed);
  SlotMap<std::uint64_t> map(64);
  std::map<std::uint64_t, std::uint64_t> model;
  std::vector<Handle> gone;
  for (int step = 0; step < 20000; ++step) {
    if (rng.chance(1, 2)) {
      const std::uint64_t value = rng.next();
      const std::optional<Handle> handle = map.insert(value);
      REQUIRE(handle.has_value() == (model.size() < 64));
      if (handle) REQUIRE(model.emplace(handle->packed(), value).second);
    } else if (!model.empty()) {
      const auto it = std::next(model.begin(), static_cast<std::ptrdiff_t>(rng.below(model.size())));
      REQUIRE(map.take(Handle::unpack(it->first)) == it->second);
      gone.push_back(Handle::unpack(it->first));
      model.erase(it);
    }
    if (!gone.empty()) REQUIRE(map.find(gone[rng.below(gone.size())]) == nullptr);
  }
  std::size_t seen = 0;
  map.for_each([&](Handle handle, std::uint64_t& value) {
    ++seen;
    CHECK(model.at(handle.packed()) == value);
  });
  CHECK(seen == model.size());
}
