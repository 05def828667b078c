#include <doctest/doctest.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/loop.h"

namespace slime::transport::transport_loop_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::shared_ptr<Loop> make_loop(LoopOptions options = {}) {
  auto loop = Loop::create(options);
  REQUIRE(loop.has_value());
  return std::move(*loop);
}

TimePoint soon() { return steady_clock().now() + seconds(20); }

// An eventfd whose handler runs a function.
class Event final : public FdHandler {
 public:
  explicit Event(Loop& loop) : loop_(loop), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    REQUIRE(fd_.valid());
    REQUIRE(loop_.watch(fd_.get(), EPOLLIN, *this).ok());
  }
  ~Event() { loop_.unwatch(fd_.get()); }
  void raise() const {
    const std::uint64_t one = 1;
    CHECK(::write(fd_.get(), &one, sizeof one) == sizeof one);
  }
  void clear() const {
    std::uint64_t count = 0;
    CHECK(::read(fd_.get(), &count, sizeof count) == sizeof count);
  }
  void on_fd_events(std::uint32_t events) noexcept override {
    ++count;
    CHECK((events & EPOLLIN) != 0);
    if (then) then();
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  int count = 0;
  Task then;

 private:
  Loop& loop_;
  UniqueFd fd_;
};

TEST_CASE("timers fire in the order of their times, and those of one time in the order they were added") {
  ManualClock clock;
  const auto loop = make_loop({.clock = &clock});
  std::string order;
  const TimePoint start = clock.now();
  loop->add_timer(start + seconds(2), [&] { order += 'c'; });
  loop->add_timer(start + seconds(1), [&] { order += 'a'; });
  loop->add_timer(start + seconds(1), [&] { order += 'b'; });
  CHECK(loop->next_timer() == start + seconds(1));
  CHECK_FALSE(loop->poll(Nanos::zero()));
  CHECK(order.empty());
  clock.advance(seconds(1));
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "ab");
  clock.advance(seconds(5));
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "abc");
  CHECK(loop->next_timer() == kNever);
}

TEST_CASE("a cancelled timer does not fire, also when an earlier one of the same turn cancels it") {
  ManualClock clock;
  const auto loop = make_loop({.clock = &clock});
  int fired = 0;
  TimerId first = loop->add_timer(clock.now(), [&] { ++fired; });
  loop->cancel_timer(first);
  CHECK_FALSE(first);
  loop->cancel_timer(first);
  TimerId victim;
  loop->add_timer(clock.now(), [&] { loop->cancel_timer(victim); });
  victim = loop->add_timer(clock.now(), [&] { ++fired; });
  loop->poll(Nanos::zero());
  loop->poll(Nanos::zero());
  CHECK(fired == 0);
}

TEST_CASE("a timer that re-arms itself in the past does not starve the others") {
  ManualClock clock;
  const auto loop = make_loop({.clock = &clock});
  const TimePoint past = clock.now() - seconds(1);
  int greedy = 0;
  int patient = 0;
  UniqueFunction<void()> again;
  again = [&] {
    ++greedy;
    loop->add_timer(past, [&] { again(); });
  };
  loop->add_timer(past, [&] { again(); });
  loop->add_timer(clock.now(), [&] { ++patient; });
  loop->poll(Nanos::zero());
  CHECK(greedy == 1);
  CHECK(patient == 1);
}

TEST_CASE("with the steady clock a timer wakes a loop that waits, not early") {
  const auto loop = make_loop();
  const TimePoint due = loop->now() + milliseconds(20);
  TimePoint fired = kNever;
  loop->add_timer(due, [&] { fired = loop->now(); });
  loop->wait_until([&] { return fired != kNever; }, soon());
  REQUIRE(fired != kNever);
  CHECK(fired >= due);
}

TEST_CASE("posted functions run in order, in a later turn, and may post more") {
  const auto loop = make_loop();
  std::string order;
  loop->post([&] {
    order += '1';
    loop->post([&] { order += '3'; });
  });
  loop->post([&] { order += '2'; });
  CHECK(order.empty());
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "12");
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "123");
}

TEST_CASE("what is still posted when a loop goes is run") {
  bool ran = false;
  {
    const auto loop = make_loop();
    loop->post([&] { ran = true; });
  }
  CHECK(ran);
}

