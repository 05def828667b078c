#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "transport/loop.h"

// How callers drive a loop that has a thread of its own, while that thread sleeps. The thread holds the drive
// as long as it has work, and for as long as it spins after that. Then it arms the pollers, lends the drive
// and blocks; from there on whoever takes the drive must leave the loop as the thread believes it to be:
// armed, and with nothing to do before it wakes by itself. Else it wakes the thread.
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
  // If it was done soon after the caller fell asleep, the next wait looks for longer.
  const bool soon = done() && steady_clock().now() - began < limits::kLoopHelpSpin;
  help_spin_.store(soon ? limits::kLoopHelpSpin : options_.spin, std::memory_order_relaxed);
}

// Drives for as long as it pays to spin: a reply that comes soon then wakes nobody. One at a time, and nobody
// while several wait: the thread serves them all.
void Loop::help(UniqueFunction<bool()>& done, TimePoint deadline) {
  if (manual_clock_ || done()) return;
  const auto crowded = [this] { return waiting_.load(std::memory_order_relaxed) > 1; };
  const TimePoint now = steady_clock().now();
  if (stopping_.load(std::memory_order_acquire)) return;
  if (crowded()) return crowded_.store(now, std::memory_order_relaxed);
  if (now - crowded_.load(std::memory_order_relaxed) < limits::kLoopCrowded || !take_over(done)) return;
  helping_ = true;
  if (std::exchange(fds_told_, false)) tell_thread(false);  // as in the last drive, each would wake it
  progressed_ = false;
  last_progress_ = steady_now();
  const Nanos spin = help_spin_.load(std::memory_order_relaxed);
  while (!done() && steady_now() < deadline && steady_now() - last_progress_ < spin) {
    if (stopping_.load(std::memory_order_acquire)) break;
    if (crowded()) {
      crowded_.store(steady_now(), std::memory_order_relaxed);
      urgent_ = true;
      break;
    }
    if (!look()) turn(kNever);
  }
  if (!crowded()) run_last();
  helping_ = false;
  end_drive();
}

// The thread lets go when it finds nothing to do. A busy one is better left alone.
bool Loop::take_over(UniqueFunction<bool()>& done) {
  if (try_drive()) return true;
  wanted_.store(true, std::memory_order_relaxed);
  bool drives = false;
  // It may be on our own core.
  for (int i = 0; i < limits::kLoopHandOverYields && !drives && !done(); ++i) {
    std::this_thread::yield();
    drives = try_drive();
  }
  wanted_.store(false, std::memory_order_relaxed);
  return drives;
}

bool Loop::borrow() {
  if (has_posted_.load(std::memory_order_acquire) || !try_drive()) return false;
  if (!has_thread()) return true;
  if (!has_posted_.load(std::memory_order_acquire) && !urgent_) {
    borrowed_ = true;
    return true;
  }
  end_drive();  // what was there before runs before
  return false;
}

void Loop::give_back() {
  if (!has_thread()) return release_drive();
  run_last();
  borrowed_ = left_ = false;
  end_drive();
}

// What this drive has left to do is done sooner than the thread is awake.
void Loop::run_last() {
  for (int i = 0; urgent_ && !left_ && i < limits::kLoopLastTurns; ++i) run_deferred();
}

// The end of a drive by a caller, who may have left what the thread, if it sleeps, does not know of.
void Loop::end_drive() {
  if (!hears_fds_.load(std::memory_order_seq_cst)) tell_thread(true);
  const bool unknown = urgent_ || next_timer() < thread_until_ || !arm_pollers();
  release_drive();
  if (!unknown && !has_posted_.load(std::memory_order_seq_cst)) return;
  if (blocked_.load(std::memory_order_seq_cst)) wake();
}

// The thread is about to block, with everything armed.
void Loop::lend(TimePoint until) {
  thread_until_ = until;
  by_thread_ = false;
  tell_thread(true);
  release_drive();
}

// Of the first thing that descriptors have: a thread which was woken by what a helper is at goes back to
// sleep.
void Loop::tell_thread(bool of_fds) {
  hears_fds_.store(of_fds, std::memory_order_seq_cst);
  epoll_event event{};
  event.events = of_fds ? EPOLLIN | EPOLLONESHOT : 0;
  event.data.fd = epoll_.get();
  SLIME_CHECK(epoll_ctl(bed_.get(), EPOLL_CTL_MOD, epoll_.get(), &event) == 0);
}

// Sleeps until an event or the timeout, then takes the drive. Recomputes the time left after each
// wake-up: a helper does not wake the thread for the timer that it sleeps for.
void Loop::sleep_lent(int timeout_ms) {
  std::array<epoll_event, 2> events;
  for (;;) {
    const int n = epoll_wait(bed_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int i = 0; i < n; ++i) {
      if (events[static_cast<std::size_t>(i)].data.fd == epoll_.get())
        hears_fds_.store(false, std::memory_order_seq_cst);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(thread_until_ - steady_clock().now());
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, timeout_ms));
    // Whoever drives sees to it that we are told again, unless that was too late for it.
    do {
      if (try_drive()) {
        by_thread_ = true;
        return;
      }
      nap();
    } while (!hears_fds_.load(std::memory_order_seq_cst) || stopping_.load(std::memory_order_acquire));
  }
}

// Pauses the thread while a caller drives. A wake-up ends the pause. That caller may still drive then, and
// the wake-up stays readable, so the thread waits for a moment before it tries again.
void Loop::nap() const {
  pollfd woken{wake_.get(), POLLIN, 0};
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(options_.nap);
  const timespec time{whole.count(), (options_.nap - whole).count()};
  if (::ppoll(&woken, 1, &time, nullptr) > 0) std::this_thread::sleep_for(limits::kLoopNap);
}

}  // namespace slime::transport
