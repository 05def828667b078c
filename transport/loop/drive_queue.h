#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace slime::transport {

// Threads that wait for another thread to leave the loop. Thread: any.
class DriveQueue {
 public:
  // Wakes the waiting threads. Call after storing, with std::memory_order_seq_cst, that no thread
  // drives the loop.
  void notify() {
    if (waiters_.load(std::memory_order_seq_cst) == 0) return;
    const std::lock_guard lock(mutex_);
    free_.notify_all();
  }
  // Waits until notify() or `until`; not at all if `taken()` is false. `taken()` loads the value that
  // is stored before notify(), with std::memory_order_seq_cst. May return early.
  template <class Taken>
  void wait(TimePoint until, const Taken& taken) {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (taken()) free_.wait_until(lock, until);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  std::atomic<int> waiters_{0};
};

}  // namespace slime::transport
