#pragma once

#include "base/clock.h"
#include "transport/limits.h"

namespace slime::transport {

// Decides how often a loop with pollers looks at its descriptors: a look is a system call, which
// costs far more than a poller. Looks are more frequent after descriptors had events. Reads no
// clock. Thread: the one that drives the loop.
class FdPace {
 public:
  // Call after a turn in which pollers had work. Returns true if the loop may skip the look at its
  // descriptors in this turn. Otherwise notes `now` as the time of the look.
  bool skip_busy(TimePoint now) {
    if (++skipped_ < limits::kLoopTurnsWithoutFds && recent(now)) return true;
    looked_at_ = now;
    return false;
  }
  // Returns true if the last look at the descriptors is so recent that a loop without work need not
  // look again.
  [[nodiscard]] bool recent(TimePoint now) const {
    const bool often = now - events_at_ < limits::kLoopFdsRecent;
    return now - looked_at_ < (often ? limits::kLoopFdsOften : limits::kLoopFdsEvery);
  }
  // Call before the loop looks at its descriptors.
  void begin_look() { skipped_ = 0; }
  void note_look(TimePoint now) { looked_at_ = now; }
  void note_events(TimePoint now) { events_at_ = now; }

 private:
  int skipped_ = 0;  // turns with work since the last look
  TimePoint looked_at_{};
  TimePoint events_at_{};  // when descriptors had events
};

}  // namespace slime::transport
