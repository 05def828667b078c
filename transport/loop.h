#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/limits.h"
#include "transport/loop/aside.h"
#include "transport/loop/bed.h"
#include "transport/loop/deferrals.h"
#include "transport/loop/drive_queue.h"
#include "transport/loop/fd_pace.h"
#include "transport/loop/help_spin.h"
#include "transport/loop/pollers.h"
#include "transport/loop/posted_tasks.h"
#include "transport/loop/spin_policy.h"
#include "transport/loop/timers.h"
#include "transport/loop/wake_up.h"
#include "transport/loop/watched_fds.h"

namespace slime::transport {

struct LoopOptions {
  // With a manual clock the loop never blocks: the owner of the clock moves the time.
  const Clock* clock = &steady_clock();
  // How long the loop polls after its last work before it blocks: `spin` at least, and up to
  // `max_spin` while new work keeps coming within `max_spin`.
  Nanos spin = limits::kLoopSpin;
  Nanos max_spin = limits::kLoopSpin;
  // How long the loop's thread pauses after it found a caller driving the loop. Work that arrives
  // after that caller has left may wait this long. If callers drive again and again, the pause
  // doubles up to kLoopLongestNap, and such work may wait for two of them.
  Nanos nap = limits::kLoopNap;
};

// An event loop: polls descriptors and pollers, fires timers, runs posted functions. One thread at
// a time drives it, and only that thread touches the objects made on the loop. After start_thread()
// this is the loop's own thread or, while that sleeps, a caller inside wait() or with a Borrowed.
// Without a thread it is a caller inside poll(), wait_until() or run(). Lifetime: outlives
// everything that was made on it.
class Loop final : public Driver, public std::enable_shared_from_this<Loop> {
 public:
  static Result<std::shared_ptr<Loop>> create(LoopOptions options = {});
  ~Loop() override;  // stops the thread and runs what is still posted

  // ---- any thread ----
  // Runs `task` in a later turn.
  void post(Task task);
  // Runs `task` now if the calling thread drives the loop, or if the loop has no thread and no
  // caller drives it. Otherwise posts it.
  void dispatch(Task task);
  // Runs fn() on the loop, waits for it and returns its value. Inside a callback of the loop, calls
  // fn() directly.
  template <class F>
  auto run(F fn) -> decltype(fn());
  // Returns true on the thread that drives the loop. While the loop has no thread and no caller
  // drives it, returns true on every thread.
  [[nodiscard]] bool in_loop() const { return driven_ == this || nobody_else_drives(); }
  // Returns true only inside the loop's own callbacks and turns, where waiting for the loop would
  // deadlock.
  [[nodiscard]] bool drives() const {
    return driven_ == this || driver_.load(std::memory_order_acquire) == std::this_thread::get_id();
  }
  // Returns the loop that the calling thread drives, the innermost of several; null if it drives
  // none. Cheap.
  [[nodiscard]] static const Loop* driven() { return driven_; }
  // Returns true if the loop has a manual clock, which only its owner moves: sleeping does not
  // bring a timer closer.
  [[nodiscard]] bool manual_clock() const { return manual_clock_; }
  // Drives the loop until `done()` returns true or the deadline passes. Waits while another thread
  // drives.
  void wait_until(UniqueFunction<bool()> done, TimePoint deadline);
  // Waits until `done()` returns true or the deadline passes. Without a loop thread: like
  // wait_until(). Otherwise drives the loop in place of its sleeping thread for as long as spinning
  // pays, or sleeps until the loop's descriptors have events, then calls `sleep`. Callbacks run in
  // the caller while it drives.
  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override;
  // Lets the calling thread drive the loop for one short task, while the loop's thread sleeps or if
  // the loop has no thread. Polls nothing, so only work that the task begins causes callbacks.
  // Converts to false if another thread drives the loop or earlier work waits; then the caller may
  // not use the loop. `alone`: no earlier operation is in flight, so the caller also runs the work
  // that the task defers. Otherwise that work is left to the next thread that drives, and the loop
  // lends itself only to callers that wait for it again and again.
  class Borrowed {
   public:
    explicit Borrowed(Loop& loop, bool alone = true) : loop_(loop.borrow(alone) ? &loop : nullptr) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() {
      if (loop_ != nullptr) loop_->give_back();
    }
    explicit operator bool() const { return loop_ != nullptr; }

   private:
    Loop* loop_;
  };
  // Lets a thread of the loop's own drive it until stop(). Idempotent.
  void start_thread();
  [[nodiscard]] bool has_thread() const { return has_thread_.load(std::memory_order_acquire); }
  // Runs everything that was posted so far, and ends the thread. Not from the loop. Idempotent.
  void stop();
  [[nodiscard]] const Clock& clock() const { return *options_.clock; }
  // Returns the clock's time. On the driving thread, the clock is read once for each round of
  // callbacks.
  [[nodiscard]] TimePoint now() const;

  // Drives a loop without a thread for one turn: runs what is due. If nothing is due, waits up to
  // `budget` for work. Returns whether anything ran; returns false at once if another thread drives
  // the loop.
  bool poll(Nanos budget);

