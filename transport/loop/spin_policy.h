#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace slime::transport {

// Decides how long a loop spins after its last work before it blocks: `shortest` at least, and up
// to `longest` while new work keeps coming within `longest`. Reads no clock. Thread: the one that
// drives the loop.
class SpinPolicy {
 public:
  SpinPolicy(Nanos shortest, Nanos longest) : shortest_(shortest), longest_(longest), spin_(shortest) {}

  // Notes that the loop has done work since the last update().
  void note_work() { worked_ = true; }
  // Lets a new spin begin at `now`, as if work had just been done. Keeps the chosen length.
  void restart(TimePoint now) {
    worked_ = false;
    last_work_ = now;
  }
  // Counts work that was noted since the last update() as done at `now`, and chooses the length of
  // the spin. Call before idle() and spins().
  void update(TimePoint now) {
    if (!std::exchange(worked_, false)) return;
    const Nanos gap = now - std::exchange(last_work_, now);
    spin_ = gap <= longest_ ? std::clamp(2 * gap, shortest_, longest_) : shortest_;
  }
  // Returns the time since the last work.
  [[nodiscard]] Nanos idle(TimePoint now) const { return now - last_work_; }
  [[nodiscard]] bool spins(TimePoint now) const { return idle(now) < spin_; }

 private:
  Nanos shortest_;
  Nanos longest_;
  // length of the spin: twice the time between the last two pieces of work, within the limits
  Nanos spin_;
  bool worked_ = false;
  TimePoint last_work_{};
};

}  // namespace slime::transport