TEST_CASE("dispatch runs at once where it may, after what was posted before") {
  const auto loop = make_loop();
  std::string order;
  loop->post([&] { order += 'a'; });
  loop->dispatch([&] {
    order += 'b';
    CHECK(loop->drives());
    loop->dispatch([&] { order += 'c'; });  // inside: at once
    order += 'd';
  });
  CHECK(order == "abcd");
  CHECK_FALSE(loop->drives());
}

TEST_CASE("a thread runs the loop; run() brings values back from it") {
  const auto loop = make_loop();
  loop->start_thread();
  loop->start_thread();
  CHECK(loop->has_thread());
  const auto id = loop->run([] { return std::this_thread::get_id(); });
  CHECK(id != std::this_thread::get_id());
  CHECK_FALSE(loop->drives());
  CHECK(loop->run([&] { return loop->drives(); }));
  int nested = 0;
  loop->run([&] { nested = loop->run([] { return 7; }); });
  CHECK(nested == 7);
  loop->stop();
  loop->stop();
  CHECK_FALSE(loop->has_thread());
  CHECK(loop->run([] { return std::this_thread::get_id(); }) == std::this_thread::get_id());
}

TEST_CASE("stop runs what was posted before, and the thread may be started again") {
  const auto loop = make_loop();
  for (int round = 0; round < 20; ++round) {
    loop->start_thread();
    std::atomic<int> ran{0};
    for (int i = 0; i < 10; ++i) loop->post([&] { ++ran; });
    loop->stop();
    CHECK(ran == 10);
  }
}

TEST_CASE("run() ends although the thread is stopped meanwhile") {
  const auto loop = make_loop();
  for (int round = 0; round < 50; ++round) {
    loop->start_thread();
    std::thread stopper([&] { loop->stop(); });
    CHECK(loop->run([] { return 5; }) == 5);
    stopper.join();
  }
}

TEST_CASE("a blocked loop wakes for a post from another thread") {
  const auto loop = make_loop();
  std::atomic<bool> ran{false};
  std::thread poster([&] { loop->post([&] { ran = true; }); });
  loop->wait_until([&] { return ran.load(); }, soon());
  poster.join();
  CHECK(ran);
}

TEST_CASE("several threads wait on a loop without a thread, and each sees its condition") {
  const auto loop = make_loop();
  constexpr int kThreads = 8;
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::atomic<bool> mine{false};
      loop->post([&, i] { loop->add_timer(loop->now() + milliseconds(i), [&] { mine = true; }); });
      loop->wait_until([&] { return mine.load(); }, soon());
      if (mine) ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == kThreads);
}

TEST_CASE("functions posted by many threads all run, never two at a time") {
  const auto loop = make_loop();
  loop->start_thread();
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  int ran = 0;  // no atomic: the loop's one thread is the guard
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kEach; ++k) loop->post([&] { ++ran; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(loop->run([&] { return ran; }) == kThreads * kEach);
}

TEST_CASE("wait_until ends at its deadline") {
  const auto loop = make_loop();
  const TimePoint deadline = steady_clock().now() + milliseconds(5);
  loop->wait_until([] { return false; }, deadline);
  CHECK(steady_clock().now() >= deadline);
}

TEST_CASE("descriptor events are level triggered and reach their handler") {
  const auto loop = make_loop();
  Event event(*loop);
  CHECK_FALSE(loop->poll(Nanos::zero()));
  event.raise();
  CHECK(loop->poll(seconds(20)));
  CHECK(loop->poll(seconds(20)));
  CHECK(event.count == 2);
  event.clear();
  CHECK_FALSE(loop->poll(Nanos::zero()));
  REQUIRE(loop->change_watch(event.fd(), 0).ok());
  event.raise();
  CHECK_FALSE(loop->poll(Nanos::zero()));
  CHECK(event.count == 2);
}

TEST_CASE(
    "a handler that unwatches another descriptor of the same turn keeps its event from being delivered") {
  const auto loop = make_loop();
  Event first(*loop);
  auto second = std::make_unique<Event>(*loop);
  int total = 0;
  first.then = [&] {
    ++total;
    first.clear();
    second.reset();
  };
  second->then = [&] {
    ++total;
    second->clear();
    loop->unwatch(first.fd());
  };
  first.raise();
  second->raise();
  while (loop->poll(Nanos::zero())) {
  }
  CHECK(total == 1);
}

// Counts its runs, and runs a function.
struct Later final : Deferred {
  void run_deferred() noexcept override {
    ++count;
    if (then) then();
  }
  int count = 0;
  Task then;
};

TEST_CASE("deferred work runs once, in a later turn, in its order; what it defers runs in the turn after") {
  const auto loop = make_loop();
  Later first;
  Later second;
  std::string order;
  first.then = [&] {
    order += 'a';
    if (first.count == 1) loop->defer(first);
  };
  second.then = [&] { order += 'b'; };
  loop->defer(first);
  loop->defer(second);
  CHECK(order.empty());
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "ab");
  CHECK(loop->poll(Nanos::zero()));
  CHECK(order == "aba");
  CHECK_FALSE(loop->poll(Nanos::zero()));
}

