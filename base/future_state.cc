#include "base/future_state.h"

#include <utility>

#include "base/check.h"
#include "base/fork.h"

namespace slime::detail {

// Wakes the threads that sleep, without the lock, which a woken thread takes first.
void FutureCore::wake(CondVar& sleepers) {
  if (late_.depth == 0) return sleepers.notify_all();
  if (late_.count == late_.futures.size()) wake_all();
  if (late_.count == 0) late_.process = fork_generation();
  holders_.fetch_add(1, std::memory_order_relaxed);
  late_.futures[late_.count++] = this;
}

void FutureCore::wake_all() {
  const std::size_t count = std::exchange(late_.count, 0);
  if (late_.process != fork_generation()) return;  // their threads are in the parent process
  // A copy: destroying an outcome may complete other futures.
  const std::array<FutureCore*, kLateWakes> futures = late_.futures;
  for (std::size_t i = 0; i < count; ++i) {
    futures[i]->changed_->notify_all();
    futures[i]->drop_holder();
  }
}

bool FutureCore::wait_done(Nanos timeout) {
  if (done()) return true;
  const TimePoint deadline = timeout == Nanos::max() ? kNever : deadline_after(steady_clock().now(), timeout);
  if (driver_ && drives_) {
    driver_->wait([this] { return done(); }, deadline, [this, deadline] { sleep(deadline); });
  } else {
    sleep(deadline);
  }
  return done();
}

bool FutureCore::sleep(TimePoint deadline) {
  wake_sleepers();
  const MutexLock lock(mutex_);
  if ((word_.fetch_or(kLocked, std::memory_order_acq_rel) & kSettled) != 0) return true;
  const auto ready = [this] { return done(); };
  if (!changed_) changed_.emplace();
  if (deadline != kNever) return changed_->wait_until(mutex_, deadline, ready);
  changed_->wait(mutex_, ready);
  return true;
}

void FutureCore::on_done(Task callback) {
  if (!done()) {
    if ((word_.fetch_or(kSlot, std::memory_order_acq_rel) & kSlot) == 0) {
      callback_ = std::move(callback);
      if ((word_.fetch_or(kCallback, std::memory_order_acq_rel) & kSettled) == 0) return;
      callback = std::move(callback_);  // settled meanwhile, by a thread that saw no callback
    } else {
      const MutexLock lock(mutex_);
      if ((word_.fetch_or(kLocked, std::memory_order_acq_rel) & kSettled) == 0) {
        more_.push_back(std::move(callback));
        return;
      }
    }
  }
  callback();
}

void FutureCore::settle(bool failed) {
  std::uint32_t word = word_.load(std::memory_order_acquire);
  for (;;) {
    std::uint32_t next = word | kSettled | (failed ? kFailed : 0);
    // A cancelled future gives its outcome back, so no thread may take it from here on.
    const bool gives_back = gives_back_ && !failed && (word & kCancelled) != 0;
    if (gives_back) next |= kTaken | kGivenBack;
    if (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    if (gives_back) drop_outcome();
    break;
  }
  if ((word & (kCallback | kLocked)) != 0) tell(word);
}

// Tells the threads and callbacks that wait. `word`: before the outcome became visible.
void FutureCore::tell(std::uint32_t word) {
  std::vector<Task> more;
  Task cancel;  // destroyed after the lock is released: it may own the receiver of this outcome
  if ((word & kLocked) != 0) {
    {
      const MutexLock lock(mutex_);
      more.swap(more_);
      cancel = std::exchange(cancel_, Task());
    }
    if (changed_) wake(*changed_);
  }
  if ((word & kCallback) == 0 && more.empty()) return;
  const OutsideBurst outside;
  if ((word & kCallback) != 0) {
    Task callback = std::move(callback_);
    callback();
  }
  for (Task& callback : more) callback();
}

FutureCore::Take FutureCore::claim() {
  const std::uint32_t before = word_.fetch_or(kTaken, std::memory_order_acq_rel);
  SLIME_CHECK((before & kSettled) != 0);
  if ((before & kTaken) == 0) return Take::kNow;
  return (before & kGivenBack) != 0 ? Take::kGivenBack : Take::kTwice;
}

// ------------------------------------------------------------------------------------- cancelling

void FutureCore::set_cancel(Task cancel) {
  const MutexLock lock(mutex_);
  if ((word_.fetch_or(kLocked, std::memory_order_acq_rel) & kSettled) != 0) return;
  // the function left in `cancel` is destroyed after the lock is released
  std::swap(cancel_, cancel);
}

void FutureCore::give_back_untaken() {
  gives_back_ = true;
  process_ = fork_generation();
}

void FutureCore::cancel() {
  std::uint32_t word = word_.load(std::memory_order_acquire);
  for (;;) {
    std::uint32_t next = word | kCancelled;
    if ((word & kSettled) != 0) {
      if (!gives_back_ || (word & (kTaken | kFailed)) != 0) return;
      next = word | kTaken | kGivenBack;
    }
    if (word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire)) break;
  }
  if ((word & kSettled) != 0) {
    drop_outcome();
  } else if ((word & kCancelled) == 0) {
    ask_to_cancel();
  }
}

void FutureCore::ask_to_cancel() {
  Task cancel;
  {
    const MutexLock lock(mutex_);
    cancel = std::exchange(cancel_, Task());
  }
  if (cancel) cancel();
}

// --------------------------------------------------------------------------------------- ownership

void FutureCore::add_first_future() {
  // Only the producer has the state, so no other thread changes the counts.
  if (holders_.load(std::memory_order_acquire) == 1 && futures_.load(std::memory_order_relaxed) == 0) {
    futures_.store(1, std::memory_order_relaxed);
    holders_.store(2, std::memory_order_relaxed);
    return;
  }
  if (futures_.fetch_add(1, std::memory_order_relaxed) == 0) holders_.fetch_add(1, std::memory_order_relaxed);
}

void FutureCore::drop_future() {
  // The last future, after the producer has left: no other thread has the state.
  if (!gives_back_ && holders_.load(std::memory_order_acquire) == 1 &&
      futures_.load(std::memory_order_acquire) == 1)
    return destroy();
  if (futures_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Not in a child of fork(): a thread of the parent may have held a lock of the outcome.
  if (gives_back_ && process_ == fork_generation()) {
    futures_.fetch_add(1, std::memory_order_relaxed);  // cancel() may copy the future
    cancel();
    if (futures_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  }
  drop_holder();
}

void FutureCore::drop_holder() {
  if (holders_.load(std::memory_order_acquire) == 1 || holders_.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy();
}

}  // namespace slime::detail
