#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/copy.h"
#include "transport/limits.h"

namespace slime::transport {

// Copies a block that is in no cache and need not be in a cache afterwards: its stores bypass the
// caches, and it prefetches far ahead. The ranges must not overlap. Uses plain memcpy() for short
// blocks, and on processors other than x86-64 with AVX2. `next`: source of the next copy, whose
// first bytes are prefetched; nullptr if unknown. The memory at `next` need not exist. Call
// bulk_copy_end() to order the stores before later stores of this thread; that call costs next to
// nothing if no store bypassed the caches.
void bulk_copy_cold(void* to, const void* from, std::size_t bytes, const void* next);
void bulk_copy_end();

// Prefetches the first lines of a short block that is copied next; the processor prefetches the
// rest by itself.
inline void ask_for_block(const std::byte* block) {
  for (std::size_t at = 0; at < limits::kAskedBytes; at += 64) __builtin_prefetch(block + at);
}

// Estimates whether the blocks copied lately fit into the last-level cache. If they fit, blocks
// that are copied again should stay in the cache. If they do not fit, a block in the cache only
// evicts another block that is needed sooner. Counts the distinct 64 KiB pieces (by a hash of their
// addresses) of each epoch; an epoch ends when as many bytes as the cache has were copied. The
// count of one epoch decides for the next epoch, so a burst of new data is treated wrongly for at
// most one epoch. Thread: one.
class WorkingSet {
 public:
  // `cache_bytes`: size of the last level cache.
  explicit WorkingSet(std::size_t cache_bytes) : cache_bytes_(std::min(cache_bytes, kMostBytes)) {}
  // Notes a copy of `bytes` bytes. Returns true if the blocks copied lately do not fit into the
  // cache: the copy should then bypass the caches.
  bool note(const void* to, const void* from, std::size_t bytes);

 private:
  static constexpr std::size_t kPieceBits = 16;
  static constexpr std::size_t kPlaceBits = 12;
  static constexpr std::size_t kPlaces = 1 << kPlaceBits;
  // Largest cache, in bytes, for which the estimate works. With more distinct pieces than half of
  // the places in seen_, too many pieces share a place.
  static constexpr std::size_t kMostBytes = kPlaces / 2 << kPieceBits;
  void touch(const void* begin, std::size_t bytes);

  const std::size_t cache_bytes_;
  // for each place: the epoch in which a piece with that hash was last copied
  std::array<std::uint32_t, kPlaces> seen_{};
  std::uint32_t epoch_ = 1;
  std::size_t moved_ = 0;     // bytes of this epoch
  std::size_t distinct_ = 0;  // pieces of this epoch
  bool cold_ = false;
};

// Returns the size in bytes of the last-level cache that one core of this machine can use; 32 MiB
// if the kernel does not report a size.
std::size_t last_level_cache_bytes();

// Copies one block of at least limits::kColdCopyBytes, past the caches if this thread's WorkingSet
// says so.
void bulk_copy_long(void* to, const void* from, std::size_t bytes, const void* next);
// Copies one block of any length. `next`: the source of the next copy, or nullptr. Call
// bulk_copy_end() before a store that tells another thread of the copied bytes.
inline void bulk_copy(void* to, const void* from, std::size_t bytes, const void* next) {
  if (bytes < limits::kColdCopyBytes)
    copy_bytes(to, from, bytes);
  else
    bulk_copy_long(to, from, bytes, next);
}

}  // namespace slime::transport
