#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/function.h"

namespace slime::transport {

struct TimerId {
  TimePoint when = kNever;
  std::uint64_t sequence = 0;  // 0: no timer
  explicit operator bool() const { return sequence != 0; }
};

// The timers of one loop. Each runs its task once. Timers of the same time run in the order in
// which they were added. Thread: the driver's.
class Timers {
 public:
  TimerId add(TimePoint when, Task task);
  // Ignores a timer that has run or was cancelled. Clears `id`.
  void cancel(TimerId& id);
  // Returns the time of the first timer; kNever when there is none.
  [[nodiscard]] TimePoint next() const { return timers_.empty() ? kNever : timers_.begin()->first.first; }
  [[nodiscard]] bool empty() const { return timers_.empty(); }
  // Runs the timers that are due at `now`, but none that their tasks add. Tasks may add and cancel
  // timers. Returns whether any ran.
  bool run_due(TimePoint now);

 private:
  using Key = std::pair<TimePoint, std::uint64_t>;
  std::map<Key, Task> timers_;
  std::uint64_t sequence_ = 0;
};

}  // namespace slime::transport
