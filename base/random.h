#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace slime {

// Fills `out` from the kernel's generator, for instance ids, keys and nonces.
void random_bytes(MutableBytes out);

// xoshiro256**: fast, seedable, reproducible. For simulation, jitter and test data; never for
// secrets. Thread: one.
class Rng {
 public:
  explicit Rng(std::uint64_t seed);
  std::uint64_t next();
  // Returns a uniform number in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // Returns true in `numerator` of `denominator` cases.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) { return below(denominator) < numerator; }
  void fill(MutableBytes out);

 private:
  std::uint64_t state_[4];
};

}  // namespace slime
