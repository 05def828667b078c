#include "base/fork.h"

#include <pthread.h>

namespace slime {

constinit std::atomic<std::uint64_t> detail::forks{0};

// List of all ForkMutexes, newest first, and the newest one that the current fork() holds.
struct HeldInFork {
  static constinit inline std::atomic<ForkMutex*> all{nullptr};
  static constinit inline ForkMutex* held = nullptr;  // guarded by the mutexes

  // Locks all ForkMutexes; after() unlocks them. clang cannot follow a varying number of locks.
  static void before() SLIME_NO_THREAD_SAFETY_ANALYSIS {
    ForkMutex* const newest = all.load(std::memory_order_acquire);
    for (ForkMutex* mutex = newest; mutex != nullptr; mutex = mutex->next_) mutex->lock();
    held = newest;
  }
  static void after() SLIME_NO_THREAD_SAFETY_ANALYSIS {
    for (ForkMutex* mutex = held; mutex != nullptr;) {
      ForkMutex* const next = mutex->next_;
      mutex->unlock();
      mutex = next;
    }
  }
  static void after_in_child() {
    detail::forks.fetch_add(1, std::memory_order_relaxed);
    after();
  }
};

namespace {

[[maybe_unused]] const int registered =
    ::pthread_atfork(&HeldInFork::before, &HeldInFork::after, &HeldInFork::after_in_child);

}  // namespace

ForkMutex::ForkMutex() {
  next_ = HeldInFork::all.load(std::memory_order_relaxed);
  while (!HeldInFork::all.compare_exchange_weak(next_, this, std::memory_order_release,
                                                std::memory_order_relaxed)) {
  }
}
}  // namespace slime