  // ---- on the loop ----
  // Returns true while a Borrowed drives the loop: then the loop may not call user functions.
  [[nodiscard]] bool borrowed() const { return borrowed_; }
  TimerId add_timer(TimePoint when, Task task);
  // Cancels the timer and clears `id`. Does nothing to a timer that has fired or was cancelled.
  void cancel_timer(TimerId& id);
  // Returns kNever when there is no timer.
  [[nodiscard]] TimePoint next_timer() const { return timers_.next(); }
  // Calls `handler` for `events` of `fd`, level triggered. Each descriptor has one handler, which
  // must outlive the watch.
  Status watch(int fd, std::uint32_t events, FdHandler& handler);
  Status change_watch(int fd, std::uint32_t events);
  void unwatch(int fd);
  // Runs `deferred` in the next turn, once for each call of defer().
  void defer(Deferred& deferred);
  // Like defer(), but `deferred` may wait until the loop runs for other work, for a second at most.
  void defer_lazily(Deferred& deferred);
  // Call inside a callback if more work is expected soon, such as a peer's next message of a
  // handshake. Until that work, the loop spins for `max_spin`, at most kLoopHelpSpin, and a waiting
  // caller that drives spins for kLoopHelpSpin.
  void expect_soon() { spin_.expect(); }
  // Runs the lazily deferred work in the next turn.
  void hurry() { deferrals_.hurry(); }
  // Inside a Borrowed: leaves the deferred work to the loop's thread, because the work calls user
  // functions. Does nothing otherwise.
  void leave_to_thread() { left_ = borrowed_; }
  // Forgets `deferred`, if it is deferred.
  void drop_deferred(Deferred& deferred);
  void add_poller(Poller& poller);
  void remove_poller(Poller& poller);

 private:
  // A caller inside help() drives. kLong: for kLoopLongWait already; kRests: it sleeps meanwhile.
  enum class Help : std::uint8_t { kNone, kShort, kLong, kRests };

  // How the loop's thread itself drives.
  struct OwnDrive {
    bool on = false;         // it drives now
    TimePoint since{};       // when it began to drive
    TimePoint yielded_at{};  // when it last yielded its processor
    // Yields the processor, if it is time for that. Returns whether it did.
    bool yield(TimePoint now);
  };

  Loop(LoopOptions options, WakeUp wake, WatchedFds fds, UniqueFd bed);
  [[nodiscard]] bool nobody_else_drives() const;
  bool try_drive();
  void release_drive();
  void end_drive();
  bool borrow(bool alone);
  void give_back();
  void run_last();
  void help(UniqueFunction<bool()>& done, TimePoint deadline);
  bool take_over(UniqueFunction<bool()>& done);
  [[nodiscard]] bool lends() const { return own_drive_.on && wanted_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool waits_for_bulk() const { return patient_.load(std::memory_order_relaxed) > 0; }
  void sleep_or_yield(UniqueFunction<bool()>& done, TimePoint deadline, Task& sleep);
  void lend(TimePoint until);
  void lend_busy();
  void sleep_lent(bool at_once);
  void return_to_bed();
  bool nap(Nanos time) const;
  bool drive_beside_thread();
  void wait_for_drive(TimePoint until, bool threaded);
  bool look();
  bool turn(TimePoint block_until);
  bool wait_fds(TimePoint block_until);
  bool take_events(int timeout_ms);
  bool rest(TimePoint until);
  void thread_main();
  [[nodiscard]] TimePoint steady_now() const;

  const LoopOptions options_;
  const WakeUp wake_;
  WatchedFds fds_;
  Bed bed_;  // the loop's thread sleeps here while callers may drive the loop
  const bool manual_clock_;
  const bool steady_;  // the clock is the steady one

  PostedTasks posted_;
  DriveQueue drive_queue_;

  static inline thread_local const Loop* driven_ = nullptr;
  // loop that the driving thread drove before this one, and will drive again
  const Loop* outer_ = nullptr;
  std::atomic<std::thread::id> driver_{};
  // the driving thread blocks, or the loop's thread sleeps while callers may drive
  std::atomic<bool> blocked_{false};
  std::atomic<int> waiting_{0};      // callers that are inside wait() of a loop with a thread
  std::atomic<int> patient_{0};      // those of them that sleep and are expected to for long
  std::atomic<bool> wanted_{false};  // a caller in wait() asks the thread to let it drive
  std::atomic<Help> helping_{Help::kNone};
  HelpSpin help_spin_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> has_thread_{false};

  Timers timers_;
  Deferrals deferrals_;
  Pollers pollers_;
  FdPace fd_pace_;
  SpinPolicy spin_;
  OwnDrive own_drive_;
  bool borrowed_ = false;            // a Borrowed is alive
  bool left_ = false;                // set by leave_to_thread(): the loop's thread runs the rest
  bool runs_rest_ = false;           // the Borrowed runs the work that its task defers
  Aside aside_;                      // whether the loop's thread leaves the loop to its callers
  bool fds_told_ = false;            // descriptors had events since a caller in help() last checked
  TimePoint thread_until_ = kNever;  // when the sleeping thread wakes by itself to drive again
  unsigned looks_ = 0;
  // time that was read in the current round of callbacks; empty: not read yet
  mutable std::optional<TimePoint> now_;

  std::thread thread_;  // last: it touches everything above
};

template <class F>
auto Loop::run(F fn) -> decltype(fn()) {
  using R = decltype(fn());
  if (driver_.load(std::memory_order_acquire) == std::this_thread::get_id()) return fn();
  if constexpr (std::is_void_v<R>) {
    run([&fn] {
      fn();
      return true;
    });
  } else {
    Mutex mutex;
    CondVar changed;
    std::optional<R> result;
    dispatch([&] {
      R value = fn();
      const MutexLock lock(mutex);
      result.emplace(std::move(value));
      changed.notify_all();
    });
    const auto done = [&] {
      const MutexLock lock(mutex);
      return result.has_value();
    };
    slime::detail::FutureCore::wake_sleepers();
    // Checks again at intervals: stop() may end the thread meanwhile, and this caller then drives
    // the loop.
    while (has_thread() && !done()) {
      const MutexLock lock(mutex);
      changed.wait_for(mutex, limits::kLoopWaitTurn, [&] { return result.has_value(); });
    }
    wait_until(done, kNever);
    return std::move(*result);
  }
}

}  // namespace slime::transport
