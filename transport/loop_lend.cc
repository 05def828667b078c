#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "transport/loop.h"

// How callers drive a loop that has a thread, while that thread sleeps. The thread holds the drive
// as long as it has work, and for as long as it spins after that. Then it arms the pollers, lends
// the drive and blocks. A caller that takes the drive must leave the loop as the thread believes it
// to be: armed, and with nothing to do before the thread wakes by itself. Else the caller wakes the
// thread.
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
  // If the work was done soon after the caller fell asleep, the next wait spins for longer.
  const bool soon = done() && steady_clock().now() - began < limits::kLoopHelpSpin;
  help_spin_.store(soon ? limits::kLoopHelpSpin : options_.spin, std::memory_order_relaxed);
}

// Drives for as long as spinning pays: a reply that comes soon then wakes no thread. One caller at
// a time does this; while several wait, the thread serves them all.
void Loop::help(UniqueFunction<bool()>& done, TimePoint deadline) {
  if (manual_clock_ || done()) return;
  const auto crowded = [this] { return waiting_.load(std::memory_order_relaxed) > 1; };
  const TimePoint now = steady_clock().now();
  if (stopping_.load(std::memory_order_acquire)) return;
  if (crowded()) return crowded_.store(now, std::memory_order_relaxed);
  if (now - crowded_.load(std::memory_order_relaxed) < limits::kLoopCrowded || !take_over(done)) return;
  helping_ = true;
  // Descriptors had events in the last drive: from now on, each event would wake the thread, which
  // would find this caller driving.
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

// Asks the thread for the drive, which it gives up when it has nothing to do. Does not wait for a
// thread that stays busy.
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

// Runs deferred work here: that takes less time than waking the thread.
void Loop::run_last() {
  for (int i = 0; deferrals_.urgent() && !left_ && i < limits::kLoopLastTurns; ++i) deferrals_.run();
}

// Ends a caller's drive. Wakes the thread if the caller leaves work that the sleeping thread does
// not know of.
void Loop::end_drive() {
  if (!bed_.hears_fds()) bed_.hear_fds(true);
  const bool unknown = deferrals_.urgent() || next_timer() < thread_until_ || !pollers_.arm();
  release_drive();
  if (!unknown && !posted_.pending(std::memory_order_seq_cst)) return;
  if (blocked_.load(std::memory_order_seq_cst)) wake_.signal();
}

// Lends the drive: the thread is about to block, and everything is armed.
void Loop::lend(TimePoint until) {
  thread_until_ = until;
  by_thread_ = false;
  bed_.hear_fds(true);
  release_drive();
}

// Sleeps until an event or the timeout, then takes the drive. Recomputes the time left after each
// wake-up: a helper does not wake the thread for the timer that it sleeps for.
void Loop::sleep_lent(int timeout_ms) {
  for (;;) {
    bed_.sleep(timeout_ms);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(thread_until_ - steady_clock().now());
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, timeout_ms));
    // The bed may have taken its one event of the descriptors. Then this thread tries again until
    // it drives, or until the driver has made the bed wait for descriptors again.
    do {
      if (try_drive()) {
        by_thread_ = true;
        return;
      }
      nap();
    } while (!bed_.hears_fds() || stopping_.load(std::memory_order_acquire));
  }
}

// Pauses the thread while a caller drives. A wake-up ends the pause. That caller may still drive
// then, and the wake-up stays readable, so the thread waits for a moment before it tries again.
void Loop::nap() const {
  if (wake_.wait(options_.nap)) std::this_thread::sleep_for(limits::kLoopNap);
}

}  // namespace slime::transport
