#pragma once

#include <time.h>

#include "agent/limits.h"
#include "base/clock.h"
#include "transport/loop.h"

namespace slime::agent {

// The time at which an operation begins. Reading the clock takes a good part of the time of a short
// write. So operations with a long timeout that begin within one tick of the kernel share a
// reading, which is a tick old at most: 1 to 10 ms. Thread: the loop.
class BeginClock {
 public:
  // Returns the loop's time, or an earlier reading of this tick if `timeout` is at least
  // limits::kSharedReadingTimeout.
  TimePoint now(const transport::Loop& loop, Nanos timeout) {
    if (timeout < limits::kSharedReadingTimeout || loop.manual_clock()) return loop.now();
    const Nanos tick = this_tick();
    if (tick != tick_ || tick == Nanos::zero()) {
      reading_ = loop.now();
      tick_ = tick;  // read before the clock, so the reading is of this tick or of a later one
    }
    return reading_;
  }

 private:
  // Returns the time of the last tick, which takes a fifth of the time of a reading; zero if the
  // kernel does not tell.
  static Nanos this_tick() {
    timespec out{};
    if (::clock_gettime(CLOCK_MONOTONIC_COARSE, &out) != 0) return Nanos::zero();
    return std::chrono::seconds(out.tv_sec) + Nanos(out.tv_nsec);
  }

  Nanos tick_{};
  TimePoint reading_{};
};

}  // namespace slime::agent
