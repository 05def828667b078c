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

// The bound that a one-sided operation has passed.
enum class Overdue : std::uint8_t { kNo, kDeadline, kStall };

// The times at which a posted one-sided operation ends although its transfer is not over.
// `progress` is when its connection last moved bytes of one-sided operations.
struct TimeBounds {
  static TimeBounds of(const Operation& operation, TimePoint now);

  // Returns the next time at which the operation may be overdue; later if there is progress until
  // then.
  [[nodiscard]] TimePoint due(TimePoint progress) const {
    if (stall <= Nanos::zero()) return deadline;
    return std::min(deadline, deadline_after(std::max(posted_at, progress), stall));
  }
  // Returns when to look for progress and for overdue operations again.
  [[nodiscard]] TimePoint next_look(TimePoint now, TimePoint progress) const {
    const TimePoint by = due(progress);
    return stall <= Nanos::zero() ? by : std::min(by, deadline_after(now, stall / kLooksPerStall));
  }
  [[nodiscard]] Overdue overdue(TimePoint now, TimePoint progress) const {
    if (deadline <= now) return Overdue::kDeadline;
    return due(progress) <= now ? Overdue::kStall : Overdue::kNo;
  }

  // Return the errors for the bound that was `passed`: of an operation that has not started, of an
  // operation whose connection was reset, and of that connection.
  [[nodiscard]] Status not_started(std::string_view peer) const;
  [[nodiscard]] Status not_ended(std::string_view peer) const;
  [[nodiscard]] Status reset_reason(std::string_view peer) const;

  // Notes that the process was paused for `pause` until now: that time does not count towards a
  // stall.
  void excuse(Nanos pause, TimePoint now) { posted_at = std::min(now, posted_at + pause); }

  static constexpr int kLooksPerStall = 8;

  TimePoint deadline = kNever;
  TimePoint posted_at{};
  Nanos stall{};  // zero: none
  Overdue passed = Overdue::kNo;
};

// Returns the time by which a message that is posted now must be with the wire or the device.
inline TimePoint message_deadline(const Operation& operation, TimePoint now) {
  return operation.deadline != kNever ? operation.deadline : deadline_after(now, limits::kOperationDeadline);
}

// How long this process or its machine was paused, if a timer that was due at `due` fires `now`.
// Zero: a delay that a busy machine explains.
inline Nanos pause_before(TimePoint now, TimePoint due) {
  const Nanos late = now - due;
  return late < std::chrono::milliseconds(100) ? Nanos::zero() : late;
}

}  // namespace slime::transport
