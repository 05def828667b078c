#pragma once

#include <cstdint>

namespace slime::testing {

// Counts of all threads of this program since its start.
struct Counts {
  std::uint64_t locks = 0;   // pthread_mutex_lock and pthread_mutex_trylock
  std::uint64_t clocks = 0;  // clock_gettime, except for CLOCK_MONOTONIC_COARSE, which reads no counter
  Counts operator-(const Counts& other) const { return {locks - other.locks, clocks - other.clocks}; }
  Counts& operator+=(const Counts& other) {
    locks += other.locks;
    clocks += other.clocks;
    return *this;
  }
};
Counts counts();

}  // namespace slime::testing
