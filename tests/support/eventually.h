#pragma once

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "tests/support/settings.h"

namespace slime::test {

// For what another thread or process brings about and nothing can wait for: looks again every millisecond
// until it is so. False after `bound`, which only a failure reaches.
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
