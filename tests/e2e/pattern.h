#pragma once

#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace slime::test {

// Word i of a region that both processes know. Never zero in every byte, so fresh memory cannot
// pass; another seed gives another word at every place.
inline std::uint64_t pattern_word(std::uint64_t i, std::uint64_t seed) {
  return (i + 1) * 0x9e3779b97f4a7c15ULL + seed * 0xd1b54a32d192ed03ULL;
}

inline void fill_pattern(MutableBytes bytes, std::uint64_t seed = 0) {
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    const std::uint64_t word = pattern_word(i, seed);
    std::memcpy(bytes.data() + 8 * i, &word, 8);
  }
}

inline bool has_pattern(Bytes bytes, std::uint64_t seed = 0) {
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    const std::uint64_t expected = pattern_word(i, seed);
    if (std::memcmp(bytes.data() + 8 * i, &expected, 8) != 0) return false;
  }
  return true;
}

}  // namespace slime::test
