#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

// Macros that state which lock guards which data. With clang's -Wthread-safety an access without
// the lock does not compile; other compilers ignore the macros.
#if defined(__clang__)
#define SLIME_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define SLIME_THREAD_SAFETY(attribute)
#endif

// On a class: its objects are locks; an object of a scoped capability holds a lock while it lives.
#define SLIME_CAPABILITY(kind) SLIME_THREAD_SAFETY(capability(kind))
#define SLIME_SCOPED_CAPABILITY SLIME_THREAD_SAFETY(scoped_lockable)
// On a data member or global variable: it is used only while `mutex` is held.
#define SLIME_GUARDED_BY(mutex) SLIME_THREAD_SAFETY(guarded_by(mutex))
// On a function or lambda: its caller holds the mutexes.
#define SLIME_REQUIRES(...) SLIME_THREAD_SAFETY(requires_capability(__VA_ARGS__))
// On a function: locks or unlocks the mutexes; without arguments, this object.
#define SLIME_ACQUIRE(...) SLIME_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define SLIME_TRY_ACQUIRE(...) SLIME_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define SLIME_RELEASE(...) SLIME_THREAD_SAFETY(release_capability(__VA_ARGS__))
// On a function: after the call clang assumes that the mutexes are held.
#define SLIME_ASSERT_HELD(...) SLIME_THREAD_SAFETY(assert_capability(__VA_ARGS__))
// On a function that clang cannot follow; a comment says why.
#define SLIME_NO_THREAD_SAFETY_ANALYSIS SLIME_THREAD_SAFETY(no_thread_safety_analysis)

namespace slime {

// std::mutex with the annotations that libstdc++'s std::mutex lacks. No extra cost.
class SLIME_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() SLIME_ACQUIRE() { mutex_.lock(); }
  [[nodiscard]] bool try_lock() SLIME_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() SLIME_RELEASE() { mutex_.unlock(); }
  // Tells clang that this thread holds the mutex, and does nothing at run time. For a lambda that
  // is called under the lock by code that does not know the mutex.
  void assert_held() const SLIME_ASSERT_HELD(this) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from its construction to its destruction, except between unlock() and lock().
class SLIME_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SLIME_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // Takes over a mutex that this thread has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t) SLIME_REQUIRES(mutex) : mutex_(mutex) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() SLIME_RELEASE() {
    if (held_) mutex_.unlock();
  }
  void lock() SLIME_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() SLIME_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// std::condition_variable for a Mutex. A wait releases the mutex, and holds it again when it
// returns. A predicate that reads guarded members says so:
// [this]() SLIME_REQUIRES(mutex_) { return done_; }
class CondVar {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  void wait(Mutex& mutex) SLIME_REQUIRES(mutex) {
    Held held(mutex);
    changed_.wait(held.lock);
  }
  template <class Predicate>
  void wait(Mutex& mutex, Predicate done) SLIME_REQUIRES(mutex) {
    Held held(mutex);
    changed_.wait(held.lock, std::move(done));
  }
  // With a predicate: returns its last value. Without: returns std::cv_status.
  template <class Time, class... Predicate>
  auto wait_until(Mutex& mutex, const Time& deadline, Predicate... done) SLIME_REQUIRES(mutex) {
    Held held(mutex);
    return changed_.wait_until(held.lock, deadline, std::move(done)...);
  }
  template <class Duration, class... Predicate>
  auto wait_for(Mutex& mutex, const Duration& bound, Predicate... done) SLIME_REQUIRES(mutex) {
    Held held(mutex);
    return changed_.wait_for(held.lock, bound, std::move(done)...);
  }

 private:
  // Lends the caller's lock to std::condition_variable.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace slime
