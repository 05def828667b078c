#include "transport/loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/thread.h"

namespace slime::transport {

using slime::detail::FutureCore;

Result<std::shared_ptr<Loop>> Loop::create(LoopOptions options) {
  Result<WakeUp> wake = WakeUp::create();
  if (!wake) return wake.error();
  Result<WatchedFds> fds = WatchedFds::create(*wake);
  if (!fds) return fds.error();
  Result<UniqueFd> bed = Bed::open(*wake, *fds);
  if (!bed) return bed.error();
  return std::shared_ptr<Loop>(new Loop(options, std::move(*wake), std::move(*fds), std::move(*bed)));
}

Loop::Loop(LoopOptions options, WakeUp wake, WatchedFds fds, UniqueFd bed)
    : options_(options),
      wake_(std::move(wake)),
      fds_(std::move(fds)),
      bed_(std::move(bed), fds_),
      manual_clock_(dynamic_cast<const ManualClock*>(options.clock) != nullptr),
      steady_(options.clock == &steady_clock()),
      help_spin_(options.spin),
      spin_(options.spin, options.max_spin) {}

Loop::~Loop() {
  stop();
  while (posted_.run() || deferrals_.run()) {
  }
}

// ----------------------------------------------------------------------------------------- driving

bool Loop::nobody_else_drives() const {
  const std::thread::id driver = driver_.load(std::memory_order_acquire);
  return driver == std::this_thread::get_id() || (driver == std::thread::id{} && !has_thread());
}

bool Loop::try_drive() {
  std::thread::id nobody{};
  if (!driver_.compare_exchange_strong(nobody, std::this_thread::get_id(), std::memory_order_acq_rel))
    return false;
  outer_ = std::exchange(driven_, this);
  FutureCore::begin_burst();
  now_.reset();
  return true;
}

void Loop::release_drive() {
  driven_ = std::exchange(outer_, nullptr);
  FutureCore::end_burst();
  driver_.store(std::thread::id{}, std::memory_order_seq_cst);
  drive_queue_.notify();
  FutureCore::wake_sleepers();
}

TimePoint Loop::now() const {
  if (manual_clock_ || !drives()) return options_.clock->now();
  if (!now_) now_ = options_.clock->now();
  return *now_;
}

// Returns the steady clock's time, even if the loop has another clock. Call on the thread that
// drives the loop.
TimePoint Loop::steady_now() const { return steady_ ? now() : steady_clock().now(); }

void Loop::post(Task task) {
  // The task that came first has woken the thread for all that wait.
  if (!posted_.add(std::move(task))) return;
  if (!blocked_.load(std::memory_order_seq_cst)) return;
  // Signals nothing if a caller drives in place of the thread and is awake: that caller looks for
  // posted work before it leaves.
  if (has_thread() && driver_.load(std::memory_order_seq_cst) != std::thread::id{} &&
      helping_.load(std::memory_order_seq_cst) != Help::kRests)
    return;
  wake_.signal();
}

void Loop::dispatch(Task task) {
  if (driver_.load(std::memory_order_acquire) == std::this_thread::get_id()) {
    task();
    return;
  }
  if (!has_thread() && try_drive()) {
    posted_.run();  // runs tasks that this thread posted earlier first, to keep their order
    task();
    release_drive();
    return;
  }
  post(std::move(task));
}

bool Loop::poll(Nanos budget) {
  const bool nested = driver_.load(std::memory_order_acquire) == std::this_thread::get_id();
  // poll() must not be called inside a callback, because it would run callbacks inside a callback
  SLIME_CHECK(!nested);
  if (!try_drive()) return false;
  bool ran = false;
  if (budget <= Nanos::zero()) {
    ran = turn(TimePoint{});
  } else {
    const TimePoint until = deadline_after(steady_now(), budget);
    do {
      ran = turn(until);
    } while (!ran && !manual_clock_ && steady_now() < until);
  }
  release_drive();
  return ran;
}

void Loop::wait_until(UniqueFunction<bool()> done, TimePoint deadline) {
  SLIME_CHECK(driver_.load(std::memory_order_acquire) != std::this_thread::get_id());
  for (;;) {
    if (done()) return;
    const bool threaded = has_thread();
    const bool drives = !threaded && try_drive();
    if (drives && look()) {
      release_drive();
      continue;
    }
    const TimePoint now = drives ? steady_now() : steady_clock().now();
    if (now < deadline) {
      // Drives for a short time only, so that other waiting threads can check whether their work is
      // done.
      const TimePoint until = std::min(deadline, now + limits::kLoopWaitTurn);
      if (drives)
        turn(until);
      else
        wait_for_drive(until, threaded);
    }
    if (drives) release_drive();
    if (now >= deadline) return;
  }
}

// Runs the pollers alone, without looking at the clock, the timers and the descriptors. Returns
// true if there was work. Every kLoopLooks-th call returns false, so that a whole turn follows.
bool Loop::look() {
  if (manual_clock_ || pollers_.empty() || !deferrals_.empty() || ++looks_ % limits::kLoopLooks == 0)
    return false;
  FutureCore::wake_sleepers();  // of the poll before: the caller goes on, since it has no answer yet
  if (!pollers_.poll()) {
    FutureCore::wake_sleepers();
    return false;
  }
  now_.reset();
  spin_.note_work();
  return true;
}

// Waits until the thread that drives leaves the loop, or until `until`. `threaded`: the loop has a
// thread; then waits even if no thread drives, because no event reports that the caller's work is
// done.
void Loop::wait_for_drive(TimePoint until, bool threaded) {
  drive_queue_.wait(until,
                    [&] { return threaded || driver_.load(std::memory_order_seq_cst) != std::thread::id{}; });
}

void Loop::start_thread() {
  if (has_thread_.exchange(true, std::memory_order_acq_rel)) return;
  stopping_.store(false, std::memory_order_release);
  thread_ = make_thread([this] { thread_main(); });
}

void Loop::thread_main() {
  // A caller that drove before start_thread() may still be inside its last turn.
  while (!try_drive()) wait_for_drive(steady_clock().now() + limits::kLoopWaitTurn, false);
  own_drive_.on = true;
  while (!stopping_.load(std::memory_order_acquire)) {
    turn(kNever);
    if (lends()) lend_busy();
  }
  while (posted_.run() || deferrals_.run()) {
  }
  own_drive_.on = false;
  release_drive();
}

void Loop::stop() {
  if (!has_thread()) return;
  SLIME_CHECK(thread_.get_id() != std::this_thread::get_id());
  stopping_.store(true, std::memory_order_seq_cst);
  wake_.signal();
  if (thread_.joinable()) thread_.join();
  has_thread_.store(false, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------ a turn

// Runs everything that is due. If nothing is due, waits for work until `block_until` (on the steady
// clock; zero: does not wait). Returns whether anything ran.
bool Loop::turn(TimePoint block_until) {
  bool ran = posted_.run();
  ran = deferrals_.run() || ran;
  if (ran) now_.reset();
  if (!timers_.empty() && timers_.run_due(now())) {
    now_.reset();
    ran = true;
  }
  ran = pollers_.poll() || ran;
  FutureCore::wake_sleepers();  // before this thread polls on without work
  if (!pollers_.empty()) {
    // Polls many times before it looks at the descriptors: running the pollers costs far less than
    // that system call.
    const bool may_wait = !manual_clock_ && block_until != TimePoint{};
    for (int i = 0; may_wait && !ran && i < limits::kLoopPolls && !posted_.pending() && !lends(); ++i)
      ran = pollers_.poll();
    FutureCore::wake_sleepers();
    if (ran) {
      const TimePoint now = manual_clock_ ? TimePoint{} : steady_now();
      if (own_drive_.yield(now)) now_.reset();
      if (fd_pace_.skip_busy(now)) {
        now_.reset();
        spin_.note_work();
        return true;
      }
    } else if (may_wait) {
      // No poller had work. A look at the descriptors in each of these turns would cost too much,
      // too.
      now_.reset();
      const TimePoint now = steady_now();
      spin_.update(now);
      if (spin_.idle(now) >= limits::kLoopYieldAfter) {
        std::this_thread::yield();
        now_.reset();  // others may have run for long
      }
      if (spin_.spins(now) && fd_pace_.recent(now) && !lends()) return false;
    }
    fd_pace_.begin_look();
  }
  if (ran) now_.reset();
  ran = wait_fds(ran ? TimePoint{} : block_until) || ran;
  now_.reset();
  if (ran) spin_.note_work();
  return ran;
}

bool Loop::OwnDrive::yield(TimePoint now) {
  if (!on || now - yielded_at < limits::kLoopBusyYield) return false;
  yielded_at = now;
  std::this_thread::yield();
  return true;
}

bool Loop::wait_fds(TimePoint block_until) {
  int timeout_ms = 0;
  bool may_block = false;
  TimePoint until{};
  if (!manual_clock_ && block_until != TimePoint{}) {
    const TimePoint now = steady_now();
    fd_pace_.note_look(now);
    spin_.update(now);
    until = std::min(block_until, next_timer());
    if (own_drive_.on) until = std::min(until, now + limits::kLoopLongestSleep);
    const bool rests =
        (!spin_.spins(now) || lends()) && helping_.load(std::memory_order_relaxed) == Help::kNone;
    if (rests && until > now && deferrals_.empty() && pollers_.arm() && deferrals_.empty()) {
      may_block = true;
      const auto wait =
          std::chrono::ceil<std::chrono::milliseconds>(until == kNever ? Nanos::max() : until - now);
      timeout_ms = until == kNever ? -1 : static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000));
    }
  }
  const bool lent = may_block && own_drive_.on;
  if (may_block) {
    blocked_.store(true, std::memory_order_seq_cst);
    if (lent) lend(until);
    if (posted_.pending(std::memory_order_seq_cst) || stopping_.load(std::memory_order_seq_cst))
      timeout_ms = 0;
  }
  if (lent) {
    sleep_lent(timeout_ms == 0);
    timeout_ms = 0;
  }
  const bool ran = take_events(timeout_ms);
  if (may_block) blocked_.store(false, std::memory_order_seq_cst);
  return ran;
}

// Waits for events of the descriptors and handles them. Returns whether there was one.
bool Loop::take_events(int timeout_ms) {
  WatchedFds::Ready ready;
  fds_.wait(ready, timeout_ms);
  if (timeout_ms != 0) now_.reset();
  if (ready.count > 0) {
    fds_told_ = true;
    fd_pace_.note_events(steady_now());
    bed_.forget_fds();
  }
  const bool ran = fds_.dispatch(ready, wake_);
  FutureCore::wake_sleepers();
  return ran;
}

// -------------------------------------------------------------------- timers, descriptors, pollers

TimerId Loop::add_timer(TimePoint when, Task task) {
  SLIME_CHECK(in_loop());
  return timers_.add(when, std::move(task));
}

void Loop::cancel_timer(TimerId& id) {
  SLIME_CHECK(in_loop());
  timers_.cancel(id);
}

Status Loop::watch(int fd, std::uint32_t events, FdHandler& handler) {
  SLIME_CHECK(in_loop());
  return fds_.watch(fd, events, handler);
}

Status Loop::change_watch(int fd, std::uint32_t events) {
  SLIME_CHECK(in_loop());
  return fds_.change(fd, events);
}

void Loop::unwatch(int fd) {
  SLIME_CHECK(in_loop());
  fds_.unwatch(fd);
}

void Loop::defer(Deferred& deferred) {
  SLIME_CHECK(in_loop());
  deferrals_.add(deferred);
}

void Loop::defer_lazily(Deferred& deferred) {
  SLIME_CHECK(in_loop());
  deferrals_.add_lazily(deferred);
}

void Loop::drop_deferred(Deferred& deferred) {
  SLIME_CHECK(in_loop());
  deferrals_.drop(deferred);
}

void Loop::add_poller(Poller& poller) {
  SLIME_CHECK(in_loop());
  pollers_.add(poller);
}

void Loop::remove_poller(Poller& poller) {
  SLIME_CHECK(in_loop());
  pollers_.remove(poller);
}

}  // namespace slime::transport
