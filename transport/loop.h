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
  // With a manual clock the loop never blocks; the owner moves the time.
  const Clock* clock = &steady_clock();
  // The loop polls for at least `spin` after its last work before it blocks, and up to `max_spin`
  // while work keeps coming within that time.
  Nanos spin = limits::kLoopSpin;
  Nanos max_spin = limits::kLoopSpin;
  // How long the thread pauses after it found a caller driving. Work that comes after that caller
  // has left may wait this long.
  Nanos nap = limits::kLoopNap;
};

// The progress of one thread: polls descriptors and pollers, fires timers, runs posted functions.
// Objects made on a loop belong to it, and only the thread that drives the loop touches them: after
// start_thread() the loop's own thread, or, while that sleeps, a caller inside wait() or with a
// Borrowed; without a thread the one caller inside poll(), wait_until() or run(). Lifetime:
// outlives everything that was made on it.
class Loop final : public Driver, public std::enable_shared_from_this<Loop> {
 public:
  static Result<std::shared_ptr<Loop>> create(LoopOptions options = {});
  ~Loop() override;  // stops the thread, after running what is still posted

  // ---- any thread ----
  // Runs `task` in a later turn.
  void post(Task task);
  // Runs `task` now if the calling thread drives the loop, or may drive it (the loop has no thread,
  // and no caller drives it); else posts it.
  void dispatch(Task task);
  // Runs fn() on the loop and returns its value. Call from the loop's own callbacks only if
  // in_loop().
  template <class F>
  auto run(F fn) -> decltype(fn());
  // Returns true on the thread that drives the loop, and on every thread while the loop has no
  // thread and no driver.
  [[nodiscard]] bool in_loop() const { return driven_ == this || nobody_else_drives(); }
  // Returns true only inside the loop's own callbacks, where nothing may wait for the loop.
  [[nodiscard]] bool drives() const {
    return driven_ == this || driver_.load(std::memory_order_acquire) == std::this_thread::get_id();
  }
  // Returns the loop inside whose callbacks the calling thread is, the innermost of several; null
  // outside. Cheap.
  [[nodiscard]] static const Loop* driven() { return driven_; }
  // Returns whether only the owner moves the loop's time: then waiting for a time does not help.
  [[nodiscard]] bool manual_clock() const { return manual_clock_; }
  // Drives the loop until `done()` or the deadline; waits while another thread drives it.
  void wait_until(UniqueFunction<bool()> done, TimePoint deadline);
  // Like wait_until() if the loop has no thread. Else drives the loop while its thread sleeps, for
  // as long as spinning pays, and then calls `sleep`. Callbacks run in the caller meanwhile.
  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override;
  // Lets the caller drive the loop for one short task, if the loop's thread sleeps or the loop has
  // none. Polls nothing, so only callbacks of work that the task has begun run. False while another
  // thread drives the loop.
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
  // Ends the thread after running what was posted so far. Not from the loop. Idempotent.
  void stop();
  [[nodiscard]] const Clock& clock() const { return *options_.clock; }
  // Returns the clock's time. On the loop, reads the clock once for each round of callbacks, which
  // are short.
  [[nodiscard]] TimePoint now() const;

  // Drives a loop without a thread for one turn: runs what is due; if there is nothing, waits up to
  // `budget` for something. Returns whether anything ran; false at once if another thread drives
  // the loop.
  bool poll(Nanos budget);

  // ---- on the loop ----
  // Returns true inside a Borrowed, where users must not be called back.
  [[nodiscard]] bool borrowed() const { return borrowed_; }
  TimerId add_timer(TimePoint when, Task task);
  // Ignores a fired or cancelled timer. Clears `id`.
  void cancel_timer(TimerId& id);
  // Returns kNever when there is no timer.
  [[nodiscard]] TimePoint next_timer() const { return timers_.next(); }
  // Level triggered. Each descriptor has one handler, which outlives the watch.
  Status watch(int fd, std::uint32_t events, FdHandler& handler);
  Status change_watch(int fd, std::uint32_t events);
  void unwatch(int fd);
  // Runs `deferred` once for each call, in the next turn.
  void defer(Deferred& deferred);
  // Like defer(), for work that may wait until the loop runs for other work, or for a second at
  // most.
  void defer_lazily(Deferred& deferred);
  // Makes work that was deferred lazily run in the next turn.
  void hurry() { deferrals_.hurry(); }
  // Inside a Borrowed: leaves the deferred work to the thread, because that work calls back users.
  // Outside: does nothing.
  void leave_to_thread() { left_ = borrowed_; }
  // Forgets `deferred`, if it is deferred.
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
  Bed bed_;  // where the loop's thread sleeps while it has lent the drive
  const bool manual_clock_;
  const bool steady_;  // the clock is the steady one

  PostedTasks posted_;
  DriveQueue drive_queue_;

  static inline thread_local const Loop* driven_ = nullptr;
  const Loop* outer_ = nullptr;  // the loop that the driver drove before, and drives again after
  std::atomic<std::thread::id> driver_{};
  std::atomic<bool> blocked_{false};             // the driver blocks, or the thread after lending the drive
  std::atomic<int> waiting_{0};                  // callers in wait() of a loop with a thread
  std::atomic<bool> wanted_{false};              // one of these callers asks for the drive
  std::atomic<TimePoint> crowded_{TimePoint{}};  // when there were several of these callers
  std::atomic<Nanos> help_spin_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> has_thread_{false};

  Timers timers_;
  Deferrals deferrals_;
  Pollers pollers_;
  FdPace fd_pace_;
  SpinPolicy spin_;
  bool by_thread_ = false;           // the loop's thread drives
  bool borrowed_ = false;            // a Borrowed is alive
  bool left_ = false;                // the Borrowed leaves the rest to the thread
  bool helping_ = false;             // a caller inside help() drives; it never blocks
  bool fds_told_ = false;            // descriptors had events since a caller inside help() began
  TimePoint thread_until_ = kNever;  // when the thread wakes by itself, while it has lent the drive
  unsigned looks_ = 0;
  mutable std::optional<TimePoint> now_;  // the time that was read in this round of callbacks

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
    // The thread may be stopped meanwhile, and then the caller drives.
    while (has_thread() && !done()) {
      const MutexLock lock(mutex);
      changed.wait_for(mutex, limits::kLoopWaitTurn, [&] { return result.has_value(); });
    }
    wait_until(done, kNever);
    return std::move(*result);
  }
}

}  // namespace slime::transport
