#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/limits.h"
#include "transport/loop/bed.h"
#include "transport/loop/deferrals.h"
#include "transport/loop/drive_queue.h"
#include "transport/loop/fd_pace.h"
#include "transport/loop/pollers.h"
#include "transport/loop/posted_tasks.h"
#include "transport/loop/spin_policy.h"
#include "transport/loop/timers.h"
#include "transport/loop/wake_up.h"
#include "transport/loop/watched_fds.h"

namespace slime::transport {

struct LoopOptions {
  const Clock* clock = &steady_clock();  // a manual clock: the loop never blocks, the owner moves time
  // Polls at least `spin` after the last progress before it blocks, and up to `max_spin` as long as work
  // comes at such a pace.
  Nanos spin = limits::kLoopSpin;
  Nanos max_spin = limits::kLoopSpin;
  // How long the thread pauses after it found a caller driving. What comes once that caller has left may wait
  // so long.
  Nanos nap = limits::kLoopNap;
};

// One thread's progress: polls descriptors and pollers, fires timers, runs posted functions. Objects made on
// a loop belong to it and are touched only by whoever drives it: its own thread after start_thread(), or,
// while that sleeps, a caller inside wait() or with a Borrowed; without a thread the one caller that is
// inside poll(), wait_until() or run(). Lifetime: outlives everything that was made on it.
class Loop final : public Driver, public std::enable_shared_from_this<Loop> {
 public:
  static Result<std::shared_ptr<Loop>> create(LoopOptions options = {});
  ~Loop() override;  // stops the thread; what is still posted is run first

  // ---- any thread ----
  // Runs `task` in a later turn.
  void post(Task task);
  // Runs `task` now if the calling thread drives the loop, or may drive it (no thread, nobody inside); else
  // posts it.
  void dispatch(Task task);
  // Runs fn() on the loop and returns its value. Not from the loop's own callbacks unless in_loop().
  template <class F>
  auto run(F fn) -> decltype(fn());
  // True on the thread that drives the loop, or when nobody drives it and it has no thread.
  [[nodiscard]] bool in_loop() const { return driven_ == this || nobody_else_drives(); }
  // True only inside the loop's own callbacks, where nothing may wait for the loop.
  [[nodiscard]] bool drives() const {
    return driven_ == this || driver_.load(std::memory_order_acquire) == std::this_thread::get_id();
  }
  // The loop inside whose callbacks the calling thread is, the innermost of several; null outside. Cheap.
  [[nodiscard]] static const Loop* driven() { return driven_; }
  // The loop's time moves only when its owner moves it, so waiting for it does not help.
  [[nodiscard]] bool manual_clock() const { return manual_clock_; }
  // Drives the loop until `done()` or the deadline, or waits for whoever does.
  void wait_until(UniqueFunction<bool()> done, TimePoint deadline);
  // The same without a thread. With one it drives while that sleeps, for as long as it pays to spin, and then
  // calls `sleep`. Callbacks run in the caller meanwhile.
  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override;
  // The drive of a loop whose thread sleeps, or that has none, for one short task in the caller: nothing is
  // polled, so no callback runs but those of what the task has begun. False where the thread, or somebody
  // else, is at work.
  class Borrowed {
   public:
    explicit Borrowed(Loop& loop) : loop_(loop.borrow() ? &loop : nullptr) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() {
      if (loop_ != nullptr) loop_->give_back();
    }
    explicit operator bool() const { return loop_ != nullptr; }

   private:
    Loop* loop_;
  };
  // Runs the loop in a thread of its own until stop(). Idempotent.
  void start_thread();
  [[nodiscard]] bool has_thread() const { return has_thread_.load(std::memory_order_acquire); }
  // Ends the thread after what was posted so far has run. Not from the loop. Idempotent.
  void stop();
  [[nodiscard]] const Clock& clock() const { return *options_.clock; }
  // On the loop it is read once for each round of callbacks, which are short; elsewhere it is the clock's.
  [[nodiscard]] TimePoint now() const;

  // One turn in the caller, for loops without a thread: runs what is due; when there is nothing, waits up to
  // `budget` for something. True if anything ran. False at once if another thread drives the loop.
  bool poll(Nanos budget);

