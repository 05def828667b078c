#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/mutex.h"

namespace slime::transport {

// Threads that wait for another thread to leave the loop. Thread: any.
class DriveQueue {
 public:
  // Wakes the waiting threads. Call after storing, with std::memory_order_seq_cst, that no thread
  // drives the loop.
  void notify() {
    if (waiters_.load(std::memory_order_seq_cst) == 0) return;
    const MutexLock lock(mutex_);
    free_.notify_all();
  }
  // Waits until notify() or `until`; not at all if `taken()` is false. `taken()` loads the value
  // that is stored before notify(), with std::memory_order_seq_cst. May return early.
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
