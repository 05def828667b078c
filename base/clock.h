#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace slime {

using Nanos = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanos>;

inline constexpr TimePoint kNever = TimePoint::max();

// For seconds that a person gave.
constexpr Nanos to_nanos(double seconds) {
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
}

// Monotonic time. Passed in, never looked up, so that tests own it. Thread: any.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override;
};

// Moves only when told to. Starts at one hour, so that subtracting a timeout never goes below zero.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint(Nanos(now_.load(std::memory_order_relaxed)));
  }
  void advance(Nanos by) { now_.fetch_add(by.count(), std::memory_order_relaxed); }
  // Goes to `to`; never backwards.
  void advance_to(TimePoint to);

 private:
  std::atomic<std::int64_t> now_{Nanos(std::chrono::hours(1)).count()};
};

// The process's steady clock, for constructors' default arguments at the edge.
const Clock& steady_clock();

// now + span, saturating at kNever; a span <= 0 gives now.
TimePoint deadline_after(TimePoint now, Nanos span);

}  // namespace slime
