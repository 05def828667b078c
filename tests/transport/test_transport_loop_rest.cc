#include <atomic>
#include <chrono>
#include <thread>

#include "tests/transport/loop_callers.h"

// Callers that wait for descriptors and sleep in place of the loop's thread. After a lost wake-up
// they would go on 10 ms later. There are so many rounds that the deadline of all of them tells.
namespace slime::transport {
namespace {

using namespace testing;

// Passes time without sleeping, so that a caller meanwhile spins or, if it spins no more, sleeps.
void pass(std::chrono::microseconds time) {
  const TimePoint end = steady_clock().now() + time;
  while (steady_clock().now() < end) std::this_thread::yield();
}

TEST_CASE("a caller that sleeps in place of the thread wakes for events and for posted tasks") {
  const auto loop = start_loop();
  Event event(*loop);
  const TimePoint end = soon();
  int by_caller = 0;
  for (int round = 0; round < 4000; ++round) {
    const int before = event.heard;
    Goal posted;
    const auto over = [&] { return event.heard > before && posted.reached(); };
    std::thread partner([&] {
      pass(std::chrono::microseconds(round % 300));
      const bool event_first = round % 2 == 0;
      if (event_first) event.raise();
      loop->post([&] { posted.reach(); });
      if (!event_first) event.raise();
    });
    loop->wait(over, soon(), [&] {
      event.wait_for(before + 1);
      posted.sleep();
    });
    CHECK(over());
    partner.join();
    if (event.heard_by == std::this_thread::get_id()) ++by_caller;
  }
  CHECK(steady_clock().now() < end);  // an event that wakes nothing is seen 10 ms later
  CHECK(by_caller > 0);
  MESSAGE("by the caller: " << by_caller << " of 4000");
}

TEST_CASE("a caller that sleeps in place of the thread serves other callers, too") {
  const auto loop = start_loop();
  Event last(*loop);
  const TimePoint end = soon();
  std::thread sleeper([&] {
    while (last.heard == 0)
      loop->wait([&] { return last.heard > 0; }, steady_clock().now() + std::chrono::milliseconds(20), [] {});
  });
  for (int round = 0; round < 2000; ++round) {
    Goal goal;
    loop->post([&] { goal.reach(); });
    goal.wait(*loop);
    pass(std::chrono::microseconds(round % 100));
  }
  CHECK(steady_clock().now() < end);
  last.raise();
  sleeper.join();
}

}  // namespace
}  // namespace slime::transport
