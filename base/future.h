#pragma once

#include <coroutine>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "base/function.h"
#include "base/mutex.h"
#include "base/result.h"

namespace slime {

// Makes progress in a thread that waits for a future, for example by driving a Loop.
class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;
  // Returns when done() is true or the deadline has passed. `sleep` waits for the same two events,
  // but makes no progress: a driver with a thread of its own may call it. Thread: any, several at
  // once; not from a loop callback.
  virtual void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) = 0;
};

namespace detail {

// State that a Promise and its Futures share. Completed exactly once.
template <class T>
class FutureState {
 public:
  explicit FutureState(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}

  // Completes the state. Returns false, and drops `result`, if the state was completed before.
  bool complete(Result<T> result) {
    return settle([&] {
      mutex_.assert_held();  // by settle()
      result_.emplace(std::move(result));
    });
  }
  // Completes the state now. `make` makes the outcome later, in the thread that takes the outcome.
  bool complete_with(UniqueFunction<Result<T>()> make) {
    return settle([&] {
      mutex_.assert_held();  // by settle()
      make_ = std::move(make);
    });
  }
  [[nodiscard]] bool done() const {
    const MutexLock lock(mutex_);
    return settled_;
  }
  [[nodiscard]] const std::shared_ptr<Driver>& driver() const { return driver_; }
  bool wait_done(Nanos timeout) {
    const TimePoint deadline =
        timeout == Nanos::max() ? kNever : deadline_after(steady_clock().now(), timeout);
    const auto sleep = [this, deadline] {
      const MutexLock lock(mutex_);
      const auto ready = [this]() SLIME_REQUIRES(mutex_) { return settled_; };
      if (deadline == kNever)
        changed_.wait(mutex_, ready);
      else
        changed_.wait_until(mutex_, deadline, ready);
    };
    if (driver_)
      driver_->wait([this] { return done(); }, deadline, sleep);
    else
      sleep();
    return done();
  }
  void on_done(Task callback) {
    {
      const MutexLock lock(mutex_);
      if (!settled_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }
  // Call only after done().
  Result<T> take() {
    UniqueFunction<Result<T>()> make;
    {
      const MutexLock lock(mutex_);
      SLIME_CHECK(settled_);
      if (taken_) return Status(Code::kInvalidArgument, "the result of this future was taken before");
      taken_ = true;
      if (result_) return std::move(*result_);
      make = std::move(make_);
    }
    return make();
  }
  void set_cancel(Task cancel) {
    const MutexLock lock(mutex_);
    // the function left in `cancel` is destroyed after the lock is released
    if (!settled_) std::swap(cancel_, cancel);
  }
  void cancel() {
    Task cancel;
    // outcome to destroy after the lock is released; it then returns its message
    std::optional<Result<T>> untaken;
    UniqueFunction<Result<T>()> unmade;
    {
      const MutexLock lock(mutex_);
      if (settled_) {
        if (!gives_back_ || taken_ || (result_ && !*result_)) return;
        std::swap(untaken, result_);
        std::swap(unmade, make_);
        result_.emplace(Status(Code::kCancelled, "cancelled before it was taken, and given back"));
        return;
      }
      cancelled_ = true;
      cancel = std::exchange(cancel_, Task());
    }
    if (cancel) cancel();
  }
  // Makes cancel() destroy an outcome that was not taken; the destroyed outcome returns its
  // message. Call before sharing the state.
  void give_back_untaken() { gives_back_ = true; }

 private:
  template <class F>
  bool settle(F store) {
    std::vector<Task> callbacks;
    // outcome of a cancelled future, to destroy after the lock is released
    std::optional<Result<T>> untaken;
    UniqueFunction<Result<T>()> unmade;
    Task cancel;  // destroyed after the lock is released: it may own the receiver of this outcome
    {
      const MutexLock lock(mutex_);
      if (settled_) return false;
      store();
      settled_ = true;
      if (cancelled_ && gives_back_ && !(result_ && !*result_)) {
        std::swap(untaken, result_);
        std::swap(unmade, make_);
        result_.emplace(Status(Code::kCancelled, "cancelled before it came, and given back"));
      }
      callbacks.swap(callbacks_);
      cancel = std::exchange(cancel_, Task());
    }
    changed_.notify_all();
    for (Task& callback : callbacks) callback();
    return true;
  }

  const std::shared_ptr<Driver> driver_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<Result<T>> result_ SLIME_GUARDED_BY(mutex_);
  // if set, makes the outcome when it is taken
  UniqueFunction<Result<T>()> make_ SLIME_GUARDED_BY(mutex_);
  std::vector<Task> callbacks_ SLIME_GUARDED_BY(mutex_);
  Task cancel_ SLIME_GUARDED_BY(mutex_);
  bool settled_ SLIME_GUARDED_BY(mutex_) = false;
  bool taken_ SLIME_GUARDED_BY(mutex_) = false;
  bool gives_back_ = false;  // set before the state is shared
  bool cancelled_ SLIME_GUARDED_BY(mutex_) = false;
};

// Owned by all copies of a future together: cancels the future when the last copy is dropped.
template <class T>
class CancelsWhenDropped {
 public:
  explicit CancelsWhenDropped(std::shared_ptr<FutureState<T>> state) : state_(std::move(state)) {}
  CancelsWhenDropped(const CancelsWhenDropped&) = delete;
  CancelsWhenDropped& operator=(const CancelsWhenDropped&) = delete;
  // Skips cancel() in a forked child: a thread of the parent may have held the state's lock at the
  // fork.
  ~CancelsWhenDropped() {
    if (process_ == fork_generation()) state_->cancel();
  }
  [[nodiscard]] FutureState<T>* state() const { return state_.get(); }

 private:
  const std::shared_ptr<FutureState<T>> state_;
  const std::uint64_t process_ = fork_generation();
};

}  // namespace detail

// The outcome of an operation. Copies share the outcome. Dropping a future does not cancel the
// operation, except where the function that returned it says so (receives, reads of streams).
// Thread: any.
template <class T>
class [[nodiscard]] Future {
 public:
  Future() = default;
  explicit Future(std::shared_ptr<detail::FutureState<T>> state) : state_(std::move(state)) {}

