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
//
// A caller with many operations in flight drives again and again, and work arrives also between
// two of its waits. Once such work has woken the thread, the thread stays aside: it looks every
// `nap` whether a caller has driven since. Meanwhile callers arm nothing and wake no thread.
namespace slime::transport {
namespace {

// The last wait of this thread was long: it waits for bulk data, and probably will again.
thread_local bool expects_long_wait = false;

}  // namespace

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
  const int patient = expects_long_wait ? 1 : 0;
  patient_.fetch_add(patient, std::memory_order_relaxed);
  sleep();
  patient_.fetch_sub(patient, std::memory_order_relaxed);
  const Nanos slept = steady_clock().now() - began;
  expects_long_wait = slept >= limits::kLoopLongSleep;
  help_spin_.note_sleep(done() && slept < limits::kLoopSoon);
}

// Lets a waiting caller drive the loop for as long as spinning pays: a reply that comes soon then
// wakes no thread. Only one caller at a time does this, for all that wait; the others sleep.
void Loop::help(UniqueFunction<bool()>& done, TimePoint deadline) {
  if (manual_clock_ || done()) return;
  if (stopping_.load(std::memory_order_acquire) || !take_over(done)) return;
  helping_.store(Help::kShort, std::memory_order_relaxed);
  // Descriptors had events while a caller drove before. Each such event would wake the loop's
  // thread, which could not drive, so events do not wake the thread while this caller drives.
  if (std::exchange(fds_told_, false) && !aside_.on()) bed_.hear_fds(false);
  const TimePoint began = steady_now();
  const bool busy = spin_.idle(began) < limits::kLoopLongWait;
  spin_.restart(began);
  const Nanos usual = help_spin_.usual();
  const bool may_rest = pollers_.empty();
  const bool in_vain = may_rest && help_spin_.in_vain();
  bool rested = false;
  const auto spin = [this, usual, busy, in_vain] {
    // Bulk data pauses while the peer takes what the wire holds. If the loop had no work lately,
    // the others wait for something else, such as slow calls.
    if (busy && waits_for_bulk()) return limits::kLoopLongWait;
    if (spin_.expects()) return std::max(usual, limits::kLoopHelpSpin);
    return in_vain ? Nanos(1) : usual;
  };
  bool handed_over = false;
  while (!done() && steady_now() < deadline) {
    if (spin_.idle(steady_now()) >= spin()) {
      if (!may_rest || !rest(std::min(deadline, began + limits::kLoopHelpRest))) break;
      rested = true;
    }
    if (steady_now() - began >= limits::kLoopLongWait) {
      helping_.store(Help::kLong, std::memory_order_relaxed);
      handed_over = wanted_.load(std::memory_order_relaxed);
    }
    if (handed_over || stopping_.load(std::memory_order_acquire)) break;
    if (!look()) turn(kNever);
    aside_.note_help();
  }
  if (rested && done() && steady_now() - began < limits::kLoopSoon) help_spin_.note_sleep(true);
  if (may_rest && !in_vain) help_spin_.note_spin(!rested);
  // Another caller may sleep until lazily deferred work completes its operation.
  if (waiting_.load(std::memory_order_relaxed) > 1 && !deferrals_.empty()) deferrals_.hurry();
  run_last();
  helping_.store(Help::kNone, std::memory_order_relaxed);
  if (handed_over)
    expects_long_wait = true;
  else if (!done())
    aside_.leave();  // this caller is about to sleep
  end_drive();
}

// Sleeps in place of the loop's thread until the descriptors have an event or a task is posted.
// An event then wakes the caller alone. The loop's thread would have to wake the caller as well.
// Returns false if the caller should leave the loop to the thread: another caller may begin
// operations, or something is due within a millisecond.
bool Loop::rest(TimePoint until) {
  const Nanos left = std::min(until, next_timer()) - steady_now();
  const auto time = std::chrono::floor<std::chrono::milliseconds>(left);
  if (time <= Nanos::zero() || !deferrals_.empty() || waiting_.load(std::memory_order_relaxed) > 1)
    return false;
  if (bed_.hears_fds()) bed_.hear_fds(false);
  const Help before = helping_.exchange(Help::kRests, std::memory_order_seq_cst);
  const bool due = posted_.pending(std::memory_order_seq_cst) || stopping_.load(std::memory_order_seq_cst);
  if (take_events(due ? 0 : static_cast<int>(time.count()))) spin_.note_work();
  helping_.store(before, std::memory_order_relaxed);
  now_.reset();
  return true;
}

