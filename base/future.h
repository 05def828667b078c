#pragma once

#include <coroutine>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/future_state.h"
#include "base/result.h"

namespace slime {

// The outcome of an operation. Copies share the outcome. Dropping a future does not cancel the
// operation, except where the function that returned it says so (receives, reads of streams).
// Thread: any.
template <class T>
class [[nodiscard]] Future {
 public:
  Future() = default;
  // Takes over a future that was counted before. `take`: takes the outcome of its state.
  explicit Future(detail::FutureRef state,
                  Result<T> (*take)(detail::FutureCore&) = &detail::FutureState<T>::take)
      : state_(std::move(state)), take_(take) {}

  // Returns a future that is done. Not inlined: GCC 12 would warn that the value of an error is
  // uninitialized, although no path reads it.
  [[gnu::noinline]] static Future ready(Result<T> result) {
    auto* const state = new detail::PromiseState<T>(nullptr);
    state->begin_done(std::move(result));
    return Future{detail::FutureRef(state)};
  }

  // Waits for the outcome and takes it, once. After `timeout` returns kDeadlineExceeded with
  // Status::wait_timeout(); the operation goes on until its own deadline, and wait() may be called
  // again. Do not call from a loop callback.
  Result<T> wait(Nanos timeout = Nanos::max()) {
    if (!state_) return Status(Code::kInvalidArgument, "an empty future");
    if (!state_->wait_done(timeout)) return Status::wait_timed_out();
    return take_(*state_);
  }
  // Like wait(), but does not take the outcome. Returns false on timeout.
  bool wait_done(Nanos timeout) const { return state_ && state_->wait_done(timeout); }
  [[nodiscard]] bool done() const { return state_ && state_->done(); }
  [[nodiscard]] bool valid() const { return static_cast<bool>(state_); }
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
    SLIME_CHECK(state_);
    state_->on_done(std::move(task));
  }
  // Takes the outcome and calls fn(Result<T>) as soon as the future is done: now if it is done
  // already, else on the completing thread (the loop: be short, never wait there). Empties this
  // future.
  template <class F>
  void then(F fn) && {
    SLIME_CHECK(state_);
    detail::FutureCore& core = *state_;
    core.on_done(
        [state = std::move(state_), take = take_, fn = std::move(fn)]() mutable { fn(take(*state)); });
  }
  // Returns a future of make(outcome, state). `make` runs in the thread that takes the value; the
  // state has a label for error texts. Empties this future. Allocates nothing. Not for a future
  // that map() returned.
  template <class R, Result<R> (*make)(Result<T>&&, const detail::FutureCore&)>
  Future<R> map() && {
    SLIME_CHECK(state_ && take_ == &detail::FutureState<T>::take);
    return Future<R>(std::move(state_), [](detail::FutureCore& core) -> Result<R> {
      return static_cast<detail::FutureState<T>&>(core).take_with(
          [&core](Result<T>&& outcome) { return make(std::move(outcome), core); });
    });
  }

  // co_await future: resumes on the completing thread.
  auto operator co_await() && {
    struct Awaiter {
      detail::FutureRef state;
      Result<T> (*take)(detail::FutureCore&);
      [[nodiscard]] bool await_ready() const { return state->done(); }
      void await_suspend(std::coroutine_handle<> waiter) {
        const detail::FutureRef keep = state;  // resuming may destroy this awaiter
        keep->on_done([waiter] { waiter.resume(); });
      }
      Result<T> await_resume() { return take(*state); }
    };
    SLIME_CHECK(state_);
    return Awaiter{std::move(state_), take_};
  }

 private:
  detail::FutureRef state_;
  Result<T> (*take_)(detail::FutureCore&) = &detail::FutureState<T>::take;
};

// Completes a Future. A Promise that is dropped without completing completes its Future with
// kInternal, so that no thread waits for ever because of a bug. Thread: one at a time.
template <class T>
class Promise {
 public:
  explicit Promise(std::shared_ptr<Driver> driver = nullptr)
      : state_(new detail::PromiseState<T>(std::move(driver))) {}
  Promise(Promise&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Promise& operator=(Promise&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Promise() {
    if (state_ != nullptr) state_->abandon();
  }

  Future<T> future() const {
    state_->add_first_future();
    return Future<T>(detail::FutureRef(state_));
  }
  // Returns a future that does not lose a received message. cancel(), or dropping the last copy
  // (which cancels), destroys an outcome that was not taken. The destroyed outcome (a Delivery, or
  // the function given to complete_with()) returns its message. Call once, instead of future().
  Future<T> owning_future() const {
    state_->give_back_untaken();
    return future();
  }
  // Sets the label for error texts of a derived future, such as "calc.add". Call before future().
  void set_label(std::string label) { state_->set_label(std::move(label)); }
  bool complete(Result<T> result) { return state_->complete(std::move(result)); }
  bool complete(Status error) { return state_->fail(std::move(error)); }
  // Completes the future with the value of `make`, which runs in the thread that takes the outcome:
  // for work such as decoding that the completing thread (the loop) should not do.
  bool complete_with(UniqueFunction<Result<T>()> make) { return state_->complete_with(std::move(make)); }
  // Sets the function that Future::cancel() calls: at most once, on the cancelling thread. The
  // function is never called after completion has returned, but may run during completion, on
  // another thread. Completion drops the function.
  void on_cancel(Task cancel) { state_->set_cancel(std::move(cancel)); }

 private:
  detail::PromiseState<T>* state_;
};

}  // namespace slime