  // ---- on the loop ----
  // Inside a Borrowed: whoever has it may not expect to be called back.
  [[nodiscard]] bool borrowed() const { return borrowed_; }
  TimerId add_timer(TimePoint when, Task task);
  // A fired or cancelled timer is ignored.
  void cancel_timer(TimerId& id);
  // kNever when there is none.
  [[nodiscard]] TimePoint next_timer() const { return timers_.next(); }
  // Level triggered. One handler for each descriptor.
  Status watch(int fd, std::uint32_t events, FdHandler& handler);
  Status change_watch(int fd, std::uint32_t events);
  void unwatch(int fd);
  // Once for each call; not again before it ran.
  void defer(Deferred& deferred);
  // The same for what may wait until something else has the loop run, for a second at most.
  void defer_lazily(Deferred& deferred);
  // What was deferred lazily may not wait any more.
  void hurry() { deferrals_.hurry(); }
  // Inside a Borrowed: what is deferred by now calls back users, so it is for the thread. Else nothing.
  void leave_to_thread() { left_ = borrowed_; }
  // It may be on the list, or not.
  void drop_deferred(Deferred& deferred);
  void add_poller(Poller& poller);
  void remove_poller(Poller& poller);

 private:
  Loop(LoopOptions options, WakeUp wake, WatchedFds fds, UniqueFd bed);
  [[nodiscard]] bool nobody_else_drives() const;
  bool try_drive();
  void release_drive();
  void end_drive();
  bool borrow();
  void give_back();
  void run_last();
  void help(UniqueFunction<bool()>& done, TimePoint deadline);
  bool take_over(UniqueFunction<bool()>& done);
  [[nodiscard]] bool lends() const { return by_thread_ && wanted_.load(std::memory_order_relaxed); }
  void sleep_or_yield(UniqueFunction<bool()>& done, TimePoint deadline, Task& sleep);
  void lend(TimePoint until);
  void sleep_lent(int timeout_ms);
  void nap() const;
  void wait_for_drive(TimePoint until, bool threaded);
  bool look();
  bool turn(TimePoint block_until);
  bool wait_fds(TimePoint block_until);
  void thread_main();
  [[nodiscard]] TimePoint steady_now() const;

  const LoopOptions options_;
  const WakeUp wake_;
  WatchedFds fds_;
  Bed bed_;  // where our thread sleeps while it has lent the drive
  const bool manual_clock_;
  const bool steady_;  // its clock is the steady one

  PostedTasks posted_;
  DriveQueue drive_queue_;

  static inline thread_local const Loop* driven_ = nullptr;
  const Loop* outer_ = nullptr;  // what our driver drove before us, and drives again after us
  std::atomic<std::thread::id> driver_{};
  std::atomic<bool> blocked_{false};             // whoever drives, or the thread after it has lent the drive
  std::atomic<int> waiting_{0};                  // callers in wait(), with a thread
  std::atomic<bool> wanted_{false};              // one of them asks for the drive
  std::atomic<TimePoint> crowded_{TimePoint{}};  // when there were several
  std::atomic<Nanos> help_spin_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> has_thread_{false};

  Timers timers_;
  Deferrals deferrals_;
  Pollers pollers_;
  FdPace fd_pace_;
  SpinPolicy spin_;
  bool by_thread_ = false;           // our own thread drives
  bool borrowed_ = false;            // somebody has a Borrowed
  bool left_ = false;                // who has it leaves the rest to the thread
  bool helping_ = false;             // a helper does, who never blocks
  bool fds_told_ = false;            // descriptors had something since a helper began
  TimePoint thread_until_ = kNever;  // when our thread wakes by itself, while it has lent the drive
  unsigned looks_ = 0;
  mutable std::optional<TimePoint> now_;  // what was read in this round

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
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<R> result;
    dispatch([&] {
      R value = fn();
      const std::lock_guard lock(mutex);
      result.emplace(std::move(value));
      changed.notify_all();
    });
    const auto done = [&] {
      const std::lock_guard lock(mutex);
      return result.has_value();
    };
    // The thread may be stopped meanwhile, and then the caller drives.
    while (has_thread() && !done()) {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, limits::kLoopWaitTurn, [&] { return result.has_value(); });
    }
    wait_until(done, kNever);
    return std::move(*result);
  }
}

}  // namespace slime::transport
