#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "cache/checksum.h"
#include "cache/slabs.h"

namespace slime::cache {
namespace {

constexpr std::uint64_t kKib = 1024;

std::vector<std::uint64_t> sizes(const std::vector<Slab>& slabs) {
  std::vector<std::uint64_t> out;
  for (const Slab& slab : slabs) out.push_back(slab.bytes());
  return out;
}

TEST_CASE("a number set finds its smallest member at every size") {
  for (const std::uint64_t bound : {1u, 63u, 64u, 65u, 4096u, 4097u, 300000u}) {
    CAPTURE(bound);
    NumberSet set(bound);
    std::set<std::uint64_t> model;
    Rng rng(bound);
    for (int step = 0; step < 2000; ++step) {
      const std::uint64_t number = rng.below(bound);
      REQUIRE(set.contains(number) == (model.count(number) == 1));
      if (model.erase(number) == 1) {
        set.erase(number);
      } else {
        set.insert(number);
        model.insert(number);
      }
      REQUIRE(set.size() == model.size());
      REQUIRE(set.smallest().has_value() == !model.empty());
      if (!model.empty()) REQUIRE(*set.smallest() == *model.begin());
    }
    CHECK_FALSE(set.contains(bound));
  }
}

TEST_CASE("an object takes the smallest slab that fits, and several only above the largest") {
  SlabAllocator slabs(1 << 20, 256 * kKib);
  using Sizes = std::vector<std::uint64_t>;
  CHECK(sizes(*slabs.allocate(0)) == Sizes{4 * kKib});
  CHECK(sizes(*slabs.allocate(1)) == Sizes{4 * kKib});
  CHECK(sizes(*slabs.allocate(4 * kKib + 1)) == Sizes{8 * kKib});
  CHECK(sizes(*slabs.allocate(200 * kKib)) == Sizes{256 * kKib});
  CHECK(sizes(*slabs.allocate(257 * kKib)) == Sizes{256 * kKib, 4 * kKib});
}

TEST_CASE("where only small slabs are left an object takes several of them") {
  SlabAllocator slabs(64 * kKib, 64 * kKib);
  std::vector<Slab> small;
  for (int i = 0; i < 16; ++i) small.push_back(slabs.allocate(4 * kKib)->front());
  CHECK_FALSE(slabs.allocate(1).has_value());
  for (std::size_t i = 0; i < small.size(); i += 2) slabs.free(small[i]);
  REQUIRE(slabs.free_bytes() == 32 * kKib);
  CHECK_FALSE(slabs.allocate(32 * kKib + 1).has_value());
  CHECK(slabs.allocate(32 * kKib)->size() == 8);
  CHECK(slabs.free_bytes() == 0);
}

TEST_CASE("an arena that is no multiple of the largest slab is used to its last page") {
  SlabAllocator slabs(300 * kKib + 100, 256 * kKib);
  CHECK(slabs.capacity_bytes() == 300 * kKib);
  const auto all = slabs.allocate(300 * kKib);
  REQUIRE(all.has_value());
  for (const Slab& slab : *all) {
    CHECK(slab.offset % slab.bytes() == 0);
    CHECK(slab.offset + slab.bytes() <= 300 * kKib);
  }
}

TEST_CASE("slabs never overlap, and everything merges again once it is free") {
  constexpr std::uint64_t kSeed = 20240607;
  CAPTURE(kSeed);
  Rng rng(kSeed);
  SlabAllocator slabs(3 * 256 * kKib + 20 * kKib, 256 * kKib);
  const std::uint64_t capacity = slabs.capacity_bytes();
  std::vector<std::uint64_t> all_free;
  for (std::size_t i = 0; i < slabs.classes(); ++i) all_free.push_back(slabs.free_slabs(i));
  std::vector<std::vector<Slab>> held;
  std::map<std::uint64_t, std::uint64_t> taken;  // offset -> end
  for (int step = 0; step < 20000; ++step) {
    if (rng.chance(1, 2) && !held.empty()) {
      const std::size_t victim = rng.below(held.size());
      for (const Slab& slab : held[victim]) {
        slabs.free(slab);
        taken.erase(slab.offset);
      }
      held[victim] = std::move(held.back());
      held.pop_back();
    } else {
      const std::uint64_t length = rng.below(rng.chance(1, 8) ? 600 * kKib : 40 * kKib);
      const bool fits = SlabAllocator::needed(length) <= slabs.free_bytes();
      auto got = slabs.allocate(length);
      REQUIRE(got.has_value() == fits);
      if (!got) continue;
      for (const Slab& slab : *got) {
        const auto next = taken.lower_bound(slab.offset);
        REQUIRE((next == taken.end() || next->first >= slab.offset + slab.bytes()));
        REQUIRE((next == taken.begin() || std::prev(next)->second <= slab.offset));
        REQUIRE(slab.offset + slab.bytes() <= capacity);
        taken.emplace(slab.offset, slab.offset + slab.bytes());
      }
      held.push_back(std::move(*got));
    }
    std::uint64_t used = 0;
    for (const auto& [offset, end] : taken) used += end - offset;
    REQUIRE(used + slabs.free_bytes() == capacity);
  }
  for (const auto& object : held) {
    for (const Slab& slab : object) slabs.free(slab);
  }
  for (std::size_t i = 0; i < slabs.classes(); ++i) CHECK(slabs.free_slabs(i) == all_free[i]);
}

TEST_CASE("a checksum tells bytes, version, key and namespace apart, however it is fed") {
  ByteVector bytes(100'000);
  Rng(7).fill(bytes);
  const std::uint64_t sum = checksum("ns", "key", 5, bytes);
  CHECK(checksum("ns", "key", 5, bytes) == sum);
  CHECK(checksum("ns", "key", 6, bytes) != sum);
  CHECK(checksum("ns", "kez", 5, bytes) != sum);
  CHECK(checksum("nsk", "ey", 5, bytes) != sum);
  CHECK(checksum("ns", "key", 5, Bytes(bytes).first(99'999)) != sum);
  Checksum pieces;
  pieces.start("other", "object", 1);
  pieces.update(Bytes(bytes).first(10));
  pieces.start("ns", "key", 5);
  pieces.update(Bytes(bytes).first(1));
  pieces.update({});
  pieces.update(Bytes(bytes).subspan(1, 70'000));
  pieces.update(Bytes(bytes).subspan(70'001));
  CHECK(pieces.value() == sum);
  bytes[50'000] ^= std::byte{1};
  CHECK(checksum("ns", "key", 5, bytes) != sum);
}

}  // namespace
}  // namespace slime::cache
