// States, deadlines and stalls of an endpoint, without one.
#include <doctest/doctest.h>

#include <memory>

#include "transport/endpoint/life.h"

namespace slime::transport::testing {
namespace {

using namespace std::chrono_literals;

struct Posted {
  TimeBounds bounds;
  bool started = false;
};

Posted posted(TimePoint deadline, Nanos stall = Nanos::zero(), bool started = false) {
  Posted out;
  out.bounds.deadline = deadline;
  out.bounds.stall = stall;
  out.started = started;
  return out;
}

constexpr TimePoint kStart{};

}  // namespace

TEST_CASE("the first error sticks, and operations end with it") {
  EndpointLife life(EndpointLife::State::kOpen);
  CHECK(life.takes_posts());
  CHECK(life.break_with(Status(Code::kCorrupt, "first")));
  CHECK_FALSE(life.break_with(Status(Code::kUnavailable, "second")));
  CHECK(life.broken());
  CHECK_FALSE(life.working());
  CHECK(life.error().code() == Code::kCorrupt);
  CHECK(life.leftover().code() == Code::kCorrupt);
  life.end();
  CHECK(life.ended());
  CHECK(life.tell_closed());
  CHECK_FALSE(life.tell_closed());
}

TEST_CASE("a reset for one operation's deadline leaves the others unavailable") {
  EndpointLife life(EndpointLife::State::kOpen);
  life.break_with(Status(Code::kDeadlineExceeded, "late"));
  CHECK(life.error().code() == Code::kDeadlineExceeded);
  CHECK(life.leftover().code() == Code::kUnavailable);
}

TEST_CASE("a close works until it breaks, and is no error") {
  EndpointLife life(EndpointLife::State::kConnecting);
  CHECK(life.close_by() == kNever);
  CHECK(life.close(kStart + 1s));
  CHECK_FALSE(life.close(kStart + 2s));
  CHECK(life.close_by() == kStart + 1s);
  life.opened();  // too late
  CHECK(life.closing());
  CHECK(life.working());
  CHECK_FALSE(life.takes_posts());
  life.leave(Status(Code::kCancelled, "left"));
  CHECK(life.break_with(Status(Code::kUnavailable, "closed")));
  CHECK(life.error().ok());
  CHECK(life.leftover().text() == "left");
}

TEST_CASE("one timer fires at the earliest time that it was armed for") {
  ManualClock clock;
  const std::shared_ptr<Loop> loop = *Loop::create({.clock = &clock});
  EndpointTimer timer(*loop);
  int fired = 0;
  Nanos paused{};
  timer.on_fire([&](TimePoint, Nanos pause) {
    ++fired;
    paused = pause;
  });
  const TimePoint start = clock.now();
  timer.arm(start + 2s);
  timer.arm(start + 1s);
  timer.arm(start + 3s);
  clock.advance(1s);
  loop->poll(Nanos::zero());
  CHECK(fired == 1);
  CHECK(paused == Nanos::zero());
  timer.arm(start + 2s);
  clock.advance(3s);  // the machine was halted meanwhile
  loop->poll(Nanos::zero());
  CHECK(fired == 2);
  CHECK(paused == 2s);
  timer.arm(clock.now() + 1s);
  timer.cancel();
  clock.advance(2s);
  loop->poll(Nanos::zero());
  CHECK(fired == 2);
}

TEST_CASE("of late operations those that have not started end, and one that has resets") {
  SlotMap<Posted> operations(8);
  const auto [early, early_at] = operations.emplace(posted(kStart + 1s));
  operations.emplace(posted(kStart + 5s));
  StallWatch watch;
  int on_time = 0;
  TimePoint next = kNever;
  StallWatch::Late late = watch.look(operations, kStart + 2s, next, [&](Posted&) { ++on_time; });
  CHECK(late.reset == nullptr);
  REQUIRE(late.not_started.size() == 1);
  CHECK(late.not_started.front() == early);
  CHECK(on_time == 1);
  CHECK(next == kStart + 5s);
  operations.find(early)->started = true;
  late = watch.look(operations, kStart + 2s, next, [](Posted&) {});
  REQUIRE(late.reset != nullptr);
  CHECK(late.reset->passed == Overdue::kDeadline);
}

TEST_CASE("a stall counts once it is found again, and not after progress or a pause") {
  SlotMap<Posted> operations(8);
  operations.emplace(posted(kNever, 1s, true));
  StallWatch watch;
  const auto look = [&](TimePoint now) {
    TimePoint next = kNever;
    const bool reset = watch.look(operations, now, next, [](Posted&) {}).reset != nullptr;
    return std::pair(reset, next);
  };
  CHECK(look(kStart + 1s) == std::pair(false, kStart + 1s));  // suspected: looks again at once
  watch.note_progress(kStart + 1s);
  CHECK_FALSE(look(kStart + 1s).first);
  watch.excuse(operations, 1s, kStart + 3s);
  CHECK(watch.last_progress() == kStart + 2s);
  CHECK_FALSE(look(kStart + 2500ms).first);
  CHECK_FALSE(look(kStart + 3s).first);
  CHECK(look(kStart + 3s).first);
}

}  // namespace slime::transport::testing
