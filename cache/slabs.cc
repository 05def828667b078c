#include "cache/slabs.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace slime::cache {

NumberSet::NumberSet(std::uint64_t bound) : bound_(bound) {
  std::uint64_t bits = std::max<std::uint64_t>(bound, 1);
  do {
    bits = (bits + 63) / 64;
    levels_.emplace_back(bits);
  } while (bits > 1);
}

void NumberSet::insert(std::uint64_t number) {
  SLIME_CHECK(number < bound_ && !contains(number));
  ++size_;
  for (auto& level : levels_) {
    std::uint64_t& word = level[number / 64];
    const bool was_empty = word == 0;
    word |= std::uint64_t{1} << (number % 64);
    if (!was_empty) return;
    number /= 64;
  }
}

void NumberSet::erase(std::uint64_t number) {
  SLIME_CHECK(contains(number));
  --size_;
  for (auto& level : levels_) {
    std::uint64_t& word = level[number / 64];
    word &= ~(std::uint64_t{1} << (number % 64));
    if (word != 0) return;
    number /= 64;
  }
}

bool NumberSet::contains(std::uint64_t number) const {
  return number < bound_ && (levels_[0][number / 64] >> (number % 64) & 1) != 0;
}

std::optional<std::uint64_t> NumberSet::smallest() const {
  if (size_ == 0) return std::nullopt;
  std::uint64_t number = 0;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    number = number * 64 + static_cast<std::uint64_t>(std::countr_zero((*level)[number]));
  }
  return number;
}

SlabAllocator::SlabAllocator(std::uint64_t arena_bytes, std::uint64_t slab_bytes) {
  SLIME_CHECK(std::has_single_bit(slab_bytes) && slab_bytes >= limits::kMinSlabBytes &&
              slab_bytes <= limits::kMaxSlabBytes);
  for (std::uint64_t size = limits::kMinSlabBytes; size <= slab_bytes; size *= 2) {
    free_.emplace_back(arena_bytes / size);
  }
  // Divides the arena into slabs of the largest size, and its tail into smaller slabs: every offset
  // is a multiple of its slab's size.
  for (std::uint8_t size_class = top_class();; --size_class) {
    for (Slab slab{capacity_, size_class}; capacity_ + slab.bytes() <= arena_bytes; slab.offset = capacity_) {
      free_[size_class].insert(slab.offset / slab.bytes());
      capacity_ += slab.bytes();
    }
    if (size_class == 0) break;
  }
  free_bytes_ = capacity_;
}

std::uint64_t SlabAllocator::needed(std::uint64_t length) {
  const std::uint64_t units = length / limits::kMinSlabBytes + (length % limits::kMinSlabBytes != 0 ? 1 : 0);
  return std::max<std::uint64_t>(units, 1) * limits::kMinSlabBytes;
}

std::uint8_t SlabAllocator::class_for(std::uint64_t length) const {
  std::uint8_t size_class = 0;
  while (size_class < top_class() && (limits::kMinSlabBytes << size_class) < length) ++size_class;
  return size_class;
}

std::optional<std::vector<Slab>> SlabAllocator::allocate(std::uint64_t length) {
  if (length > capacity_ || needed(length) > free_bytes_) return std::nullopt;
  std::vector<Slab> slabs;
  std::uint64_t rest = std::max<std::uint64_t>(length, 1);
  while (rest > 0) {
    std::uint8_t size_class = class_for(rest);
    std::optional<Slab> slab = take(size_class);
    while (!slab) {
      SLIME_CHECK(size_class > 0);  // needed() bytes are free, so a smaller slab is free
      slab = take(--size_class);
    }
    slabs.push_back(*slab);
    rest -= std::min(rest, slab->bytes());
  }
  return slabs;
}

std::optional<Slab> SlabAllocator::take(std::uint8_t size_class) {
  std::uint8_t from = size_class;
  while (from < free_.size() && free_[from].size() == 0) ++from;
  if (from >= free_.size()) return std::nullopt;
  const std::uint64_t number = *free_[from].smallest();
  free_[from].erase(number);
  Slab slab{number * (limits::kMinSlabBytes << from), from};
  while (slab.size_class > size_class) {  // keep the lower half, give back the upper one
    --slab.size_class;
    free_[slab.size_class].insert(slab.offset / slab.bytes() + 1);
  }
  free_bytes_ -= slab.bytes();
  return slab;
}

void SlabAllocator::free(Slab slab) {
  free_bytes_ += slab.bytes();
  for (;;) {
    const std::uint64_t number = slab.offset / slab.bytes();
    NumberSet& same = free_[slab.size_class];
    if (slab.size_class == top_class() || !same.contains(number ^ 1)) {
      same.insert(number);
      return;
    }
    same.erase(number ^ 1);
    slab.offset = (number & ~std::uint64_t{1}) * slab.bytes();
    ++slab.size_class;
  }
}

}  // namespace slime::cache
