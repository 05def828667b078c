#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

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

// The parts of a loop, without a loop.
namespace slime::transport::loop_parts_test {
namespace {

using namespace std::chrono_literals;

TimePoint at(Nanos time) { return TimePoint(time); }

TEST_CASE("timers: those that are due run in the order of their times, then of their addition") {
  Timers timers;
  std::vector<int> ran;
  timers.add(at(3s), [&] { ran.push_back(3); });
  timers.add(at(1s), [&] { ran.push_back(1); });
  timers.add(at(1s), [&] { ran.push_back(2); });
  TimerId cancelled = timers.add(at(2s), [&] { ran.push_back(-1); });
  CHECK(timers.next() == at(1s));
  timers.cancel(cancelled);
  CHECK_FALSE(cancelled);
  timers.cancel(cancelled);
  CHECK_FALSE(timers.run_due(at(999ms)));
  CHECK(timers.run_due(at(2s)));
  CHECK(ran == std::vector{1, 2});
  CHECK(timers.next() == at(3s));
  CHECK(timers.run_due(at(3s)));
  CHECK(ran == std::vector{1, 2, 3});
  CHECK(timers.empty());
  CHECK(timers.next() == kNever);
  CHECK_FALSE(timers.run_due(at(4s)));
}

TEST_CASE("timers: a task may cancel timers that are due, and its own new timer waits for the next run") {
  Timers timers;
  int again = 0;
  bool cancelled_ran = false;
  TimerId second;
  timers.add(at(1s), [&] {
    timers.cancel(second);
    timers.add(at(0s), [&] { ++again; });
  });
  second = timers.add(at(2s), [&] { cancelled_ran = true; });
  CHECK(timers.run_due(at(5s)));
  CHECK(again == 0);
  CHECK(timers.run_due(at(5s)));
  CHECK(again == 1);
  CHECK_FALSE(cancelled_ran);
}

TEST_CASE("posted tasks: run once, in order; tasks that they add run in the next call") {
  PostedTasks tasks;
  std::vector<int> ran;
  CHECK_FALSE(tasks.pending());
  CHECK_FALSE(tasks.run());
  tasks.add([&] {
    ran.push_back(1);
    tasks.add([&] { ran.push_back(3); });
  });
  tasks.add([&] { ran.push_back(2); });
  CHECK(tasks.pending());
  CHECK(tasks.run());
  CHECK(ran == std::vector{1, 2});
  CHECK(tasks.pending(std::memory_order_seq_cst));
  CHECK(tasks.run());
  CHECK(ran == std::vector{1, 2, 3});
  CHECK_FALSE(tasks.pending());
}

TEST_CASE("posted tasks: tasks of several threads all run") {
  PostedTasks tasks;
  int ran = 0;
  {
    std::array<std::optional<std::jthread>, 3> threads;
    for (auto& thread : threads) {
      thread.emplace([&] {
        for (int i = 0; i < 100; ++i) tasks.add([&] { ++ran; });
      });
    }
  }
  CHECK(tasks.run());
  CHECK(ran == 300);
}

struct Noted final : Deferred {
  explicit Noted(UniqueFunction<void()> fn) : fn(std::move(fn)) {}
  void run_deferred() noexcept override { fn(); }
  UniqueFunction<void()> fn;
};

TEST_CASE("deferrals: work runs once for each call, in order; what it adds runs in the next call") {
  Deferrals deferrals;
  std::vector<int> ran;
  Noted late([&] { ran.push_back(3); });
  Noted first([&] {
    ran.push_back(1);
    deferrals.add(late);
  });
  Noted second([&] { ran.push_back(2); });
  CHECK_FALSE(deferrals.run());
  deferrals.add(first);
  deferrals.add(second);
  deferrals.add(second);
  CHECK(deferrals.urgent());
  CHECK(deferrals.run());
  CHECK(ran == std::vector{1, 2, 2});
  CHECK(deferrals.urgent());
  CHECK(deferrals.run());
  CHECK(ran == std::vector{1, 2, 2, 3});
  CHECK(deferrals.empty());
}

TEST_CASE("deferrals: dropped work does not run, also when other work of the same run drops it") {
  Deferrals deferrals;
  bool ran = false;
  Noted dropped([&] { ran = true; });
  Noted dropper([&] { deferrals.drop(dropped); });
  deferrals.add(dropped);
  deferrals.drop(dropped);
  deferrals.add(dropper);
  deferrals.add(dropped);
  CHECK(deferrals.run());
  CHECK_FALSE(ran);
}

TEST_CASE("deferrals: lazy work is not urgent until it is hurried or runs") {
  Deferrals deferrals;
  int ran = 0;
  Noted lazy([&] { ++ran; });
  deferrals.add_lazily(lazy);
  CHECK_FALSE(deferrals.empty());
  CHECK_FALSE(deferrals.urgent());
  deferrals.hurry();
  CHECK(deferrals.urgent());
  CHECK(deferrals.run());
  CHECK(ran == 1);
  CHECK_FALSE(deferrals.urgent());
}

struct Source final : Poller {
  bool poll_once() noexcept override {
    ++polls;
    if (removes != nullptr) pollers->remove(*removes);
    return has_work;
  }
  bool arm() noexcept override { return arms; }
  int polls = 0;
  bool has_work = false;
  bool arms = true;
  Pollers* pollers = nullptr;
  Poller* removes = nullptr;
};

TEST_CASE("pollers: each is polled once, and any with work counts") {
  Pollers pollers;
  Source idle, busy;
  CHECK(pollers.empty());
  CHECK_FALSE(pollers.poll());
  pollers.add(idle);
  pollers.add(busy);
  CHECK_FALSE(pollers.poll());
  busy.has_work = true;
  CHECK(pollers.poll());
  CHECK(idle.polls == 2);
  CHECK(busy.polls == 2);
}

TEST_CASE("pollers: one may remove itself and a later one while it is polled") {
  Pollers pollers;
  Source first, second;
  first.pollers = second.pollers = &pollers;
  first.removes = &second;
  pollers.add(first);
  pollers.add(second);
  CHECK_FALSE(pollers.poll());
  CHECK(second.polls == 0);
  first.removes = &first;
  CHECK_FALSE(pollers.poll());
  CHECK(pollers.empty());
}

TEST_CASE("pollers: a loop may block only if all are armed") {
  Pollers pollers;
  Source first, second;
  CHECK(pollers.arm());
  pollers.add(first);
  pollers.add(second);
  CHECK(pollers.arm());
  second.arms = false;
  CHECK_FALSE(pollers.arm());
  pollers.remove(second);
  CHECK(pollers.arm());
}

TEST_CASE("wake-up: stays readable from the first signal until it is drained") {
  const Result<WakeUp> wake = WakeUp::create();
  REQUIRE(wake);
  CHECK_FALSE(wait_readable(wake->fd(), 0ns));
  CHECK_FALSE(wait_readable(wake->fd(), 1ms));
  wake->signal();
  wake->signal();
  CHECK(wait_readable(wake->fd(), 10s));
  CHECK(wait_readable(wake->fd(), 0ns));
  wake->drain();
  CHECK_FALSE(wait_readable(wake->fd(), 0ns));
  wake->drain();
}

struct Pipe {
  Pipe() {
    std::array<int, 2> fds{};
    REQUIRE(::pipe(fds.data()) == 0);
    out = UniqueFd(fds[0]);
    in = UniqueFd(fds[1]);
  }
  void write() const { REQUIRE(::write(in.get(), "x", 1) == 1); }
  UniqueFd out, in;
};

struct OnFd final : FdHandler {
  explicit OnFd(UniqueFunction<void(std::uint32_t)> fn) : fn(std::move(fn)) {}
  void on_fd_events(std::uint32_t events) noexcept override { fn(events); }
  UniqueFunction<void(std::uint32_t)> fn;
};

struct Fds {
  Fds() {
    REQUIRE(wake);
    fds.emplace(WatchedFds::create(*wake));
    REQUIRE(*fds);
  }
  WatchedFds* operator->() { return &**fds; }
  WatchedFds& operator*() { return **fds; }
  bool turn(int timeout_ms = 0) {
    WatchedFds::Ready ready;
    (*this)->wait(ready, timeout_ms);
    return (*this)->dispatch(ready, *wake);
  }
  const Result<WakeUp> wake = WakeUp::create();
  std::optional<Result<WatchedFds>> fds;
};

TEST_CASE("watched descriptors: events reach the handler for as long as they last") {
  Fds fds;
  const Pipe pipe;
  int calls = 0;
  std::uint32_t seen = 0;
  OnFd handler([&](std::uint32_t events) {
    ++calls;
    seen = events;
  });
  REQUIRE(fds->watch(pipe.out.get(), EPOLLIN, handler).ok());
  CHECK_FALSE(fds->watch(pipe.out.get(), EPOLLIN, handler).ok());
  CHECK_FALSE(fds.turn());
  pipe.write();
  CHECK(fds.turn(1000));
  CHECK(fds.turn());
  CHECK(calls == 2);
  CHECK(seen == EPOLLIN);
  REQUIRE(fds->change(pipe.out.get(), 0).ok());
  CHECK_FALSE(fds.turn());
  REQUIRE(fds->change(pipe.out.get(), EPOLLIN).ok());
  CHECK(fds.turn());
  fds->unwatch(pipe.out.get());
  fds->unwatch(pipe.out.get());
  CHECK_FALSE(fds.turn());
  CHECK(calls == 3);
}

TEST_CASE("watched descriptors: an event of a former watch does not reach the handler of the next") {
  Fds fds;
  const Pipe first, second;
  int stale = 0;
  OnFd other([&](std::uint32_t) { ++stale; });
  int calls = 0;
  // The first handler of a turn replaces the watch of the other descriptor.
  const auto replace = [&](const UniqueFd& fd) {
    ++calls;
    fds->unwatch(fd.get());
    REQUIRE(fds->watch(fd.get(), EPOLLIN, other).ok());
  };
  OnFd on_first([&](std::uint32_t) { replace(second.out); });
  OnFd on_second([&](std::uint32_t) { replace(first.out); });
  REQUIRE(fds->watch(first.out.get(), EPOLLIN, on_first).ok());
  REQUIRE(fds->watch(second.out.get(), EPOLLIN, on_second).ok());
  first.write();
  second.write();
  CHECK(fds.turn());
  CHECK(calls == 1);
  CHECK(stale == 0);
}

TEST_CASE("watched descriptors: a wake-up ends a wait, is drained, and calls no handler") {
  Fds fds;
  fds.wake->signal();
  CHECK_FALSE(fds.turn(10'000));
  CHECK_FALSE(wait_readable(fds.wake->fd(), 0ns));
}

TEST_CASE("bed: hears of descriptors once, if it was told to, and of wake-ups always") {
  Fds fds;
  Result<UniqueFd> fd = Bed::open(*fds.wake, *fds);
  REQUIRE(fd);
  Bed bed(std::move(*fd), *fds);
  CHECK_FALSE(bed.hears_fds());
  const Pipe pipe;
  OnFd handler([](std::uint32_t) {});
  REQUIRE(fds->watch(pipe.out.get(), EPOLLIN, handler).ok());
  pipe.write();
  bed.sleep(0);
  bed.hear_fds(true);
  CHECK(bed.hears_fds());
  bed.sleep(10'000);
  CHECK_FALSE(bed.hears_fds());
  bed.hear_fds(true);
  bed.forget_fds();
  CHECK_FALSE(bed.hears_fds());
  bed.hear_fds(false);
  CHECK_FALSE(bed.hears_fds());
  fds.wake->signal();
  bed.sleep(10'000);
  CHECK(wait_readable(fds.wake->fd(), 0ns));
}

TEST_CASE("spin policy: spins for the shortest time, and longer while work comes at such a pace") {
  SpinPolicy spin(20us, 100us);
  spin.restart(at(1s));
  CHECK(spin.spins(at(1s + 19us)));
  CHECK_FALSE(spin.spins(at(1s + 20us)));
  spin.update(at(1s + 30us));  // nothing ran
  CHECK(spin.idle(at(1s + 30us)) == 30us);
  spin.note_work();
  spin.update(at(1s + 40us));  // after a gap of 40 us: twice that
  CHECK(spin.idle(at(1s + 40us)) == 0us);
  CHECK(spin.spins(at(1s + 119us)));
  CHECK_FALSE(spin.spins(at(1s + 120us)));
  spin.note_work();
  spin.update(at(1s + 130us));  // after 90 us: at most the longest
  CHECK(spin.spins(at(1s + 229us)));
  CHECK_FALSE(spin.spins(at(1s + 230us)));
  spin.note_work();
  spin.update(at(2s));  // too late to have been worth it
  CHECK_FALSE(spin.spins(at(2s + 20us)));
  spin.note_work();
  spin.restart(at(3s));  // work from before does not count
  spin.update(at(3s + 10us));
  CHECK(spin.idle(at(3s + 10us)) == 10us);
}

TEST_CASE("spin policy: spins for longer before work that is expected, and as usual after it") {
  SpinPolicy spin(20us, 1ms);
  CHECK_FALSE(spin.expects());
  spin.note_work();
  spin.expect();
  CHECK(spin.expects());
  spin.update(at(1s));
  CHECK(spin.expects());
  CHECK(spin.spins(at(1s + limits::kLoopHelpSpin - 1ns)));
  CHECK_FALSE(spin.spins(at(1s + limits::kLoopHelpSpin)));
  spin.note_work();
  spin.update(at(2s));  // it has come
  CHECK_FALSE(spin.expects());
  CHECK_FALSE(spin.spins(at(2s + 20us)));

  SpinPolicy brief(20us, 100us);
  brief.note_work();
  brief.expect();
  brief.update(at(1s));
  CHECK(brief.spins(at(1s + 99us)));
  CHECK_FALSE(brief.spins(at(1s + 100us)));
}

TEST_CASE("help spin: is longer after a short sleep, and as usual after a long one") {
  HelpSpin spin(20us);
  CHECK(spin.usual() == 20us);
  spin.note_sleep(true);
  CHECK(spin.usual() == limits::kLoopHelpSpin);
  spin.note_sleep(false);
  CHECK(spin.usual() == 20us);
}

TEST_CASE("help spin: after spins in vain most waits sleep at once, until spins meet work again") {
  HelpSpin spin(20us);
  for (int i = 0; i < limits::kLoopVainSpins; ++i) {
    CHECK(!spin.in_vain());
    spin.note_spin(false);
  }
  const auto sleep_at_once = [&spin] {
    unsigned count = 0;
    for (unsigned i = 0; i < 4 * limits::kLoopVainWaits; ++i) count += spin.in_vain() ? 1 : 0;
    return count;
  };
  CHECK(sleep_at_once() == 4 * (limits::kLoopVainWaits - 1));
  for (int i = 0; i < 100; ++i) spin.note_spin(false);
  for (int i = 0; i < 2 * limits::kLoopVainSpins; ++i) spin.note_spin(true);  // no more than that
  CHECK(sleep_at_once() == 0);
}

TEST_CASE("descriptor pace: a busy loop looks after enough turns, or enough time") {
  FdPace pace;
  pace.note_look(at(1s));
  pace.begin_look();
  int skipped = 0;
  while (pace.skip_busy(at(1s))) ++skipped;
  CHECK(skipped == limits::kLoopTurnsWithoutFds - 1);
  pace.begin_look();
  CHECK(pace.skip_busy(at(1s + limits::kLoopFdsEvery - 1ns)));
  CHECK_FALSE(pace.skip_busy(at(1s + limits::kLoopFdsEvery)));
  pace.begin_look();
  CHECK(pace.recent(at(1s + limits::kLoopFdsEvery)));  // that was a look
}

TEST_CASE("descriptor pace: looks are more frequent for a while after events") {
  FdPace pace;
  pace.note_look(at(1s));
  CHECK(pace.recent(at(1s + limits::kLoopFdsOften)));
  pace.note_events(at(1s));
  CHECK(pace.recent(at(1s + limits::kLoopFdsOften - 1ns)));
  CHECK_FALSE(pace.recent(at(1s + limits::kLoopFdsOften)));
  const TimePoint later = at(1s + limits::kLoopFdsRecent);
  pace.note_look(later);
  CHECK(pace.recent(later + limits::kLoopFdsOften));
}

TEST_CASE("drive queue: a thread waits until the driver leaves, or its time is over") {
  DriveQueue queue;
  std::atomic<bool> driven{true};
  const auto taken = [&] { return driven.load(std::memory_order_seq_cst); };
  queue.notify();
  queue.wait(steady_clock().now() + 1ms, taken);
  {
    const std::jthread waiter([&] {
      while (taken()) queue.wait(steady_clock().now() + 10s, taken);
    });
    std::this_thread::yield();
    driven.store(false, std::memory_order_seq_cst);
    queue.notify();
  }
  queue.wait(steady_clock().now() + 10s, taken);  // returns at once
  CHECK_FALSE(driven);
}

}  // namespace
}  // namespace slime::transport::loop_parts_test
