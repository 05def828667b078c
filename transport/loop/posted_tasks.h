#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/mutex.h"

namespace slime::transport {

// Tasks that any thread posts and the thread that drives the loop runs.
class PostedTasks {
 public:
  // Thread: any.
  void add(Task task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    pending_.store(true, std::memory_order_seq_cst);
  }
  // Returns whether a task waits for run(). Thread: any. A thread that is about to sleep must pass
  // std::memory_order_seq_cst: then either it sees a new task, or the thread that adds the task
  // sees that it sleeps.
  [[nodiscard]] bool pending(std::memory_order order = std::memory_order_acquire) const {
    return pending_.load(order);
  }
  // Runs the waiting tasks in order. Tasks that they add run in the next call. Returns whether any
  // task ran. Thread: the one that drives the loop.
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
      task = Task();  // frees the task's captures before the next task runs
    }
    return !tasks.empty();
  }

  Mutex mutex_;
  std::vector<Task> tasks_ SLIME_GUARDED_BY(mutex_);
  std::atomic<bool> pending_{false};
};

}  // namespace slime::transport
