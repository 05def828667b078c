#pragma once

#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "transport/limits.h"

namespace slime::transport {

// Decides how long a caller that drives in place of the loop's thread spins before it sleeps.
class HelpSpin {
 public:
  explicit HelpSpin(Nanos shortest) : shortest_(shortest), usual_(shortest) {}

  // Returns how long such a caller usually spins. Thread: any.
  [[nodiscard]] Nanos usual() const { return usual_.load(std::memory_order_relaxed); }
  // Notes that a caller slept for a short time, or not. If so, the next wait spins for longer:
  // without threads that sleep and are woken on both sides, the work would take less time still.
  // Thread: any.
  void note_sleep(bool soon) {
    usual_.store(soon ? limits::kLoopHelpSpin : shortest_, std::memory_order_relaxed);
  }

  // Returns whether spins were in vain lately, so that a wait that begins now should sleep at once.
  // Every kLoopVainWaits-th time returns false, to see whether that has changed. Thread: the one
  // that drives the loop.
  [[nodiscard]] bool in_vain() {
    return vain_ >= limits::kLoopVainSpins && ++waits_ % limits::kLoopVainWaits != 0;
  }
  // Notes that a spin ended with work, or was in vain. Thread: the one that drives the loop.
  void note_spin(bool worked) {
    vain_ = std::clamp(vain_ + (worked ? -1 : 1), 0, 2 * limits::kLoopVainSpins);
  }

 private:
  const Nanos shortest_;
  std::atomic<Nanos> usual_;
  int vain_ = 0;  // spins in vain, less those with work
  unsigned waits_ = 0;
};

}  // namespace slime::transport
