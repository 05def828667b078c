#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/limits.h"

namespace slime::transport {

// memcpy() for blocks whose bytes are in no cache, and will be in none when they are used next:
// stores past the caches, and prefetches far ahead. The ranges do not overlap. Plain memcpy() for
// short blocks, and on processors other than x86-64 with AVX2.
//
// `next`: where the next block will be read, so that its first bytes come meanwhile; nullptr if
// that is unknown. The memory at `next` need not exist. bulk_copy_end() orders the stores before
// later stores of this thread; it costs next to nothing if no store went past the caches.
void bulk_copy_cold(void* to, const void* from, std::size_t bytes, const void* next);
void bulk_copy_end();

// Prefetches the first lines of a short block that is copied next; the processor finds the rest by
// itself.
inline void ask_for_block(const std::byte* block) {
  for (std::size_t at = 0; at < limits::kAskedBytes; at += 64) __builtin_prefetch(block + at);
}

// Whether what is copied lately fits into the last level cache. Blocks that are copied again and again are
// better kept there; with more of them than fit, each one only evicts what the next one needs.
//
// Counts the distinct 64 KiB pieces (a hash of their addresses) that an epoch of copies names, an epoch being
// as many bytes as the cache has; the epoch before decides. So a burst of new data costs at most one epoch.
// Thread: one.
class WorkingSet {
 public:
  // `cache_bytes`: of the last level cache.
  explicit WorkingSet(std::size_t cache_bytes) : cache_bytes_(std::min(cache_bytes, kMostBytes)) {}
  // Notes a copy; true: it is one of so many different ones that the caches do not help.
  bool note(const void* to, const void* from, std::size_t bytes);

 private:
  static constexpr std::size_t kPieceBits = 16;
  static constexpr std::size_t kPlaceBits = 12;
  static constexpr std::size_t kPlaces = 1 << kPlaceBits;
  // Of a larger cache: beyond half of the places too many pieces share one to be counted.
  static constexpr std::size_t kMostBytes = kPlaces / 2 << kPieceBits;
  void touch(const void* begin, std::size_t bytes);

  const std::size_t cache_bytes_;
  std::array<std::uint32_t, kPlaces> seen_{};  // the epoch in which a piece was last named
  std::uint32_t epoch_ = 1;
  std::size_t moved_ = 0;     // bytes of this epoch
  std::size_t distinct_ = 0;  // pieces of this epoch
  bool cold_ = false;
};

// The last level cache as one core of this machine has it; 32 MiB where the kernel does not say.
std::size_t last_level_cache_bytes();

// One block of at least limits::kColdCopyBytes, by what this thread has copied lately.
void bulk_copy_long(void* to, const void* from, std::size_t bytes, const void* next);
// One block; `next` and bulk_copy_end() as above.
inline void bulk_copy(void* to, const void* from, std::size_t bytes, const void* next) {
  if (bytes < limits::kColdCopyBytes)
    std::memcpy(to, from, bytes);
  else
    bulk_copy_long(to, from, bytes, next);
}

}  // namespace slime::transport
