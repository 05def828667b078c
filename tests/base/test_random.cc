#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/random.h"

using slime::Rng;

TEST_CASE("one seed gives one sequence, another seed another") {
  Rng a(1);
  Rng b(1);
  Rng c(2);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.next();
    CHECK(value == b.next());
    differs = differs || value != c.next();
  }
  CHECK(differs);
}

TEST_CASE("the sequence is the published xoshiro256** seeded by splitmix64") {
  // Saved simulator seeds replay only as long as these stay the same.
  Rng rng(0);
  CHECK(rng.next() == 0x99ec5f36cb75f2b4ULL);
  CHECK(rng.next() == 0xbf6e1f784956452aULL);
  CHECK(rng.next() == 0x1a5f849d4933e6e0ULL);
}

TEST_CASE("below stays below and reaches every value") {
  Rng rng(3);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = rng.below(7);
    REQUIRE(value < 7);
    seen.insert(value);
  }
  CHECK(seen.size() == 7);
  CHECK(rng.below(1) == 0);
}

TEST_CASE("chance follows its fraction") {
  Rng rng(4);
  int hits = 0;
  for (int i = 0; i < 10000; ++i) hits += rng.chance(1, 4) ? 1 : 0;
  CHECK(hits > 2200);
  CHECK(hits < 2800);
  CHECK_FALSE(rng.chance(0, 5));
  CHECK(rng.chance(5, 5));
}

TEST_CASE("fill writes every byte and nothing behind") {
  for (std::size_t size = 0; size <= 17; ++size) {
    std::array<std::byte, 20> buffer{};
    Rng rng(5);
    // Zero bytes occur by chance; over many rounds every position gets something else.
    std::array<bool, 20> touched{};
    for (int round = 0; round < 64; ++round) {
      rng.fill(slime::MutableBytes(buffer).first(size));
      for (std::size_t i = 0; i < buffer.size(); ++i) touched[i] = touched[i] || buffer[i] != std::byte{0};
    }
    CHECK(std::count(touched.begin(), touched.end(), true) == static_cast<std::ptrdiff_t>(size));
  }
}

TEST_CASE("the kernel's bytes differ each time") {
  std::array<std::byte, 32> a{};
  std::array<std::byte, 32> b{};
  slime::random_bytes(a);
  slime::random_bytes(b);
  CHECK(a != b);
  slime::random_bytes({});
}
