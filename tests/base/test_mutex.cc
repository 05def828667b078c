#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "base/mutex.h"

using namespace slime;
using namespace std::chrono_literals;

namespace {

struct Flag {
  Mutex mutex;
  CondVar changed;
  bool set SLIME_GUARDED_BY(mutex) = false;
};

// Asks on another thread: a thread must not try a mutex that it holds.
bool is_locked(Mutex& mutex) {
  bool locked = false;
  std::thread([&] {
    if (mutex.try_lock())
      mutex.unlock();
    else
      locked = true;
  }).join();
  return locked;
}

}  // namespace

TEST_CASE("a MutexLock holds its mutex while it lives, but not between unlock() and lock()") {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    CHECK(is_locked(mutex));
    lock.unlock();
    CHECK_FALSE(is_locked(mutex));
    lock.lock();
    CHECK(is_locked(mutex));
  }
  CHECK_FALSE(is_locked(mutex));
  {
    MutexLock lock(mutex);
    lock.unlock();
  }
  CHECK_FALSE(is_locked(mutex));
}

TEST_CASE("a MutexLock unlocks a mutex that it has taken over") {
  Mutex mutex;
  if (mutex.try_lock()) {
    const MutexLock lock(mutex, std::adopt_lock);
    CHECK(is_locked(mutex));
  } else {
    FAIL("a new mutex is locked");
  }
  CHECK_FALSE(is_locked(mutex));
}

TEST_CASE("a wait releases the mutex, and holds it again when it returns") {
  Flag flag;
  std::thread setter;
  {
    const MutexLock lock(flag.mutex);
    setter = std::thread([&flag] {
      const MutexLock in_thread(flag.mutex);
      flag.set = true;
      flag.changed.notify_all();
    });
    SUBCASE("without a predicate") {
      while (!flag.set) flag.changed.wait(flag.mutex);
    }
    SUBCASE("with a predicate") {
      flag.changed.wait(flag.mutex, [&]() SLIME_REQUIRES(flag.mutex) { return flag.set; });
    }
    SUBCASE("with a bound") {
      CHECK(flag.changed.wait_for(flag.mutex, 1min, [&]() SLIME_REQUIRES(flag.mutex) { return flag.set; }));
    }
    SUBCASE("with a deadline") {
      while (!flag.set) flag.changed.wait_until(flag.mutex, std::chrono::steady_clock::now() + 1min);
    }
    CHECK(is_locked(flag.mutex));
  }
  setter.join();
}

TEST_CASE("a wait with a bound ends, and says that nothing has changed") {
  Flag flag;
  const MutexLock lock(flag.mutex);
  CHECK_FALSE(flag.changed.wait_for(flag.mutex, 1ms, [&]() SLIME_REQUIRES(flag.mutex) { return flag.set; }));
  CHECK(flag.changed.wait_until(flag.mutex, std::chrono::steady_clock::now()) == std::cv_status::timeout);
  CHECK(is_locked(flag.mutex));
}
