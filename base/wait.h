#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/mutex.h"

// Waits for many futures at once. The waiting thread makes progress for the futures' drivers, as in
// Future::wait(), and wakes once for a burst of futures that end together.
namespace slime {

namespace detail {

// The numbers of futures that have ended, and the thread that sleeps for them. Thread: any.
class Ended {
 public:
  // Notes that future `number` has ended. Wakes the sleeping thread only when as many futures have
  // ended as the thread waits for.
  void add(std::size_t number);
  [[nodiscard]] std::size_t count() const;
  // Returns the number of the future that ended as the `position`-th; `position` < count().
  [[nodiscard]] std::size_t at(std::size_t position) const;
  // Sleeps until `count` futures have ended, or until the deadline.
  void sleep(std::size_t count, TimePoint deadline);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::size_t> numbers_ SLIME_GUARDED_BY(mutex_);
  // The sleeping thread wakes when so many futures have ended; zero: no thread sleeps.
  std::size_t wake_at_ SLIME_GUARDED_BY(mutex_) = 0;
};

// The different drivers of the futures that a thread waits for.
class Drivers {
 public:
  // A null driver stands for futures that end without help from the waiting thread.
  void add(std::shared_ptr<Driver> driver);
  // Returns when done() is true or the deadline has passed. `sleep` waits for the same two events
  // until the deadline that it is given, and makes no progress.
  void wait(UniqueFunction<bool()> done, TimePoint deadline, UniqueFunction<void(TimePoint)> sleep) const;

 private:
  std::vector<std::shared_ptr<Driver>> all_;
  bool some_without_ = false;
};

}  // namespace detail

// Follows futures until they have ended. Takes no outcome: call wait() of a future that is done. An
// empty future counts as done. Adds at most one callback to each future, however often it waits, so
// a loop that takes futures one after the other uses one WaitSet and next(). F is Future<T>, or a
// type with done(), on_done(), driver() and valid() that mean the same. Thread: one at a time; the
// futures may end on any thread.
template <class F>
class WaitSet {
 public:
  explicit WaitSet(std::vector<F> futures) : futures_(std::move(futures)) {
    for (const F& future : futures_) {
      if (future.valid()) drivers_.add(future.driver());
    }
  }

  // Waits until all futures are done. Returns false on timeout. Do not call from a loop callback.
  bool wait_all(Nanos timeout = Nanos::max()) {
    // Each future is asked until it is done, and not again after that.
    const auto done = [this] {
      while (all_before_ < futures_.size() && is_done(all_before_)) ++all_before_;
      return all_before_ == futures_.size();
    };
    return wait(done, futures_.size(), timeout);
  }
  // Waits until a future is done. Returns the least number of a future that is done; nullopt on
  // timeout, or if there is no future. Do not call from a loop callback.
  std::optional<std::size_t> wait_any(Nanos timeout = Nanos::max()) {
    if (futures_.empty()) return std::nullopt;
    std::optional<std::size_t> found = first_done();
    if (found) return found;
    const auto done = [this, &found] { return (found = first_done()).has_value(); };
    wait(done, 1, timeout);
    return found;
  }
  // Waits for a future that next() has not returned yet. Returns the numbers in the order in which
  // the futures end, each once; nullopt on timeout, and when none is left. Do not call from a loop
  // callback.
  std::optional<std::size_t> next(Nanos timeout = Nanos::max()) {
    if (left() == 0) return std::nullopt;
    listen();
    const std::size_t wanted = taken_ + 1;
    if (!wait([this, wanted] { return ended_->count() >= wanted; }, wanted, timeout)) return std::nullopt;
    return ended_->at(taken_++);
  }
  // Returns how many futures next() has not returned yet.
  [[nodiscard]] std::size_t left() const { return futures_.size() - taken_; }
  [[nodiscard]] const std::vector<F>& futures() const { return futures_; }

