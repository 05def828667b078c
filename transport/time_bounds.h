#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "transport/limits.h"
#include "transport/operation.h"

namespace slime::transport {

// Says whether a one-sided operation has passed a time bound, and which.
enum class Overdue : std::uint8_t { kNo, kDeadline, kStall };

// The times at which a posted one-sided operation is ended although its transfer is not over.
// `progress` in the functions is when its connection last moved bytes of one-sided operations.
struct TimeBounds {
  static TimeBounds of(const Operation& operation, TimePoint now) {
    TimeBounds out;
    out.deadline = operation.deadline;
    out.posted_at = now;
    out.stall = operation.stall;
    if (out.deadline == kNever && out.stall <= Nanos::zero())
      out.deadline = deadline_after(now, limits::kOperationDeadline);
    return out;
  }

  // Returns the earliest time at which the operation may be overdue. Progress before then moves
  // that time further away.
  [[nodiscard]] TimePoint due(TimePoint progress) const {
    if (stall <= Nanos::zero()) return deadline;
    return std::min(deadline, deadline_after(std::max(posted_at, progress), stall));
  }
  // Returns when the endpoint must check again for progress and for overdue operations.
  [[nodiscard]] TimePoint next_look(TimePoint now, TimePoint progress) const {
    const TimePoint by = due(progress);
    // At least a nanosecond later: a look at `now` would come again before anything can move.
    const Nanos pause = std::max(stall / kLooksPerStall, Nanos(1));
    return stall <= Nanos::zero() ? by : std::min(by, deadline_after(now, pause));
  }
  [[nodiscard]] Overdue overdue(TimePoint now, TimePoint progress) const {
    if (deadline <= now) return Overdue::kDeadline;
    return due(progress) <= now ? Overdue::kStall : Overdue::kNo;
  }

  // Return errors, worded for the bound in `passed`: not_started() for an operation that was not
  // started, not_ended() for one whose connection was reset, reset_reason() for that connection.
  [[nodiscard]] Status not_started(std::string_view peer) const;
  [[nodiscard]] Status not_ended(std::string_view peer) const;
  [[nodiscard]] Status reset_reason(std::string_view peer) const;

  // Notes that the process stood still for `pause` until `now`: that time does not count towards a
  // stall.
  void excuse(Nanos pause, TimePoint now) { posted_at = std::min(now, posted_at + pause); }

  static constexpr int kLooksPerStall = 8;

  TimePoint deadline = kNever;
  TimePoint posted_at{};
  Nanos stall{};  // zero: none
  Overdue passed = Overdue::kNo;
};

// Returns the time by which a message that is posted now must have been handed to the wire or the
// device.
inline TimePoint message_deadline(const Operation& operation, TimePoint now) {
  return operation.deadline != kNever ? operation.deadline : deadline_after(now, limits::kOperationDeadline);
}

// Returns how long this process or its machine stood still if a timer for `due` fires at `now`.
// Zero if the timer is less than 100 ms late, which a busy machine explains.
inline Nanos pause_before(TimePoint now, TimePoint due) {
  const Nanos late = now - due;
  return late < std::chrono::milliseconds(100) ? Nanos::zero() : late;
}

}  // namespace slime::transport
