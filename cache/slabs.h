#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/limits.h"

namespace slime::cache {

// A set of numbers below a bound that finds its smallest member in a few steps: a bitmap, with
// bitmaps of its non-empty words above it. Takes two bits for each possible member.
class NumberSet {
 public:
  explicit NumberSet(std::uint64_t bound);
  void insert(std::uint64_t number);
  void erase(std::uint64_t number);
  [[nodiscard]] bool contains(std::uint64_t number) const;
  [[nodiscard]] std::optional<std::uint64_t> smallest() const;
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  // [0]: the members; above: the non-empty words
  std::uint64_t bound_;
  std::uint64_t size_ = 0;
};

// A slab: kMinSlabBytes << size_class bytes at `offset`, a multiple of its size.
struct Slab {
  std::uint64_t offset = 0;
  std::uint8_t size_class = 0;
  [[nodiscard]] std::uint64_t bytes() const { return limits::kMinSlabBytes << size_class; }
};

// Allocates slabs of power-of-two sizes from one arena: a buddy system that takes the lowest offset
// first, so that free neighbours merge. Knows offsets only, and never touches the memory. Thread:
// one.
class SlabAllocator {
 public:
  static constexpr std::size_t kMaxClasses = 19;  // 4 KiB to 1 GiB

  // `slab_bytes`: size of the largest slab, a power of two from kMinSlabBytes to kMaxSlabBytes.
  SlabAllocator(std::uint64_t arena_bytes, std::uint64_t slab_bytes);

  // Returns slabs for `length` bytes: as many largest slabs as fit, then the smallest slab for the
  // rest. If no slab of a size is free, smaller slabs take its place. Returns at least one slab;
  // nullopt if fewer than needed(length) bytes are free.
  std::optional<std::vector<Slab>> allocate(std::uint64_t length);
  void free(Slab slab);

  // Returns the number of free bytes that allocate(length) needs.
  static std::uint64_t needed(std::uint64_t length);

  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_; }
  [[nodiscard]] std::uint64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] std::size_t classes() const { return free_.size(); }
  [[nodiscard]] std::uint64_t free_slabs(std::size_t size_class) const { return free_[size_class].size(); }

 private:
  [[nodiscard]] std::uint8_t top_class() const { return static_cast<std::uint8_t>(free_.size() - 1); }
  [[nodiscard]] std::uint8_t class_for(std::uint64_t length) const;
  std::optional<Slab> take(std::uint8_t size_class);

  std::vector<NumberSet> free_;  // index: size class; members: offset / size
  std::uint64_t capacity_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace slime::cache
