#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "base/semaphore.h"

using namespace slime;

TEST_CASE("a wait of a semaphore takes a post that came before it") {
  Semaphore semaphore;
  semaphore.post();
  semaphore.post();
  semaphore.wait();
  semaphore.wait();
}

TEST_CASE("two threads take turns: each wait of a semaphore returns after one post") {
  constexpr int kTurns = 10'000;
  Semaphore ping;
  Semaphore pong;
  std::atomic<int> turns = 0;
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      ping.wait();
      ++turns;
      pong.post();
    }
  });
  bool in_order = true;
  for (int i = 0; i < kTurns; ++i) {
    in_order &= turns == i;
    ping.post();
    pong.wait();
  }
  other.join();
  CHECK(in_order);
  CHECK(turns == kTurns);
}