// Asks the driving thread to let this caller drive. The loop's thread does so when it has nothing
// to do, or beside bulk data; another caller does so in a long wait. Returns false at once if
// another caller drives that has not waited for long, after a few tries if the loop's thread stays
// busy, and after kLoopHandOver if the driving thread was expected to let go.
bool Loop::take_over(UniqueFunction<bool()>& done) {
  if (try_drive() || drive_beside_thread()) return true;
  const Help other = helping_.load(std::memory_order_relaxed);
  if (other == Help::kShort || other == Help::kRests) return false;
  wanted_.store(true, std::memory_order_relaxed);
  bool drives = false;
  const TimePoint until = steady_clock().now() + limits::kLoopHandOver;
  // The thread may need this core.
  for (int i = 0; !drives && !done(); ++i) {
    const bool lets_go = other == Help::kLong || aside_.on() || waits_for_bulk();
    if (i >= limits::kLoopHandOverYields && (!lets_go || steady_clock().now() >= until)) break;
    std::this_thread::yield();
    drives = try_drive();
  }
  wanted_.store(false, std::memory_order_relaxed);
  return drives;
}

bool Loop::borrow(bool alone) {
  if (posted_.pending() || !(try_drive() || drive_beside_thread())) return false;
  if (!has_thread()) return true;
  const bool early = posted_.pending() || (!aside_.on() && deferrals_.urgent());
  if (!early && (alone || aside_.helped() || aside_.on())) {
    if (!alone) aside_.note_many();
    runs_rest_ = alone && !deferrals_.urgent();  // earlier work may call users
    borrowed_ = true;
    return true;
  }
  end_drive();  // earlier work runs first
  return false;
}

// Tries to drive while the thread, which stays aside, looks for a moment. Returns whether this
// caller drives now.
bool Loop::drive_beside_thread() {
  bool drives = false;
  for (int i = 0; i < limits::kLoopAsideTries && !drives && aside_.on() && driven_ != this; ++i)
    drives = driver_.load(std::memory_order_relaxed) == std::thread::id{} && try_drive();
  return drives;
}

void Loop::give_back() {
  if (!has_thread()) return release_drive();
  if (runs_rest_) run_last();
  if (left_) aside_.leave();
  borrowed_ = left_ = false;
  end_drive();
}

// Runs deferred work in the caller, which takes less time than waking the loop's thread for it.
// Each step of bulk data defers the next one, so most of it is left to others.
void Loop::run_last() {
  const int most = waits_for_bulk() ? 1 : limits::kLoopLastTurns;
  for (int i = 0; deferrals_.urgent() && !left_ && i < most; ++i) deferrals_.run();
}

// Ends a caller's driving. Wakes the loop's thread if the caller leaves work that the sleeping
// thread does not know of.
void Loop::end_drive() {
  if (aside_.on()) {
    release_drive();
    if (posted_.pending(std::memory_order_seq_cst)) wake_.signal();
    return;
  }
  if (!bed_.hears_fds()) bed_.hear_fds(true);
  const bool unknown = deferrals_.urgent() || next_timer() < thread_until_ || !pollers_.arm() ||
                       stopping_.load(std::memory_order_seq_cst);
  release_drive();
  if (!unknown && !posted_.pending(std::memory_order_seq_cst)) return;
  if (blocked_.load(std::memory_order_seq_cst)) wake_.signal();
}

// Lets callers drive from here on: the loop's thread is about to sleep, and all pollers are armed.
void Loop::lend(TimePoint until) {
  thread_until_ = until;
  own_drive_.on = false;
  aside_.forget_help();
  bed_.hear_fds(true);
  release_drive();
}

// Lets a caller drive that asks for it, although there is work, as a caller in a long wait does: if
// another caller waits for bulk data, or waits, too, and this thread has driven for long.
void Loop::lend_busy() {
  const bool others = waiting_.load(std::memory_order_relaxed) > 1;
  const bool bulk = others && steady_now() - own_drive_.since >= limits::kLoopLongSleep;
  if (!waits_for_bulk() && !bulk) return;
  blocked_.store(true, std::memory_order_seq_cst);
  aside_.enter();
  lend(steady_now());
  nap(options_.nap);
  sleep_lent(true);
  blocked_.store(false, std::memory_order_seq_cst);
  now_.reset();
}

