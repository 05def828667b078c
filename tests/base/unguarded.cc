// Compiled by tests that expect an error of clang's -Wthread-safety; not part of any program.
#include "base/mutex.h"

namespace {

class Counter {
 public:
  void increment() {
    const slime::MutexLock lock(mutex_);
    ++value_;
    changed_.notify_all();
  }
  void wait_for_one() {
    const slime::MutexLock lock(mutex_);
    changed_.wait(mutex_, [this]() SLIME_REQUIRES(mutex_) { return positive(); });
  }
  int take() {
    slime::MutexLock lock(mutex_);
    const int before = value_;
    lock.unlock();
    const int step = before / 2;
    lock.lock();
    value_ -= step;
    return step;
  }
  bool try_reset() {
    if (!mutex_.try_lock()) return false;
    const slime::MutexLock lock(mutex_, std::adopt_lock);
    value_ = 0;
    return true;
  }
  template <class F>
  static bool call(const F& f) {
    return f();
  }
  bool positive_in_a_lambda() {
    const slime::MutexLock lock(mutex_);
    return call([this] {
      mutex_.assert_held();
      return positive();
    });
  }

#if SLIME_CASE == 1
  int read() const { return value_; }
#elif SLIME_CASE == 2
  bool calls_what_needs_the_lock() const { return positive(); }
#elif SLIME_CASE == 3
  void writes_after_unlock() {
    slime::MutexLock lock(mutex_);
    lock.unlock();
    value_ = 0;
  }
#elif SLIME_CASE == 4
  void waits_without_the_lock() { changed_.wait(mutex_); }
#elif SLIME_CASE == 5
  void waits_with_a_predicate_that_does_not_say() {
    const slime::MutexLock lock(mutex_);
    changed_.wait(mutex_, [this] { return value_ > 0; });
  }
#elif SLIME_CASE == 6
  void leaves_it_locked() { mutex_.lock(); }
#endif

 private:
  bool positive() const SLIME_REQUIRES(mutex_) { return value_ > 0; }

  mutable slime::Mutex mutex_;
  slime::CondVar changed_;
  int value_ SLIME_GUARDED_BY(mutex_) = 0;
};

[[maybe_unused]] bool use(Counter& counter) {
  counter.increment();
  counter.wait_for_one();
  return counter.take() == 0 && counter.try_reset() && counter.positive_in_a_lambda();
}

}  // namespace
