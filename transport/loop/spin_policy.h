#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace slime::transport {

// How long a loop spins after its last work before it blocks: at least `shortest`, and up to
// `longest` while work keeps coming within that time. Reads no clock. Thread: the driver's.
class SpinPolicy {
 public:
  SpinPolicy(Nanos shortest, Nanos longest) : shortest_(shortest), longest_(longest), spin_(shortest) {}

  // Notes that something ran since the last update().
  void note_work() { worked_ = true; }
  // Begins to spin at `now`, as after work; keeps the pace.
  void restart(TimePoint now) {
    worked_ = false;
    last_work_ = now;
  }
  // Takes `now` as the time of the work noted since the last call. Call before idle() and spins().
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
  Nanos spin_;  // chosen from the pace of the last work
  bool worked_ = false;
  TimePoint last_work_{};
};

}  // namespace slime::transport
