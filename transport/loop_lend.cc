#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "transport/loop.h"

// How callers drive a loop whose thread sleeps. The loop's thread drives as long as it has work,
// and while it spins after that. Then it arms the pollers, lets callers drive, and sleeps. When a
// caller stops driving, the pollers must be armed and no work may be due before the thread wakes by
// itself; otherwise the caller wakes the thread.
namespace slime::transport {

void Loop::wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) {
  if (!has_thread()) return wait_until(std::move(done), deadline);
  SLIME_CHECK(!drives());
  waiting_.fetch_add(1, std::memory_order_relaxed);
  help(done, deadline);
  if (!done()) sleep_or_yield(done, deadline, sleep);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void Loop::sleep_or_yield(UniqueFunction<bool()>& done, TimePoint deadline, Task& sleep) {
  const TimePoint began = steady_clock().now();
  if (deadline - began < limits::kLoopShortestSleep) {
    while (!done() && steady_clock().now() < deadline) std::this_thread::yield();
    return;
  }
  sleep();
  // If the work was done soon after the caller fell asleep, spinning would have avoided the sleep:
  // the next wait spins for longer.
  const bool soon = done() && steady_clock().now() - began < limits::kLoopHelpSpin;
  help_spin_.store(soon ? limits::kLoopHelpSpin : options_.spin, std::memory_order_relaxed);
}

// Lets a waiting caller drive the loop for as long as spinning pays: a reply that comes soon then
// wakes no thread. Only one caller at a time does this. While several callers wait, the loop's
// thread serves all of them.
void Loop::help(UniqueFunction<bool()>& done, TimePoint deadline) {
  if (manual_clock_ || done()) return;
  const auto crowded = [this] { return waiting_.load(std::memory_order_relaxed) > 1; };
  const TimePoint now = steady_clock().now();
  if (stopping_.load(std::memory_order_acquire)) return;
  if (crowded()) return crowded_.store(now, std::memory_order_relaxed);
  if (now - crowded_.load(std::memory_order_relaxed) < limits::kLoopCrowded || !take_over(done)) return;
  helping_ = true;
  // Descriptors had events while a caller drove before. Each such event would wake the loop's
  // thread, which could not drive, so events do not wake the thread while this caller drives.
  if (std::exchange(fds_told_, false)) bed_.hear_fds(false);
  spin_.restart(steady_now());
  const Nanos spin = help_spin_.load(std::memory_order_relaxed);
  while (!done() && steady_now() < deadline && spin_.idle(steady_now()) < spin) {
    if (stopping_.load(std::memory_order_acquire)) break;
    if (crowded()) {
      crowded_.store(steady_now(), std::memory_order_relaxed);
      deferrals_.hurry();
      break;
    }
    if (!look()) turn(kNever);
  }
  if (!crowded()) run_last();
  helping_ = false;
  end_drive();
}

// Asks the loop's thread to let this caller drive, which the thread does when it has nothing to do.
// Returns false after a few tries if the thread stays busy.
bool Loop::take_over(UniqueFunction<bool()>& done) {
  if (try_drive()) return true;
  wanted_.store(true, std::memory_order_relaxed);
  bool drives = false;
  // The thread may need this core.
  for (int i = 0; i < limits::kLoopHandOverYields && !drives && !done(); ++i) {
    std::this_thread::yield();
    drives = try_drive();
  }
  wanted_.store(false, std::memory_order_relaxed);
  return drives;
}

bool Loop::borrow() {
  if (posted_.pending() || !try_drive()) return false;
  if (!has_thread()) return true;
  if (!posted_.pending() && !deferrals_.urgent()) {
    borrowed_ = true;
    return true;
  }
  end_drive();  // earlier work runs first
  return false;
}

void Loop::give_back() {
  if (!has_thread()) return release_drive();
  run_last();
  borrowed_ = left_ = false;
  end_drive();
}

// Runs deferred work in the caller, which takes less time than waking the loop's thread for it.
void Loop::run_last() {
  for (int i = 0; deferrals_.urgent() && !left_ && i < limits::kLoopLastTurns; ++i) deferrals_.run();
}

// Ends a caller's driving. Wakes the loop's thread if the caller leaves work that the sleeping
// thread does not know of.
void Loop::end_drive() {
  if (!bed_.hears_fds()) bed_.hear_fds(true);
  const bool unknown = deferrals_.urgent() || next_timer() < thread_until_ || !pollers_.arm();
  release_drive();
  if (!unknown && !posted_.pending(std::memory_order_seq_cst)) return;
  if (blocked_.load(std::memory_order_seq_cst)) wake_.signal();
}

// Lets callers drive from here on: the loop's thread is about to sleep, and all pollers are armed.
void Loop::lend(TimePoint until) {
  thread_until_ = until;
  by_thread_ = false;
  bed_.hear_fds(true);
  release_drive();
}

// Sleeps until an event or the timeout, then drives again. Computes the time left again after each
// wake-up, because a caller that stops driving does not wake the thread for a timer that the
// thread's timeout already covers.
void Loop::sleep_lent(int timeout_ms) {
  for (;;) {
    bed_.sleep(timeout_ms);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(thread_until_ - steady_clock().now());
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, timeout_ms));
    // If a caller drives, tries again until this thread drives or descriptors would wake it from
    // sleep. While bed_.hears_fds() is false, this thread would sleep through events of
    // descriptors.
    do {
      if (try_drive()) {
        by_thread_ = true;
        return;
      }
      nap();
    } while (!bed_.hears_fds() || stopping_.load(std::memory_order_acquire));
  }
}

// Pauses the loop's thread while a caller drives. A signal of wake_ ends the pause, but leaves
// wake_ readable and the caller perhaps still driving: so the thread pauses for another moment
// then.
void Loop::nap() const {
  if (wake_.wait(options_.nap)) std::this_thread::sleep_for(limits::kLoopNap);
}

}  // namespace slime::transport