  // Returns a future that is done.
  static Future ready(Result<T> result) {
    auto state = std::make_shared<detail::FutureState<T>>(nullptr);
    state->complete(std::move(result));
    return Future(std::move(state));
  }

  // Waits for the outcome and takes it, once. After `timeout` returns kDeadlineExceeded with
  // Status::wait_timeout(); the operation goes on until its own deadline, and wait() may be called
  // again. Do not call from a loop callback.
  Result<T> wait(Nanos timeout = Nanos::max()) {
    if (!state_) return Status(Code::kInvalidArgument, "an empty future");
    if (!state_->wait_done(timeout)) return Status::wait_timed_out();
    return state_->take();
  }
  // Like wait(), but does not take the outcome. Returns false on timeout.
  bool wait_done(Nanos timeout) const { return state_ && state_->wait_done(timeout); }
  [[nodiscard]] bool done() const { return state_ && state_->done(); }
  [[nodiscard]] bool valid() const { return state_ != nullptr; }
  // Returns the driver for threads that wait for a future derived from this one. May be null.
  [[nodiscard]] std::shared_ptr<Driver> driver() const { return state_ ? state_->driver() : nullptr; }
  // Asks the operation to end early. The future still completes: with kCancelled, or with an
  // earlier outcome. A received message that was not taken returns to its queue, and the outcome is
  // kCancelled.
  void cancel() {
    if (state_) state_->cancel();
  }
  // Calls `task` as soon as the future is done: now if it is done already, else on the completing
  // thread (the loop: be short, never wait there). Does not take the outcome.
  void on_done(Task task) const {
    SLIME_CHECK(state_ != nullptr);
    state_->on_done(std::move(task));
  }
  // Takes the outcome and calls fn(Result<T>) as soon as the future is done: now if it is done
  // already, else on the completing thread (the loop: be short, never wait there). Empties this
  // future.
  template <class F>
  void then(F fn) && {
    SLIME_CHECK(state_ != nullptr);
    auto state = std::move(state_);
    auto* raw = state.get();
    raw->on_done([state = std::move(state), fn = std::move(fn)]() mutable { fn(state->take()); });
  }

  // co_await future: resumes on the completing thread.
  auto operator co_await() && {
    struct Awaiter {
      std::shared_ptr<detail::FutureState<T>> state;
      [[nodiscard]] bool await_ready() const { return state->done(); }
      void await_suspend(std::coroutine_handle<> waiter) {
        const auto keep = state;  // resuming may destroy this awaiter
        keep->on_done([waiter] { waiter.resume(); });
      }
      Result<T> await_resume() { return state->take(); }
    };
    SLIME_CHECK(state_ != nullptr);
    return Awaiter{std::move(state_)};
  }

 private:
  std::shared_ptr<detail::FutureState<T>> state_;
};

// Completes a Future. A Promise that is dropped without completing completes its Future with
// kInternal, so that no thread waits for ever because of a bug.
template <class T>
class Promise {
 public:
  explicit Promise(std::shared_ptr<Driver> driver = nullptr)
      : state_(std::make_shared<detail::FutureState<T>>(std::move(driver))) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&&) noexcept = default;
  ~Promise() {
    if (state_) state_->complete(Status(Code::kInternal, "a promise was dropped without an outcome"));
  }

  Future<T> future() const { return Future<T>(state_); }
  // Returns a future that does not lose a received message. cancel(), or dropping the last copy
  // (which cancels), destroys an outcome that was not taken. The destroyed outcome (a Delivery, or
  // the function given to complete_with()) returns its message. Call once, instead of future().
  Future<T> owning_future() const {
    state_->give_back_untaken();
    const auto owner = std::make_shared<detail::CancelsWhenDropped<T>>(state_);
    return Future<T>(std::shared_ptr<detail::FutureState<T>>(owner, owner->state()));
  }
  bool complete(Result<T> result) { return state_->complete(std::move(result)); }
  // Completes the future with the value of `make`, which runs in the thread that takes the outcome:
  // for work such as decoding that the completing thread (the loop) should not do.
  bool complete_with(UniqueFunction<Result<T>()> make) { return state_->complete_with(std::move(make)); }
  // Sets the function that Future::cancel() calls: at most once, on the cancelling thread. The
  // function is never called after completion has returned, but may run during completion, on
  // another thread. Completion drops the function.
  void on_cancel(Task cancel) { state_->set_cancel(std::move(cancel)); }

 private:
  std::shared_ptr<detail::FutureState<T>> state_;
};

}  // namespace slime
