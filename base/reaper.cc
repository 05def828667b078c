#include "base/reaper.h"

#include <deque>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace slime {
namespace {

struct Reaper {
  Mutex mutex;
  std::deque<Task> tasks SLIME_GUARDED_BY(mutex);
  // tasks that have not ended, queued ones included
  std::size_t under_way SLIME_GUARDED_BY(mutex) = 0;

  // Runs tasks until the queue is empty. reap() tries to start one thread per task.
  void run() {
    MutexLock lock(mutex);
    while (!tasks.empty()) {
      Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = Task();  // destroys the captures before the task counts as ended
      lock.lock();
      --under_way;
    }
  }
};

constinit PerProcess<Reaper> reaper;

}  // namespace

void reap(Task task) {
  Reaper& shared = reaper.get();
  {
    const MutexLock lock(shared.mutex);
    shared.tasks.push_back(std::move(task));
    ++shared.under_way;
  }
  try {
    make_thread([&shared] { shared.run(); }).detach();
  } catch (const std::system_error&) {
    // The thread of the next reap() runs this task too.
  }
}

bool try_reap(Task& task) {
  Reaper& shared = reaper.get();
  const auto taken = std::make_shared<Task>(std::move(task));
  {
    const MutexLock lock(shared.mutex);
    ++shared.under_way;
  }
  const auto over = [&shared] {
    const MutexLock lock(shared.mutex);
    --shared.under_way;
  };
  try {
    make_thread([taken, over] {
      (*taken)();
      *taken = Task();
      over();
    }).detach();
    return true;
  } catch (const std::system_error&) {
    task = std::move(*taken);
    over();
    return false;
  }
}

std::size_t reaping() {
  Reaper& shared = reaper.get();
  const MutexLock lock(shared.mutex);
  return shared.under_way;
}

}  // namespace slime
