#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/transport/loop_callers.h"

// Callers that drive a loop while its own thread sleeps. A wake-up that is lost would be made up
// for within a second: where that could happen there are so many rounds that the deadline of all of
// them tells.
namespace slime::transport {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

// An event that only polling finds: no descriptor reports it.
class Mailbox final : public Poller {
 public:
  explicit Mailbox(Loop& loop) : loop_(loop) {
    loop_.run([this] { loop_.add_poller(*this); });
  }
  ~Mailbox() {
    loop_.run([this] { loop_.remove_poller(*this); });
  }
  bool poll_once() noexcept override {
    if (!full.exchange(false)) return false;
    taken_by = std::this_thread::get_id();
    taken.fetch_add(1);
    taken.notify_all();
    return true;
  }
  bool arm() noexcept override { return true; }

  std::atomic<bool> full{false};
  std::atomic<int> taken{0};
  std::thread::id taken_by;  // written before `taken`

 private:
  Loop& loop_;
};

TEST_CASE("a caller with less time than a sleep takes does not sleep") {
  const auto loop = start_loop();
  bool slept = false;
  for (int round = 0; round < 100; ++round) {
    const TimePoint deadline = steady_clock().now() + std::chrono::microseconds(round % 10);
    loop->wait([] { return false; }, deadline, [&] { slept = true; });
    CHECK(steady_clock().now() >= deadline);
  }
  CHECK(!slept);
  loop->wait([&] { return slept; }, soon(), [&] { slept = true; });
  CHECK(slept);
}

TEST_CASE("a caller that waits drives a loop whose thread sleeps") {
  const auto loop = start_loop();
  Mailbox mailbox(*loop);
  int by_caller = 0;
  for (int round = 1; round <= 100; ++round) {
    for (bool asleep = false; !asleep;) {
      const Loop::Borrowed drive(*loop);
      asleep = bool(drive);
    }
    mailbox.full = true;
    loop->wait([&] { return mailbox.taken >= round; }, soon(), [&] { mailbox.taken.wait(round - 1); });
    CHECK(mailbox.taken == round);
    if (mailbox.taken_by == std::this_thread::get_id()) ++by_caller;
  }
  CHECK(by_caller > 0);  // the thread may have woken for something else
  MESSAGE("by the caller: " << by_caller << " of 100");
}

// Work that expects more, which never comes.
class Expecting final : public Poller {
 public:
  explicit Expecting(Loop& loop) : loop_(loop) {
    loop_.run([this] { loop_.add_poller(*this); });
  }
  ~Expecting() {
    loop_.run([this] { loop_.remove_poller(*this); });
  }
  bool poll_once() noexcept override {
    if (!full.exchange(false)) return false;
    loop_.expect_soon();
    done_by = std::this_thread::get_id();
    done_at = steady_clock().now();
    return true;
  }
  bool arm() noexcept override { return true; }

  std::atomic<bool> full{false};
  std::thread::id done_by;
  TimePoint done_at{};

 private:
  Loop& loop_;
};

TEST_CASE("a caller that waits for expected work drives for longer before it sleeps") {
  const auto loop = start_loop();
  Expecting work(*loop);
  int by_caller = 0;
  for (int round = 0; round < 100; ++round) {
    for (bool asleep = false; !asleep;) {
      const Loop::Borrowed drive(*loop);
      asleep = bool(drive);
    }
    work.done_by = {};
    work.full = true;
    TimePoint slept{};
    const Goal goal;
    loop->wait([&] { return goal.reached(); }, soon(),
               [&] {
                 slept = steady_clock().now();
                 // If the caller has not done the work, the thread does it now: it runs what is
                 // posted before it polls, so the last turn begins after the work.
                 do loop->run([] {});
                 while (work.full);
                 loop->run([] {});
                 loop->post([copy = goal]() mutable { copy.reach(); });
                 goal.sleep();
               });
    if (work.done_by != std::this_thread::get_id()) continue;
    ++by_caller;
    CHECK(slept - work.done_at >= limits::kLoopHelpSpin);
  }
  CHECK(by_caller > 0);  // the thread may have woken for something else
}

// Work that never ends, as of bulk data, from when a caller first drives.
class Bulk final : public Poller {
 public:
  explicit Bulk(Loop& loop) : loop_(loop) {
    loop_.run([this] { loop_.add_poller(*this); });
  }
  ~Bulk() {
    loop_.run([this] { loop_.remove_poller(*this); });
  }
  bool poll_once() noexcept override {
    driver = std::this_thread::get_id();
    if (driver.load() == starter.load()) moving = true;
    return moving;
  }
  bool arm() noexcept override { return true; }

