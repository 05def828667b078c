#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/mutex.h"

namespace slime::transport {

// Tasks that any thread posts and the thread that drives the loop runs.
class PostedTasks {
 public:
  // Returns true if no other task waits: then the caller wakes the thread that runs them. Thread:
  // any.
  bool add(Task task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    return !pending_.exchange(true, std::memory_order_seq_cst);
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
    std::vector<Task> tasks = std::move(spare_);
    {
      const MutexLock lock(mutex_);
      tasks.swap(tasks_);
      pending_.store(false, std::memory_order_relaxed);
    }
    for (Task& task : tasks) {
      task();
      task = Task();  // frees the task's captures before the next task runs
    }
    const bool ran = !tasks.empty();
    tasks.clear();
    if (tasks.capacity() <= kMostSpare) spare_ = std::move(tasks);
    return ran;
  }

  static constexpr std::size_t kMostSpare = 4096;

  Mutex mutex_;
  std::vector<Task> tasks_ SLIME_GUARDED_BY(mutex_);
  std::vector<Task> spare_;  // empty; memory for the next list. Only the thread that drives uses it
  std::atomic<bool> pending_{false};
};

}  // namespace slime::transport
