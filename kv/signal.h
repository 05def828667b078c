#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/future.h"
#include "base/mutex.h"
#include "kv/outcome.h"

namespace slime::kv {

// Wakes one thread that waits. The thread drives the agent's loop while it waits, so this works
// also where no other thread does. Thread: any; wait_until(): one.
class Signal {
 public:
  explicit Signal(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}

  // Ends the wait, or the next one.
  void raise() {
    std::shared_ptr<Promise<None>> waited;
    {
      const MutexLock lock(mutex_);
      raised_ = true;
      waited = std::move(waited_);
    }
    if (waited) waited->complete(outcome_of({}));
  }
  void wait_until(TimePoint deadline) {
    Future<None> done;
    {
      const MutexLock lock(mutex_);
      if (std::exchange(raised_, false)) return;
      waited_ = std::make_shared<Promise<None>>(driver_);
      done = waited_->future();
    }
    done.wait_done(std::max(deadline - steady_clock().now(), Nanos::zero()));
    const MutexLock lock(mutex_);
    waited_.reset();
    raised_ = false;
  }

 private:
  const std::shared_ptr<Driver> driver_;
  Mutex mutex_;
  bool raised_ SLIME_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Promise<None>> waited_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::kv
