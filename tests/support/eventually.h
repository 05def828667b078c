#pragma once

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "tests/support/settings.h"

namespace slime::test {

// Waits for an effect of another thread or process that cannot be waited for directly: checks the
// condition every millisecond. Returns false after `bound`, which only a failing test reaches.
template <class Condition>
bool eventually(Condition condition, Nanos bound = patient(std::chrono::seconds(30))) {
  const TimePoint end = deadline_after(steady_clock().now(), bound);
  while (!condition()) {
    if (steady_clock().now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace slime::test
