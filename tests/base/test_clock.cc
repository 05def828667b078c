#include <doctest/doctest.h>

#include "base/clock.h"

using slime::kNever;
using slime::ManualClock;
using slime::Nanos;
using slime::TimePoint;
using namespace std::chrono_literals;

TEST_CASE("the coarse time is never later than the time") {
  const slime::Clock& clock = slime::steady_clock();
  for (int i = 0; i < 1000; ++i) {
    const slime::TimePoint coarse = clock.coarse_now();
    CHECK(coarse <= clock.now());
    CHECK(coarse > slime::TimePoint{});
  }
}

TEST_CASE("a manual clock has one time, coarse or not") {
  ManualClock clock;
  clock.advance(1ms);
  CHECK(clock.coarse_now() == clock.now());
}

TEST_CASE("a manual clock moves only when told to, and never back") {
  ManualClock clock;
  const TimePoint start = clock.now();
  CHECK(clock.now() == start);
  clock.advance(5ms);
  CHECK(clock.now() - start == 5ms);
  clock.advance_to(start + 1s);
  CHECK(clock.now() - start == 1s);
  clock.advance_to(start);
  CHECK(clock.now() - start == 1s);
}

TEST_CASE("the steady clock does not go back") {
  const TimePoint before = slime::steady_clock().now();
  CHECK(slime::steady_clock().now() >= before);
}

TEST_CASE("deadlines saturate instead of overflowing") {
  const TimePoint now = slime::steady_clock().now();
  CHECK(slime::deadline_after(now, 2s) == now + 2s);
  CHECK(slime::deadline_after(now, 0s) == now);
  CHECK(slime::deadline_after(now, -1s) == now);
  CHECK(slime::deadline_after(now, Nanos::min()) == now);
  CHECK(slime::deadline_after(now, Nanos::max()) == kNever);
  CHECK(slime::deadline_after(kNever, 1s) == kNever);
  CHECK(slime::deadline_after(kNever - 1s, 1s) == kNever);
}
