#include "base/clock.h"

#include <ctime>

namespace slime {

TimePoint SteadyClock::now() const {
  return std::chrono::time_point_cast<Nanos>(std::chrono::steady_clock::now());
}

TimePoint SteadyClock::coarse_now() const {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec));
}

void ManualClock::advance_to(TimePoint to) {
  const std::int64_t target = to.time_since_epoch().count();
  std::int64_t current = now_.load(std::memory_order_relaxed);
  while (current < target && !now_.compare_exchange_weak(current, target, std::memory_order_relaxed)) {
  }
}

const Clock& steady_clock() {
  static const SteadyClock kClock;
  return kClock;
}

}  // namespace slime
