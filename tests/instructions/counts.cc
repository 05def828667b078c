// Replaces functions of the C library by ones that count and call them.
#include "tests/instructions/counts.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <ctime>

namespace {

std::atomic<std::uint64_t> locks{0};
std::atomic<std::uint64_t> clocks{0};

// A function of the C library. Finds it at its first call: before constructors run, others lock.
template <class Function>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  Function* get() {
    void* found = function_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      found = ::dlsym(RTLD_NEXT, name_);
      if (found == nullptr) std::abort();
      function_.store(found, std::memory_order_relaxed);
    }
    return reinterpret_cast<Function*>(found);
  }

 private:
  const char* const name_;
  std::atomic<void*> function_{nullptr};
};

constinit Real<int(pthread_mutex_t*)> real_lock("pthread_mutex_lock");
constinit Real<int(pthread_mutex_t*)> real_trylock("pthread_mutex_trylock");
constinit Real<int(clockid_t, timespec*)> real_clock("clock_gettime");

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  locks.fetch_add(1, std::memory_order_relaxed);
  return real_lock.get()(mutex);
}
extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  locks.fetch_add(1, std::memory_order_relaxed);
  return real_trylock.get()(mutex);
}
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_MONOTONIC_COARSE) clocks.fetch_add(1, std::memory_order_relaxed);
  return real_clock.get()(clock, time);
}

namespace slime::testing {

Counts counts() {
  return {.locks = locks.load(std::memory_order_relaxed), .clocks = clocks.load(std::memory_order_relaxed)};
}

}  // namespace slime::testing
