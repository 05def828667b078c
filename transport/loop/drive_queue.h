#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/mutex.h"

namespace slime::transport {

// Lets threads wait until the thread that drives a loop leaves it. Thread: any.
class DriveQueue {
 public:
  // Wakes the waiting threads. Before the call, store with std::memory_order_seq_cst that no thread
  // drives the loop.
  void notify() {
    if (waiters_.load(std::memory_order_seq_cst) == 0) return;
    const MutexLock lock(mutex_);
    free_.notify_all();
  }
  // Waits until notify() or `until`. Returns at once if `taken()` is false; it may return early
  // otherwise, too. `taken()` must load, with std::memory_order_seq_cst, the value that is stored
  // before notify().
  template <class Taken>
  void wait(TimePoint until, const Taken& taken) {
    const MutexLock lock(mutex_);
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (taken()) free_.wait_until(mutex_, until);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  Mutex mutex_;
  CondVar free_;
  std::atomic<int> waiters_{0};
};

}  // namespace slime::transport