  std::atomic<std::thread::id> starter{};  // the caller whose driving starts it
  std::atomic<std::thread::id> driver{};
  std::atomic<bool> moving{false};

 private:
  Loop& loop_;
};

TEST_CASE("a caller that drives bulk data for long lets another caller drive, and sleeps") {
  const auto loop = start_loop();
  Bulk bulk(*loop);
  Goal moved;
  std::atomic<bool> sleeps{false};
  std::thread writer([&] {
    bulk.starter = std::this_thread::get_id();
    while (!moved.reached()) {  // the loop's thread may be awake at first
      loop->wait([&] { return moved.reached(); }, soon(),
                 [&] {
                   if (!bulk.moving) return;
                   sleeps = true;
                   moved.sleep();
                 });
    }
  });
  while (!bulk.moving) std::this_thread::yield();
  const TimePoint by = soon();
  const auto drives = [&] { return bulk.driver.load() == std::this_thread::get_id(); };
  while (!drives() && steady_clock().now() < by) loop->wait(drives, by, [] {});
  CHECK(drives());
  bulk.moving = false;
  bulk.starter = std::thread::id{};
  loop->run([&] { moved.reach(); });
  writer.join();
  CHECK(sleeps);
}

TEST_CASE("what a caller has posted runs while it waits, and so does what others post meanwhile") {
  const auto loop = start_loop();
  for (int round = 0; round < 2000; ++round) {
    Goal mine;
    Goal other;
    loop->post([&] { mine.reach(); });
    std::thread poster;
    if (round % 100 == 0) poster = std::thread([&] { loop->post([&] { other.reach(); }); });
    mine.wait(*loop);
    if (poster.joinable()) {
      other.wait(*loop);
      poster.join();
    }
  }
}

TEST_CASE("the thread hears of descriptors after callers have driven, and while they do") {
  const auto loop = start_loop();
  Event event(*loop);
  const TimePoint end = soon();
  for (int round = 0; round < 3000; ++round) {
    const int before = event.heard;
    // Drives that hear of it or not, and end before or after the thread was woken.
    if (round % 3 == 0) {
      Goal goal;
      loop->post([&] { goal.reach(); });
      goal.wait(*loop);
    }
    event.raise();
    if (round % 2 == 0) loop->wait([&] { return event.heard > before; }, soon(), [] {});
    if (round % 5 == 0) {
      const Loop::Borrowed drive(*loop);
    }
    event.wait_for(before + 1);
  }
  CHECK(steady_clock().now() < end);
}

TEST_CASE("the thread takes over from a caller that drove again and again, and has stopped") {
  struct Flush final : Deferred {
    void run_deferred() noexcept override { done.reach(); }
    Goal done;
  };
  const auto loop = start_loop();
  Event event(*loop);
  const TimePoint end = soon();
  int left_behind = 0;
  for (int round = 0; round < 1000; ++round) {
    for (int wait = 0; wait < round % 7; ++wait) {
      const int before = event.heard;
      event.raise();  // between two waits, so that it wakes the thread
      loop->wait([&] { return event.heard > before; }, soon(), [] {});
      event.wait_for(before + 1);
    }
    Flush flush;
    Goal posted;
    Goal fired;
    const int before = event.heard;
    switch (round % 4) {
      case 0:
        event.raise();
        event.wait_for(before + 1);
        break;
      case 1:
        loop->post([&] { posted.reach(); });
        posted.sleep();
        break;
      case 2: {
        bool deferred = false;
        {
          const Loop::Borrowed drive(*loop, false);
          if (drive) loop->defer(flush);
          deferred = bool(drive);
        }
        left_behind += deferred ? 1 : 0;
        if (!deferred) loop->post([&] { loop->defer(flush); });
        flush.done.sleep();
        break;
      }
      default:
        loop->run([&] { loop->add_timer(loop->now(), [&] { fired.reach(); }); });
        fired.sleep();
    }
    loop->run([] {});  // the callbacks have returned
  }
  CHECK(steady_clock().now() < end);
  CHECK(left_behind > 0);
}

TEST_CASE("callers that wait without any time do not keep the thread from its work") {
  const auto loop = start_loop();
  Event event(*loop);
  const TimePoint end = soon();
  for (int round = 0; round < 200; ++round) {
    const int before = event.heard;
    event.raise();
    while (event.heard == before) loop->wait([] { return false; }, steady_clock().now(), [] {});
  }
  CHECK(steady_clock().now() < end);
}

TEST_CASE("only a caller that waits again and again borrows the loop beside other operations") {
  const auto loop = start_loop();
  for (int round = 0; round < 100; ++round) {
    for (bool asleep = false; !asleep;) {
      const Loop::Borrowed drive(*loop);
      asleep = bool(drive);
    }
    CHECK_FALSE(bool(Loop::Borrowed(*loop, false)));
    loop->run([] {});  // the thread drives, and no caller has driven when it sleeps again
  }
}

TEST_CASE("the thread wakes in time for a timer that a caller has added") {
  const auto loop = start_loop();
  const TimePoint end = soon();
  for (int round = 0; round < 500; ++round) {
    Goal fired;
    const auto add = [&] {
      loop->add_timer(deadline_after(loop->now(), milliseconds(1)), [&] { fired.reach(); });
    };
    bool added = false;
    {
      const Loop::Borrowed drive(*loop);
      if (drive) {
        add();
        added = true;
      }
    }
    if (!added) loop->post(add);
    fired.sleep();
  }
  CHECK(steady_clock().now() < end);
}

// Sets a timer, waits until the loop's thread sleeps, disturbs the sleep, and returns how late the
// timer was.
template <class Disturb>
Nanos lateness(Loop& loop, Nanos sleep, Disturb disturb) {
  Goal fired;
  TimePoint due{};
  std::atomic<TimePoint> when{TimePoint{}};
  loop.run([&] {
    due = deadline_after(loop.now(), sleep);
    loop.add_timer(due, [&] {
      when = steady_clock().now();
      fired.reach();
    });
  });
  for (bool asleep = false; !asleep;) {
    const Loop::Borrowed drive(loop);
    asleep = bool(drive);
  }
  disturb(due);
  fired.sleep();
  return when.load() - due;
}

TEST_CASE("a timer is in time though a caller had the loop when it was due, and left without running it") {
  const auto loop = start_loop();
  const Nanos sleep = milliseconds(500);
  const Nanos late = lateness(*loop, sleep, [&](TimePoint due) {
    const TimePoint begin = due - milliseconds(5);
    while (steady_clock().now() < begin) std::this_thread::sleep_until(begin);
    const Loop::Borrowed drive(*loop);
    REQUIRE(bool(drive));
    const TimePoint end = due + milliseconds(20);
    while (steady_clock().now() < end) std::this_thread::sleep_until(end);
  });
  MESSAGE("late by " << std::chrono::duration_cast<milliseconds>(late).count() << " ms");
  CHECK(late < sleep / 2);
}

TEST_CASE("a timer is in time though the thread was woken for what a caller then dealt with") {
  const auto loop = start_loop();
  Event event(*loop);
  const Nanos sleep = milliseconds(900);
  const Nanos late = lateness(*loop, sleep, [&](TimePoint due) {
    const TimePoint begin = due - milliseconds(200);
    while (steady_clock().now() < begin) std::this_thread::sleep_until(begin);
    bool raised = false;
    loop->wait(
        [&] {
          if (!raised && loop->in_loop()) {
            raised = true;
            event.raise();
            // Gives the thread time to wake up and find the loop taken, which no test seam reports.
            std::this_thread::sleep_for(milliseconds(5));
          }
          return event.heard > 0;
        },
        soon(), [] {});
    REQUIRE(event.heard == 1);
  });
  MESSAGE("late by " << std::chrono::duration_cast<milliseconds>(late).count() << " ms");
  CHECK(late < sleep / 2);
}

TEST_CASE("deferred work that a caller leaves behind is run by the thread, if it is not lazy") {
  struct Again final : Deferred {
    explicit Again(Loop& owner) : loop(owner) {}
    void run_deferred() noexcept override {
      if (++runs < 20) return loop.defer(*this);
      done.reach();
    }
    Loop& loop;
    int runs = 0;
    Goal done;
  };
  const auto loop = start_loop();
  const TimePoint end = soon();
  for (int round = 0; round < 500; ++round) {
    Again again(*loop);
    bool deferred = false;
    {
      const Loop::Borrowed drive(*loop);
      if (drive) {
        loop->defer(again);
        deferred = true;
      }
    }
    if (!deferred) loop->post([&] { loop->defer(again); });
    again.done.sleep();
    loop->run([] {});  // it has returned from there
  }
  CHECK(steady_clock().now() < end);
}

TEST_CASE("what calls back users is not run by a caller that only begins something") {
  struct Ending final : Deferred {
    void run_deferred() noexcept override {
      by = std::this_thread::get_id();
      done.reach();
    }
    std::thread::id by;  // written before `done`
    Goal done;
  };
  const auto loop = start_loop();
  for (int round = 0; round < 400; ++round) {
    const bool leave = round % 2 == 0;
    Ending ending;
    for (bool borrowed = false; !borrowed;) {
      std::this_thread::yield();
      const Loop::Borrowed drive(*loop);
      if (!drive) continue;
      borrowed = true;
      loop->defer(ending);
      loop->hurry();
      if (leave) loop->leave_to_thread();
    }
    ending.done.sleep();
    CHECK((ending.by == std::this_thread::get_id()) != leave);
    loop->run([] {});  // it has returned from there
  }
}

TEST_CASE("a borrowed loop belongs to the borrower alone, after what was posted before") {
  const auto loop = start_loop();
  int got = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<bool> ran{false};
    if (round % 2 == 0) loop->post([&] { ran = true; });
    {
      const Loop::Borrowed drive(*loop);
      if (drive) {
        ++got;
        CHECK(loop->in_loop());
        CHECK(loop->borrowed());
        CHECK((ran || round % 2 != 0));
        CHECK_FALSE(bool(Loop::Borrowed(*loop)));
      }
    }
    CHECK_FALSE(loop->in_loop());
    loop->run([&] {
      CHECK_FALSE(loop->borrowed());
      CHECK_FALSE(bool(Loop::Borrowed(*loop)));
    });
  }
  MESSAGE("borrowed " << got << " times of 2000");
}

TEST_CASE("several callers that wait at the same time are all served") {
  const auto loop = start_loop();
  std::atomic<int> inside{0};
  std::array<std::thread, 4> callers;
  for (std::thread& caller : callers) {
    caller = std::thread([&] {
      for (int round = 0; round < 1000; ++round) {
        Goal goal;
        loop->post([&] {
          CHECK(inside.fetch_add(1) == 0);  // only one thread drives
          inside.fetch_sub(1);
          goal.reach();
        });
        goal.wait(*loop);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_CASE("a loop can be stopped while callers wait, who drive it from then on") {
  for (int round = 0; round < 50; ++round) {
    const auto loop = start_loop();
    Goal goal;
    std::thread caller([&] {
      while (!goal.reached()) loop->wait([&] { return goal.reached(); }, soon(), [] {});
    });
    loop->stop();
    loop->post([&] { goal.reach(); });
    caller.join();
    CHECK(goal.reached());
  }
}

}  // namespace
}  // namespace slime::transport
