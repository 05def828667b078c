#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace slime {

using Nanos = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanos>;

inline constexpr TimePoint kNever = TimePoint::max();

// Converts seconds that a user gave.
constexpr Nanos to_nanos(double seconds) {
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
}

// Source of monotonic time. Passed to constructors, never global, so that tests can replace it.
// Thread: any.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
  // Returns a time that is a few milliseconds old: up to one period of the kernel's tick, or longer
  // while a virtual machine does not run. Costs a fifth of now(). For long timeouts only.
  [[nodiscard]] virtual TimePoint coarse_now() const { return now(); }
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override;
  [[nodiscard]] TimePoint coarse_now() const override;
};

// A clock that only advance() and advance_to() move. Starts at one hour, so that subtracting a
// timeout never goes below zero.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint(Nanos(now_.load(std::memory_order_relaxed)));
  }
  void advance(Nanos by) { now_.fetch_add(by.count(), std::memory_order_relaxed); }
  // Moves to `to`; never backwards.
  void advance_to(TimePoint to);

 private:
  std::atomic<std::int64_t> now_{Nanos(std::chrono::hours(1)).count()};
};

// Returns the process's steady clock, for default arguments of constructors.
const Clock& steady_clock();

// Returns now + span, but at most kNever. Returns `now` if span <= 0.
inline TimePoint deadline_after(TimePoint now, Nanos span) {
  if (span <= Nanos::zero()) return now;
  if (kNever - now <= span) return kNever;
  return now + span;
}

}  // namespace slime
