#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/function.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace slime::cache {

// A thread that runs tasks one after the other. The thread starts with the first task. Thread: any.
class Worker {
 public:
  // Called once: with true in its turn, or with false if the worker is destroyed before.
  using Job = UniqueFunction<void(bool run)>;

  explicit Worker(std::size_t limit) : limit_(limit) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Waits for the running task, unless this task destroys the worker.
  ~Worker() {
    {
      const MutexLock lock(queue_->mutex);
      queue_->ending = true;
    }
    queue_->changed.notify_all();
    if (!thread_.joinable()) return;
    if (thread_.get_id() == std::this_thread::get_id())
      thread_.detach();
    else
      thread_.join();
  }

  // Returns false, and drops the job, if `limit` jobs wait, or no thread can be started.
  [[nodiscard]] bool post(Job job) {
    {
      const MutexLock lock(queue_->mutex);
      if (queue_->jobs.size() >= limit_ || !has_thread()) return false;
      queue_->jobs.push_back(std::move(job));
    }
    queue_->changed.notify_one();
    return true;
  }

 private:
  // State that the worker shares with its thread, which may outlive the worker.
  struct Queue {
    Mutex mutex;
    CondVar changed;
    std::deque<Job> jobs SLIME_GUARDED_BY(mutex);
    bool ending SLIME_GUARDED_BY(mutex) = false;
  };

  // Starts the thread if there is none.
  bool has_thread() SLIME_REQUIRES(queue_->mutex) {
    if (thread_.joinable()) return true;
    try {
      thread_ = make_thread([queue = queue_] { run(*queue); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  static void run(Queue& queue) {
    MutexLock lock(queue.mutex);
    while (true) {
      queue.changed.wait(queue.mutex,
                         [&]() SLIME_REQUIRES(queue.mutex) { return queue.ending || !queue.jobs.empty(); });
      if (queue.jobs.empty()) return;
      Job job = std::move(queue.jobs.front());
      queue.jobs.pop_front();
      const bool ending = queue.ending;
      lock.unlock();
      job(!ending);
      job = {};
      lock.lock();
    }
  }

  const std::size_t limit_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_ SLIME_GUARDED_BY(queue_->mutex);
};

}  // namespace slime::cache
