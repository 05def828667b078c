#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/function.h"

namespace slime::transport {

struct TimerId {
  TimePoint when = kNever;
  std::uint64_t sequence = 0;  // 0: no timer
  explicit operator bool() const { return sequence != 0; }
};

// The timers of one loop. Each runs its task once. Timers for the same time run in the order in
// which they were added. Keeps the memory of some timers that have ended for those to come, so that
// a timer that is armed again and again allocates nothing. Thread: the one that drives the loop.
class Timers {
 public:
  TimerId add(TimePoint when, Task task);
  // Cancels a timer and clears `id`. Does nothing to a timer that has run or was cancelled.
  void cancel(TimerId& id);
  // Returns the time of the earliest timer; kNever if there is no timer.
  [[nodiscard]] TimePoint next() const { return timers_.empty() ? kNever : timers_.begin()->first.first; }
  [[nodiscard]] bool empty() const { return timers_.empty(); }
  // Runs the timers that are due at `now`, but no timers that their tasks add. Tasks may add and
  // cancel timers. Returns whether any timer ran.
  bool run_due(TimePoint now);

 private:
  using Key = std::pair<TimePoint, std::uint64_t>;
  using Map = std::map<Key, Task>;
  static constexpr std::size_t kMostSpares = 64;

  // Takes the timer out and keeps its node. Returns the task.
  Task take(Map::iterator timer);

  Map timers_;
  std::vector<Map::node_type> spares_;
  std::uint64_t sequence_ = 0;
};

}  // namespace slime::transport
