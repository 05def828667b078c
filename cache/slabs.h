#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/limits.h"

namespace slime::cache {

// A set of numbers below a bound that finds its smallest member in a few steps: a bitmap, and above it
// bitmaps of the words that are not empty. Two bits for each possible member, whatever it holds.
class NumberSet {
 public:
  explicit NumberSet(std::uint64_t bound);
  void insert(std::uint64_t number);
  void erase(std::uint64_t number);
  [[nodiscard]] bool contains(std::uint64_t number) const;
  [[nodiscard]] std::optional<std::uint64_t> smallest() const;
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  // [0]: the members
  std::uint64_t bound_;
  std::uint64_t size_ = 0;
};

// A slab: kMinSlabBytes << size_class bytes at `offset`, a multiple of its size.
struct Slab {
  std::uint64_t offset = 0;
  std::uint8_t size_class = 0;
  [[nodiscard]] std::uint64_t bytes() const { return limits::kMinSlabBytes << size_class; }
};

// Hands out the offsets of one arena as slabs of power-of-two sizes: a buddy system, lowest offset first, so
// that neighbours meet again when they are given back. Knows no memory. Thread: one.
class SlabAllocator {
 public:
  static constexpr std::size_t kMaxClasses = 19;  // 4 KiB to 1 GiB

  // `slab_bytes`, the largest slab, is a power of two from kMinSlabBytes to kMaxSlabBytes.
  SlabAllocator(std::uint64_t arena_bytes, std::uint64_t slab_bytes);

  // Slabs that hold `length` bytes together: whole largest ones, then the smallest that takes the rest; where
  // that size is not to be had, smaller ones in its place. At least one. Nothing when fewer bytes than
  // needed(length) are free.
  std::optional<std::vector<Slab>> allocate(std::uint64_t length);
  void free(Slab slab);

  // What must be free for allocate(length) to succeed.
  static std::uint64_t needed(std::uint64_t length);

  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_; }
  [[nodiscard]] std::uint64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] std::size_t classes() const { return free_.size(); }
  [[nodiscard]] std::uint64_t free_slabs(std::size_t size_class) const { return free_[size_class].size(); }

 private:
  [[nodiscard]] std::uint8_t top_class() const { return static_cast<std::uint8_t>(free_.size() - 1); }
  [[nodiscard]] std::uint8_t class_for(std::uint64_t length) const;
  std::optional<Slab> take(std::uint8_t size_class);

  std::vector<NumberSet> free_;  // by class: offset / size
  std::uint64_t capacity_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace slime::cache
