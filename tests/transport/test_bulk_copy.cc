#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/str.h"
#include "transport/bulk_copy.h"
#include "transport/limits.h"

namespace slime::transport::bulk_copy_test {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Any size and alignment, and not a byte beside them, whatever the next block is said to be.
void check_copies(void (*copy)(void*, const void*, std::size_t, const void*)) {
  constexpr std::size_t kMost = 3 * kMiB / 2;
  constexpr std::size_t kGuard = 128;
  ByteVector source(kMost + kGuard);
  Rng rng(11);
  rng.fill(source);
  ByteVector target(kMost + 2 * kGuard);
  const std::size_t edges[] = {0,
                               1,
                               63,
                               64,
                               65,
                               4095,
                               4096,
                               4097,
                               limits::kColdCopyBytes - 1,
                               limits::kColdCopyBytes,
                               limits::kColdCopyBytes + 1,
                               64 * 1024,
                               kMiB};
  for (int round = 0; round < 300; ++round) {
    const std::size_t size = round < 13 ? edges[round] : rng.next() % (round % 3 == 0 ? kMost : 100'000);
    const std::size_t from = rng.next() % kGuard;
    const std::size_t to = kGuard + rng.next() % kGuard;
    const std::size_t bytes = std::min(size, kMost - kGuard);
    CAPTURE(str(bytes, " bytes from ", from, " to ", to));
    std::memset(target.data(), 0x5a, bytes + 3 * kGuard > target.size() ? target.size() : bytes + 3 * kGuard);
    const void* const next[] = {nullptr, source.data() + rng.next() % kMost,
                                source.data() + source.size() - 1};  // where nothing is behind it
    copy(target.data() + to, source.data() + from, bytes, next[rng.next() % 3]);
    REQUIRE(std::memcmp(target.data() + to, source.data() + from, bytes) == 0);
    const auto untouched = [](std::byte b) { return b == std::byte{0x5a}; };
    REQUIRE(std::all_of(target.data(), target.data() + to, untouched));
    REQUIRE(std::all_of(target.data() + to + bytes, target.data() + to + bytes + 64, untouched));
  }
}

TEST_CASE("a copy past the caches moves what memcpy moves, whatever size and alignment") {
  check_copies(&bulk_copy_cold);
}

TEST_CASE("a copy that chooses by itself moves what memcpy moves") { check_copies(&bulk_copy); }

// Copies `blocks` distinct blocks again and again; whether the last of them counted as cold.
bool cold_after(WorkingSet& set, std::size_t blocks, std::size_t bytes, std::size_t total) {
  // Addresses that are never touched.
  const auto* const sources =
      reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40);  // NOLINT(performance-no-int-to-ptr)
  auto* const targets =
      reinterpret_cast<std::byte*>(std::uintptr_t{1} << 41);  // NOLINT(performance-no-int-to-ptr)
  bool cold = false;
  for (std::size_t i = 0; i < total / bytes; ++i) {
    const std::size_t at = i * 7919 % blocks * bytes;
    cold = set.note(targets + at, sources + at, bytes);
  }
  return cold;
}

TEST_CASE("blocks that fit the cache together are hot, more of them are cold, and it may change") {
  for (const std::size_t bytes : {16 * 1024UL, 64 * 1024UL, kMiB}) {
    CAPTURE(bytes);
    WorkingSet set(32 * kMiB);
    CHECK_FALSE(cold_after(set, 4 * kMiB / bytes, bytes, 128 * kMiB));
    CHECK(cold_after(set, 512 * kMiB / bytes, bytes, 128 * kMiB));
    CHECK_FALSE(cold_after(set, 4 * kMiB / bytes, bytes, 128 * kMiB));
  }
}

TEST_CASE(
    "a block that fills the cache together with its copy is cold, one that leaves room for others is hot") {
  WorkingSet set(32 * kMiB);
  CHECK(cold_after(set, 1, 16 * kMiB, 128 * kMiB));
  CHECK_FALSE(cold_after(set, 1, 8 * kMiB, 128 * kMiB));
}

TEST_CASE("however large a cache is said to be, copies of far more than that are cold") {
  for (const std::size_t cache : {64 * kMiB, 128 * kMiB, 384 * kMiB, 1152 * kMiB}) {
    CAPTURE(cache);
    WorkingSet set(cache);
    CHECK_FALSE(cold_after(set, 4 * kMiB / (64 * 1024), 64 * 1024, 4 * cache));
    CHECK(cold_after(set, 8 * cache / (64 * 1024), 64 * 1024, 4 * cache));
  }
}

TEST_CASE("the last level cache is the one that a core reaches, not the sum of a socket") {
  std::size_t kib = 0;
  if (std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size"); !(file >> kib)) {
    MESSAGE("the kernel does not say here");
    return;
  }
  CHECK(last_level_cache_bytes() == kib * 1024);
}

}  // namespace
}  // namespace slime::transport::bulk_copy_test