 private:
  [[nodiscard]] bool is_done(std::size_t number) const {
    return !futures_[number].valid() || futures_[number].done();
  }
  [[nodiscard]] std::optional<std::size_t> first_done() const {
    for (std::size_t i = 0; i < futures_.size(); ++i) {
      if (is_done(i)) return i;
    }
    return std::nullopt;
  }
  // `count`: so many futures have ended when done() becomes true, or more.
  template <class Done>
  bool wait(Done done, std::size_t count, Nanos timeout) {
    if (done()) return true;
    const TimePoint deadline =
        timeout == Nanos::max() ? kNever : deadline_after(steady_clock().now(), timeout);
    // A thread that drives the futures' loop itself needs no callbacks: they are added when it has
    // to sleep.
    drivers_.wait(done, deadline, [this, count](TimePoint until) {
      listen();
      ended_->sleep(count, until);
    });
    return done();
  }
  void listen() {
    if (ended_) return;
    ended_ = std::make_shared<detail::Ended>();
    for (std::size_t i = 0; i < futures_.size(); ++i) {
      if (!futures_[i].valid()) {
        ended_->add(i);
        continue;
      }
      // weak: a future that never ends does not keep the numbers of the others
      futures_[i].on_done([ended = std::weak_ptr(ended_), i] {
        if (const auto told = ended.lock()) told->add(i);
      });
    }
  }

  const std::vector<F> futures_;
  detail::Drivers drivers_;
  std::size_t all_before_ = 0;            // every future before this one is done
  std::size_t taken_ = 0;                 // futures that next() has returned
  std::shared_ptr<detail::Ended> ended_;  // null: no future has a callback yet
};

// Waits until all futures are done, or for `timeout`. Returns whether all are done. Takes no
// outcome. Do not call from a loop callback.
template <class T>
bool wait_all(std::vector<Future<T>> futures, Nanos timeout = Nanos::max()) {
  return WaitSet<Future<T>>(std::move(futures)).wait_all(timeout);
}
// Waits until one of the futures is done, or for `timeout`. Returns the number of the first future
// in the list that is done; nullopt on timeout, or if the list is empty. Takes no outcome. Each
// call that has to sleep adds a callback to every future, which stays until the future ends: to
// take many futures one after the other, use as_completed(). Do not call from a loop callback.
template <class T>
std::optional<std::size_t> wait_any(std::vector<Future<T>> futures, Nanos timeout = Nanos::max()) {
  return WaitSet<Future<T>>(std::move(futures)).wait_any(timeout);
}

// Gives futures in the order in which they end:
//   AsCompleted calls = as_completed(std::move(futures), 5s);
//   while (std::optional<Future<int>> call = calls.next()) use(call->wait());
//   if (calls.left() > 0) ...  // these were not done within 5 s
// Thread: one at a time.
template <class T>
class AsCompleted {
 public:
  AsCompleted(std::vector<Future<T>> futures, Nanos timeout)
      : set_(std::move(futures)),
        deadline_(timeout == Nanos::max() ? kNever : deadline_after(steady_clock().now(), timeout)) {}

  // Waits for the next future that ends. Returns nullopt when none is left, and when the timeout
  // has passed since this object was made. Futures that are done are returned after that, too. Do
  // not call from a loop callback.
  std::optional<Future<T>> next() {
    const Nanos span = deadline_ == kNever ? Nanos::max() : deadline_ - steady_clock().now();
    const std::optional<std::size_t> number = set_.next(std::max(span, Nanos::zero()));
    if (!number) return std::nullopt;
    return set_.futures()[*number];
  }
  // Returns how many futures next() has not returned yet.
  [[nodiscard]] std::size_t left() const { return set_.left(); }

 private:
  WaitSet<Future<T>> set_;
  const TimePoint deadline_;
};

template <class T>
AsCompleted<T> as_completed(std::vector<Future<T>> futures, Nanos timeout = Nanos::max()) {
  return {std::move(futures), timeout};
}

}  // namespace slime
