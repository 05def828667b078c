#pragma once

#include "base/clock.h"
#include "transport/limits.h"

namespace slime::transport {

// How often a loop with pollers looks at its descriptors: a look is a system call, and costs far
// more than a poller. Looks are more frequent while descriptors had events a moment ago. Reads no
// clock. Thread: the driver's.
class FdPace {
 public:
  // Call after a turn in which pollers had work. Returns whether the loop may skip looking at its
  // descriptors now. If not, counts `now` as the time of the look.
  bool skip_busy(TimePoint now) {
    if (++skipped_ < limits::kLoopTurnsWithoutFds && recent(now)) return true;
    looked_at_ = now;
    return false;
  }
  // Returns whether the last look was recent enough for a loop that spins without work.
  [[nodiscard]] bool recent(TimePoint now) const {
    const bool often = now - events_at_ < limits::kLoopFdsRecent;
    return now - looked_at_ < (often ? limits::kLoopFdsOften : limits::kLoopFdsEvery);
  }
  // Call when the loop is about to look.
  void begin_look() { skipped_ = 0; }
  void note_look(TimePoint now) { looked_at_ = now; }
  void note_events(TimePoint now) { events_at_ = now; }

 private:
  int skipped_ = 0;  // turns with work since the last look
  TimePoint looked_at_{};
  TimePoint events_at_{};  // when descriptors had events
};

}  // namespace slime::transport