TEST_CASE("deferred work that was dropped does not run, also when other work of its turn drops it") {
  const auto loop = make_loop();
  Later dropped;
  Later other;
  loop->defer(dropped);
  loop->drop_deferred(dropped);
  loop->poll(Nanos::zero());
  CHECK(dropped.count == 0);
  other.then = [&] { loop->drop_deferred(dropped); };
  loop->defer(other);
  loop->defer(dropped);
  loop->poll(Nanos::zero());
  CHECK(other.count == 1);
  CHECK(dropped.count == 0);
}

TEST_CASE("a loop does not block while something is deferred") {
  const auto loop = make_loop();
  Later later;
  loop->defer(later);
  loop->wait_until([&] { return later.count == 1; }, soon());
  CHECK(later.count == 1);
}

TEST_CASE("a poller is asked in every turn until it is removed, also from inside") {
  class Counter final : public Poller {
   public:
    explicit Counter(Loop& loop) : loop_(loop) {}
    bool poll_once() noexcept override {
      if (++turns == 3) loop_.remove_poller(*this);
      return true;
    }
    int turns = 0;

   private:
    Loop& loop_;
  };
  const auto loop = make_loop();
  Counter counter(*loop);
  loop->add_poller(counter);
  for (int i = 0; i < 10; ++i) loop->poll(Nanos::zero());
  CHECK(counter.turns == 3);
}

// Waits until a number that the other one changes is odd (or even), and changes it back.
struct Player final : Poller {
  Player(std::atomic<int>& number, int turn) : ball(number), mine(turn) {}
  bool poll_once() noexcept override {
    ++looks;
    if (ball.load() % 2 != mine) return false;
    ball.fetch_add(1);
    return true;
  }
  std::atomic<int>& ball;
  const int mine;
  std::int64_t looks = 0;
};

TEST_CASE(
    "two callers that wait for each other on one processor hand it over instead of using up their slices") {
  constexpr int kTurns = 2000;
  std::atomic<int> ball{0};
  const auto play = [&](int mine, std::int64_t& looks) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    const auto loop = make_loop({.spin = seconds(1), .max_spin = seconds(1)});
    Player player(ball, mine);
    loop->add_poller(player);
    loop->wait_until([&] { return ball.load() >= kTurns; }, soon());
    loop->remove_poller(player);
    looks = player.looks;
  };
  std::int64_t looks[2] = {};
  std::thread other([&] { play(1, looks[1]); });
  std::thread first([&] { play(0, looks[0]); });
  first.join();
  other.join();
  REQUIRE(ball.load() >= kTurns);
  // A slice of the scheduler is some hundred thousand looks.
  CHECK((looks[0] + looks[1]) / kTurns < 10'000);
}

TEST_CASE("beside a poller that has nothing descriptors are looked at often while they have something") {
  struct Idle final : Poller {
    bool poll_once() noexcept override {
      if (++polls == raise_at) event->raise();
      return false;
    }
    Event* event = nullptr;
    int polls = 0;
    int raise_at = 0;
  };
  const auto loop = make_loop({.spin = seconds(1), .max_spin = seconds(1)});
  Idle poller;
  loop->add_poller(poller);
  Event event(*loop);
  poller.event = &event;
  event.then = [&] { event.clear(); };
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    const int before = event.count;
    poller.raise_at = poller.polls + 1;
    loop->wait_until([&] { return event.count > before; }, soon());
    REQUIRE(event.count == before + 1);
    // Every 2 us once it is known that they have something; else every 200.
    if (round > 0) CHECK(poller.polls - poller.raise_at < 5000);
  }
  loop->remove_poller(poller);
}

}  // namespace
}  // namespace slime::transport::transport_loop_test
