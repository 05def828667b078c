#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "transport/limits.h"

namespace slime::transport {

// Decides how long a loop spins after its last work before it blocks: `shortest` at least, and up
// to `longest` while new work keeps coming within `longest`. Reads no clock. Thread: the one that
// drives the loop.
class SpinPolicy {
 public:
  SpinPolicy(Nanos shortest, Nanos longest) : shortest_(shortest), longest_(longest), spin_(shortest) {}

  // Notes that the loop has done work since the last update().
  void note_work() { worked_ = true; }
  // Notes that the next work is expected soon: the spin until then is `longest`, or kLoopHelpSpin
  // if that is less. Call while doing work.
  void expect() { expects_ = true; }
  // Returns true until the work after the one in which expect() was called.
  [[nodiscard]] bool expects() const { return expects_ || expected_; }
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
    expected_ = std::exchange(expects_, false);
    spin_ = expected_         ? std::clamp(limits::kLoopHelpSpin, shortest_, longest_)
            : gap <= longest_ ? std::clamp(2 * gap, shortest_, longest_)
                              : shortest_;
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
  bool expects_ = false;   // expect() was called since the last update()
  bool expected_ = false;  // expect() was called during the last work
  TimePoint last_work_{};
};

}  // namespace slime::transport
