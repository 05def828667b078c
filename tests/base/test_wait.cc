#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/wait.h"

namespace test_wait {
namespace {

using slime::Code;
using slime::Driver;
using slime::Future;
using slime::kNever;
using slime::Promise;
using slime::Status;
using slime::TimePoint;
using namespace std::chrono_literals;

constexpr std::size_t kMany = 1000;

struct Promises {
  explicit Promises(std::size_t count, const std::shared_ptr<Driver>& driver = nullptr) {
    for (std::size_t i = 0; i < count; ++i) all.emplace_back(driver);
  }
  [[nodiscard]] std::vector<Future<int>> futures() const {
    std::vector<Future<int>> out;
    for (const Promise<int>& each : all) out.push_back(each.future());
    return out;
  }
  void complete_all() {
    for (std::size_t i = 0; i < all.size(); ++i) all[i].complete(static_cast<int>(i));
  }
  std::vector<Promise<int>> all;
};

// A driver with a thread of its own: lets the waiting thread sleep, after `before_sleep` has run.
class SleepDriver final : public Driver {
 public:
  void wait(slime::UniqueFunction<bool()> done, TimePoint, slime::Task sleep) override {
    if (done()) return;
    ++sleeps;
    if (before_sleep) before_sleep();
    sleep();
    done_after_sleep = done();
  }
  slime::Task before_sleep;
  int sleeps = 0;
  bool done_after_sleep = false;
};

// A driver without a thread: each turn completes one promise, in the waiting thread. Drops each
// completed promise, which owns the driver.
class TurnDriver final : public Driver {
 public:
  void wait(slime::UniqueFunction<bool()> done, TimePoint deadline, slime::Task) override {
    while (!done() && slime::steady_clock().now() < deadline) {
      if (next < promises.size()) std::exchange(promises[next++], Promise<int>()).complete(1);
    }
  }
  std::vector<Promise<int>> promises;
  std::size_t next = 0;
};

// How often this thread has given up the processor to wait.
long waits_of_this_thread() {
  rusage use{};
  REQUIRE(::getrusage(RUSAGE_THREAD, &use) == 0);
  return use.ru_nvcsw;
}

}  // namespace

TEST_CASE("wait_all returns when every future is done, and takes nothing") {
  Promises promises(3);
  const auto futures = promises.futures();
  std::thread other([&] { promises.complete_all(); });
  CHECK(slime::wait_all(futures, 30s));
  other.join();
  for (std::size_t i = 0; i < 3; ++i) CHECK(*Future<int>(futures[i]).wait(0s) == static_cast<int>(i));
}

TEST_CASE("wait_all ends after its timeout, and may be called again") {
  Promises promises(2);
  promises.all[0].complete(1);
  CHECK_FALSE(slime::wait_all(promises.futures(), 0s));
  CHECK_FALSE(slime::wait_all(promises.futures(), 1ms));
  promises.all[1].complete(Status(Code::kCancelled, "an error is an end, too"));
  CHECK(slime::wait_all(promises.futures(), 0s));
}

TEST_CASE("no futures are all done, and none of them is") {
  CHECK(slime::wait_all(std::vector<Future<int>>(), 0s));
  CHECK_FALSE(slime::wait_any(std::vector<Future<int>>(), 0s).has_value());
  CHECK_FALSE(slime::as_completed(std::vector<Future<int>>()).next().has_value());
}

TEST_CASE("an empty future is done: its wait answers at once") {
  Promises promises(1);
  const std::vector<Future<int>> futures{promises.all[0].future(), Future<int>()};
  CHECK(slime::wait_any(futures, 0s) == 1);
  auto completed = slime::as_completed(futures, 0s);
  CHECK_FALSE(completed.next()->valid());
  CHECK_FALSE(completed.next().has_value());
  CHECK(completed.left() == 1);
}

TEST_CASE("wait_any gives the first future of the list that is done") {
  Promises promises(4);
  CHECK_FALSE(slime::wait_any(promises.futures(), 1ms).has_value());
  promises.all[3].complete(3);
  CHECK(slime::wait_any(promises.futures(), 30s) == 3);
  promises.all[1].complete(1);
  CHECK(slime::wait_any(promises.futures(), 30s) == 1);
}

TEST_CASE("as_completed gives futures in the order in which they end, each once") {
  Promises promises(4);
  promises.all[2].complete(2);
  auto completed = slime::as_completed(promises.futures());
  std::vector<int> order{*completed.next()->wait(0s)};
  for (const std::size_t number : {3, 0, 1}) {
    std::thread other([&] { promises.all[number].complete(static_cast<int>(number)); });
    order.push_back(*completed.next()->wait(0s));
    other.join();
  }
  CHECK(order == std::vector<int>{2, 3, 0, 1});
  CHECK(completed.left() == 0);
  CHECK_FALSE(completed.next().has_value());
}

TEST_CASE("as_completed has one timeout for all futures, and gives those that are done after it") {
  Promises promises(3);
  auto completed = slime::as_completed(promises.futures(), 1ms);
  CHECK_FALSE(completed.next().has_value());
  promises.all[1].complete(1);
  CHECK(*completed.next()->wait(0s) == 1);
  CHECK_FALSE(completed.next().has_value());
  CHECK(completed.left() == 2);
}

TEST_CASE("a burst wakes the thread that waits for all once") {
  const auto driver = std::make_shared<SleepDriver>();
  Promises promises(kMany, driver);
  std::thread other;
  driver->before_sleep = [&] { other = std::thread([&] { promises.complete_all(); }); };
  const long before = waits_of_this_thread();
  CHECK(slime::wait_all(promises.futures(), 30s));
  const long waits = waits_of_this_thread() - before;
  other.join();
  CHECK(driver->sleeps == 1);
  CHECK(driver->done_after_sleep);  // not after the first future
  CHECK(waits < 20);
}

TEST_CASE("as_completed does not sleep for futures that ended in one burst") {
  const auto driver = std::make_shared<SleepDriver>();
  Promises promises(kMany, driver);
  driver->before_sleep = [&] { promises.complete_all(); };
  auto completed = slime::as_completed(promises.futures(), 30s);
  std::size_t count = 0;
  while (completed.next()) ++count;
  CHECK(count == kMany);
  CHECK(driver->sleeps == 1);
}

TEST_CASE("a waiting thread drives futures that only it can drive") {
  const auto driver = std::make_shared<TurnDriver>();
  Promises promises(100, driver);
  const auto futures = promises.futures();
  driver->promises = std::move(promises.all);
  CHECK(slime::wait_any(futures, 30s) == 0);
  CHECK(slime::wait_all(futures, 30s));
  CHECK(driver->next == 100);
}

TEST_CASE("as_completed drives too") {
  const auto driver = std::make_shared<TurnDriver>();
  Promises promises(100, driver);
  auto completed = slime::as_completed(promises.futures(), 30s);
  driver->promises = std::move(promises.all);
  std::size_t count = 0;
  while (completed.next()) ++count;
  CHECK(count == 100);
}

TEST_CASE("futures of several drivers, with threads and without, are waited for together") {
  const auto sleeper = std::make_shared<SleepDriver>();
  const auto first = std::make_shared<TurnDriver>();
  const auto second = std::make_shared<TurnDriver>();
  Promises of_first(3, first);
  Promises of_second(3, second);
  Promises elsewhere(3, sleeper);
  Promises without(3);
  std::vector<Future<int>> futures;
  for (const Promises* each : {&of_first, &of_second, &elsewhere, &without}) {
    for (const Future<int>& future : each->futures()) futures.push_back(future);
  }
  first->promises = std::move(of_first.all);
  second->promises = std::move(of_second.all);
  std::thread other([&] {
    elsewhere.complete_all();
    without.complete_all();
  });
  CHECK(slime::wait_all(futures, 30s));
  other.join();
}

TEST_CASE("futures of several drivers with threads of their own let the waiting thread sleep") {
  const auto first = std::make_shared<SleepDriver>();
  const auto second = std::make_shared<SleepDriver>();
  Promises of_first(1, first);
  Promises of_second(1, second);
  std::thread other;
  second->before_sleep = [&] {
    other = std::thread([&] {
      of_first.complete_all();
      of_second.complete_all();
    });
  };
  CHECK(slime::wait_all(std::vector{of_first.all[0].future(), of_second.all[0].future()}, 30s));
  other.join();
  CHECK(first->sleeps <= 1);
  CHECK(second->sleeps <= 1);
}

TEST_CASE("a wait that is over leaves futures that end later alone") {
  Promises promises(2);
  CHECK_FALSE(slime::wait_any(promises.futures(), 1ms).has_value());
  {
    auto completed = slime::as_completed(promises.futures(), 1ms);
    CHECK_FALSE(completed.next().has_value());
  }
  promises.complete_all();
  CHECK(slime::wait_all(promises.futures(), 0s));
}

TEST_CASE("a wait set adds one callback to a future, however often it waits") {
  const auto counted = std::make_shared<std::atomic<int>>(0);
  struct Counted {
    Future<int> future;
    std::shared_ptr<std::atomic<int>> callbacks;
    [[nodiscard]] bool done() const { return future.done(); }
    [[nodiscard]] bool valid() const { return future.valid(); }
    [[nodiscard]] std::shared_ptr<Driver> driver() const { return future.driver(); }
    void on_done(slime::Task task) const {
      ++*callbacks;
      future.on_done(std::move(task));
    }
  };
  Promises promises(2);
  slime::WaitSet<Counted> set({{promises.all[0].future(), counted}, {promises.all[1].future(), counted}});
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(set.wait_all(1ms));
    CHECK_FALSE(set.wait_any(1ms).has_value());
    CHECK_FALSE(set.next(1ms).has_value());
  }
  CHECK(*counted == 2);
  promises.complete_all();
  CHECK(set.wait_all(0s));
  CHECK(set.next(0s) == 0);
  CHECK(set.next(0s) == 1);
  CHECK(set.left() == 0);
}

TEST_CASE("many threads complete what one waits for") {
  Promises promises(kMany);
  auto completed = slime::as_completed(promises.futures(), 60s);
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&promises, first] {
      for (std::size_t i = first; i < kMany; i += 4) promises.all[i].complete(static_cast<int>(i));
    });
  }
  std::vector<int> seen;
  while (const auto future = completed.next()) seen.push_back(*Future<int>(*future).wait(0s));
  for (std::thread& each : threads) each.join();
  std::sort(seen.begin(), seen.end());
  CHECK(seen.size() == kMany);
  CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
}

}  // namespace test_wait
