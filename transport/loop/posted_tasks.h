#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/mutex.h"

namespace slime::transport {

// Tasks that any thread hands to the driver of a loop.
class PostedTasks {
 public:
  // Thread: any.
  void add(Task task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    pending_.store(true, std::memory_order_seq_cst);
  }
  // Returns whether run() would run a task. Thread: any. A thread that is about to sleep asks with
  // std::memory_order_seq_cst. Then either that thread sees the new task, or the thread that adds
  // the task sees the sleeper.
  [[nodiscard]] bool pending(std::memory_order order = std::memory_order_acquire) const {
    return pending_.load(order);
  }
  // Runs the tasks that are there, in order; tasks that they add run in the next call. Returns
  // whether any ran. Thread: the driver's.
  bool run() { return pending() && run_all(); }

 private:
  bool run_all() {
    std::vector<Task> tasks;
    {
      const MutexLock lock(mutex_);
      tasks.swap(tasks_);
      pending_.store(false, std::memory_order_relaxed);
    }
    for (Task& task : tasks) {
      task();
      task = Task();  // frees what it captured before the next task runs
    }
    return !tasks.empty();
  }

  Mutex mutex_;
  std::vector<Task> tasks_ SLIME_GUARDED_BY(mutex_);
  std::atomic<bool> pending_{false};
};

}  // namespace slime::transport