// Sleeps until an event or until thread_until_, then drives again. `at_once`: does not sleep.
// Computes the time left again before each sleep: a caller that stops driving does not wake the
// thread for a timer that is due after thread_until_.
void Loop::sleep_lent(bool at_once) {
  using std::chrono::milliseconds;
  constexpr auto kLongest = std::chrono::ceil<milliseconds>(limits::kLoopLongestSleep);
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(thread_until_ - steady_clock().now());
    const milliseconds time = std::exchange(at_once, false) ? milliseconds(0) : left;
    bed_.sleep(static_cast<int>(std::clamp(time, milliseconds(0), kLongest).count()));
    // If a caller drives, or drives again and again, tries again until this thread drives or
    // descriptors would wake it from sleep. While bed_.hears_fds() is false, this thread would
    // sleep through events of descriptors.
    Nanos pause = options_.nap;
    int looks = 0;
    bool woken = true;
    bool covers = false;  // a caller that drives looks at descriptors often, or they had no events lately
    bool worked = false;  // callers had left urgent work
    do {
      ++looks;
      if (try_drive()) {
        if (woken) wake_.drain();  // before the look at posted tasks, which are posted before a signal
        if (!aside_.decide(posted_.pending() || stopping_.load(std::memory_order_acquire))) {
          own_drive_.on = true;
          own_drive_.since = steady_clock().now();
          return;
        }
        covers = pollers_.empty() || !fds_told_;
        // Runs the work that callers have left, and lets pollers send what they hold back. Leaves
        // bulk data to the callers: this thread may run on the processor of the peer.
        const int sleepers = waiting_.load(std::memory_order_relaxed);
        if (sleepers > patient_.load(std::memory_order_relaxed)) {
          if (!wanted_.load(std::memory_order_relaxed)) turn(TimePoint{});  // looks at the descriptors, too
        } else if (sleepers == 0) {
          worked = deferrals_.urgent() && deferrals_.run();
          pollers_.poll();
        }
        if (aside_.take_many()) looks = 0;
        if (looks > limits::kLoopAsideLooks) return_to_bed();
        release_drive();
        if (posted_.pending(std::memory_order_seq_cst)) wake_.signal();
      }
      woken = nap(pause);
      // The caller that drives waits, too, but does not sleep. Counts it as one that needs this
      // thread where there may be events that it sees late.
      const int patient = patient_.load(std::memory_order_relaxed);
      const Help helping = helping_.load(std::memory_order_relaxed);
      const int drivers = (covers || patient > 0) && helping != Help::kNone ? 1 : 0;
      const bool needed =
          std::exchange(worked, false) || waiting_.load(std::memory_order_relaxed) > drivers + patient;
      const Nanos longest = patient > 0 ? limits::kLoopPatientNap : limits::kLoopLongestNap;
      const bool spare = !needed && (aside_.on() || helping == Help::kRests);
      pause = spare ? std::min(2 * pause, std::max(options_.nap, longest)) : options_.nap;
    } while (aside_.on() || !bed_.hears_fds() || stopping_.load(std::memory_order_acquire));
  }
}

// Lets the thread sleep again instead of looking every `nap`, if nothing would be lost: perhaps
// the callers have only one operation in flight now, whose reply finds them waiting.
void Loop::return_to_bed() {
  if (deferrals_.urgent() || !pollers_.arm()) return;
  thread_until_ = std::min(next_timer(), steady_clock().now() + limits::kLoopLongestSleep);
  bed_.hear_fds(true);
  aside_.end();
}

// Pauses the loop's thread while a caller drives. A signal of wake_ ends the pause, but leaves
// wake_ readable and the caller perhaps still driving: then the thread pauses for another moment.
// Returns whether there was a signal.
bool Loop::nap(Nanos time) const {
  if (!bed_.doze(time)) return false;
  if (driver_.load(std::memory_order_seq_cst) != std::thread::id{})
    std::this_thread::sleep_for(limits::kLoopNap);
  return true;
}

}  // namespace slime::transport
