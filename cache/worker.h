#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/function.h"

namespace slime::cache {

// A thread that runs tasks one after the other. The thread starts with the first task. Thread: any.
class Worker {
 public:
  // Runs with true; with false if the worker ends before the task's turn.
  using Job = UniqueFunction<void(bool run)>;

  explicit Worker(std::size_t limit) : limit_(limit) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Waits for the running task.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // Returns false, and drops the job, if `limit` jobs wait.
  [[nodiscard]] bool post(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (jobs_.size() >= limit_) return false;
      jobs_.push_back(std::move(job));
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    changed_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      const bool ending = ending_;
      lock.unlock();
      job(!ending);
      lock.lock();
    }
  }

  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace slime::cache
