#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/future.h"

using slime::Code;
using slime::Future;
using slime::Nanos;
using slime::Promise;
using slime::Result;
using slime::Status;
using slime::TimePoint;
using namespace std::chrono_literals;

namespace {

// A coroutine that starts at once and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached add_both(Future<int> left, Future<int> right, std::shared_ptr<std::atomic<int>> sum) {
  const Result<int> a = co_await std::move(left);
  const Result<int> b = co_await std::move(right);
  sum->store(a.value_or(-1000) + b.value_or(-1000));
}

// Completes a promise from inside the wait, as a loop driven by its caller does.
class StepDriver final : public slime::Driver {
 public:
  void wait(slime::UniqueFunction<bool()> done, TimePoint deadline, slime::Task) override {
    last_deadline = deadline;
    while (!done() && steps_left > 0) {
      --steps_left;
      if (steps_left == 0 && at_end) at_end();
    }
  }
  int steps_left = 0;
  slime::Task at_end;
  TimePoint last_deadline{};
};

}  // namespace

TEST_CASE("a completed future gives its value once") {
  Promise<int> promise;
  Future<int> future = promise.future();
  CHECK_FALSE(future.done());
  CHECK(promise.complete(7));
  CHECK(future.done());
  CHECK(*future.wait() == 7);
  const Result<int> again = future.wait();
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().code() == Code::kInvalidArgument);
}

TEST_CASE("only the first outcome counts") {
  Promise<int> promise;
  Future<int> future = promise.future();
  CHECK(promise.complete(Status(Code::kCancelled, "first")));
  CHECK_FALSE(promise.complete(2));
  CHECK(future.wait().error().code() == Code::kCancelled);
}

TEST_CASE("a wait that ends early takes nothing, and one may wait again") {
  Promise<int> promise;
  Future<int> future = promise.future();
  const Status status = future.wait(0s).error();
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(status.wait_timeout());
  CHECK_FALSE(future.wait_done(1ms));
  promise.complete(3);
  CHECK(*future.wait(0s) == 3);
}

TEST_CASE("a deadline that an operation had is told from a wait that ended early") {
  const auto future = Future<int>::ready(Status(Code::kDeadlineExceeded, "no answer"));
  CHECK_FALSE(Future<int>(future).wait(0s).error().wait_timeout());
  const Status early = Status::wait_timed_out();
  CHECK(Status(early).wait_timeout());  // copied too
  CHECK(Status(early).with_context("worker:0").wait_timeout());
}

TEST_CASE("an empty future answers instead of hanging") {
  Future<int> future;
  CHECK_FALSE(future.valid());
  CHECK_FALSE(future.done());
  CHECK(future.wait().error().code() == Code::kInvalidArgument);
  future.cancel();
}

TEST_CASE("a promise that is dropped completes with kInternal") {
  Future<int> future;
  {
    Promise<int> promise;
    future = promise.future();
  }
  CHECK(future.wait().error().code() == Code::kInternal);
}

TEST_CASE("a wait in one thread ends when another completes") {
  Promise<std::string> promise;
  Future<std::string> future = promise.future();
  std::thread other([promise = std::move(promise)]() mutable { promise.complete(std::string("done")); });
  CHECK(*future.wait(30s) == "done");
  other.join();
}

TEST_CASE("threads that wait for futures of a burst are woken at its end") {
  for (int round = 0; round < 100; ++round) {
    std::array<Promise<int>, 100> promises;  // more than are kept for later
    std::vector<std::thread> waiters;
    for (int i = 0; i < 4; ++i)
      waiters.emplace_back([future = promises[25 * i].future()]() mutable { CHECK(future.wait()); });
    std::vector<Future<int>> rest;
    for (Promise<int>& promise : promises) rest.push_back(promise.future());
    slime::detail::FutureCore::begin_burst();
    for (Promise<int>& promise : promises) promise.complete(1);
    slime::detail::FutureCore::end_burst();
    slime::detail::FutureCore::wake_sleepers();
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST_CASE("a callback within a burst may wait for a thread that an earlier future wakes") {
  for (int round = 0; round < 100; ++round) {
    Promise<int> first;
    Promise<int> second;
    std::thread waiter([future = first.future()]() mutable { CHECK(future.wait()); });
    auto future = second.future();
    future.on_done([&] { waiter.join(); });
    slime::detail::FutureCore::begin_burst();
    first.complete(1);
    second.complete(2);
    slime::detail::FutureCore::end_burst();
    CHECK_FALSE(waiter.joinable());
  }
}

TEST_CASE("a future that a callback completes within a burst wakes its thread at once") {
  for (int round = 0; round < 100; ++round) {
    Promise<int> first;
    Promise<int> inner;
    std::thread waiter([future = inner.future()]() mutable { CHECK(future.wait()); });
    first.future().on_done([&] {
      inner.complete(2);
      waiter.join();
    });
    slime::detail::FutureCore::begin_burst();
    first.complete(1);
    slime::detail::FutureCore::end_burst();
    CHECK_FALSE(waiter.joinable());
  }
}

TEST_CASE("a thread that sleeps within a burst wakes the threads of its burst first") {
  for (int round = 0; round < 100; ++round) {
    Promise<int> first;
    Promise<int> answer;
    std::thread waiter([future = first.future(), &answer]() mutable {
      CHECK(future.wait());
      answer.complete(2);
    });
    slime::detail::FutureCore::begin_burst();
    first.complete(1);
    CHECK(*answer.future().wait() == 2);
    slime::detail::FutureCore::end_burst();
    waiter.join();
  }
}

TEST_CASE("then runs with the outcome, before or after it is there") {
  int seen = 0;
  Promise<int> promise;
  promise.future().then([&](Result<int> result) { seen = *result; });
  CHECK(seen == 0);
  promise.complete(5);
  CHECK(seen == 5);
  Future<int>::ready(6).then([&](Result<int> result) { seen = *result; });
  CHECK(seen == 6);
}

TEST_CASE("then may destroy the promise that completes it") {
  auto promise = std::make_unique<Promise<int>>();
  bool ran = false;
  promise->future().then([&](Result<int>) {
    promise.reset();
    ran = true;
  });
  promise->complete(1);
  CHECK(ran);
}

TEST_CASE("cancel asks once; the outcome still comes from the promise") {
  auto promise = std::make_shared<Promise<int>>();
  Future<int> future = promise->future();
  int asked = 0;
  promise->on_cancel([&asked, promise] {
    ++asked;
    promise->complete(Status(Code::kCancelled, "asked"));
  });
  future.cancel();
  future.cancel();
  CHECK(asked == 1);
  CHECK(future.wait().error().code() == Code::kCancelled);
}

TEST_CASE("cancel after the outcome does nothing, and what it owned is freed") {
  const auto owned = std::make_shared<int>(1);
  Promise<int> promise;
  Future<int> future = promise.future();
  promise.on_cancel([owned] { FAIL("cancelled after completion"); });
  CHECK(owned.use_count() == 2);
  promise.complete(1);
  CHECK(owned.use_count() == 1);
  future.cancel();
  promise.on_cancel([owned] { FAIL("cancelled after completion"); });
  CHECK(owned.use_count() == 1);
  CHECK(*future.wait() == 1);
}

// An outcome that counts how often it is destroyed untaken.
struct Returned {
  explicit Returned(int& n) : count(&n) {}
  Returned(Returned&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
  Returned& operator=(Returned&&) = delete;
  ~Returned() {
    if (count != nullptr) ++*count;
  }
  int* count;
};

TEST_CASE("dropping the last copy of an owning future cancels") {
  Promise<int> promise;
  int cancelled = 0;
  promise.on_cancel([&] { ++cancelled; });
  auto future = promise.owning_future();
  auto copy = future;
  future = {};
  CHECK(cancelled == 0);
  copy = {};
  CHECK(cancelled == 1);
  promise.complete(1);  // has no effect
}

TEST_CASE("an owning future that is dropped or cancelled destroys an outcome that was not taken") {
  int returned = 0;
  const auto make = [&](Promise<int>& promise) {
    promise.complete_with([r = Returned(returned)]() mutable -> Result<int> {
      r.count = nullptr;
      return 7;
    });
  };
  {
    Promise<int> promise;
    auto future = promise.owning_future();
    make(promise);
    CHECK(returned == 0);
    future = {};
    CHECK(returned == 1);
  }
  {
    Promise<int> promise;
    auto future = promise.owning_future();
    make(promise);
    future.cancel();
    CHECK(returned == 2);
    CHECK(future.wait().status().code() == Code::kCancelled);
  }
  {
    Promise<int> promise;
    auto future = promise.owning_future();
    make(promise);
    CHECK(*future.wait() == 7);
    future.cancel();
  }
  {
    Promise<int> promise;
    auto future = promise.owning_future();
    future = {};
    make(promise);  // completed after the cancel
  }
  CHECK(returned == 3);
  {
    Promise<int> promise;
    auto future = promise.owning_future();
    future.cancel();
    make(promise);  // completed after the cancel, while the future is kept
    CHECK(returned == 4);
    CHECK(future.wait().status().code() == Code::kCancelled);
  }
}

TEST_CASE("an owning future is taken or given back, never both, when two threads race") {
  for (int i = 0; i < 2000; ++i) {
    int returned = 0;
    Promise<int> promise;
    auto future = promise.owning_future();
    std::thread completer([&] {
      promise.complete_with([r = Returned(returned)]() mutable -> Result<int> {
        r.count = nullptr;
        return 7;
      });
    });
    future.cancel();
    const auto outcome = future.wait();
    completer.join();
    CHECK((outcome.has_value() ? 1 : 0) + returned == 1);
  }
}

TEST_CASE("a coroutine awaits futures that are ready and futures that are not") {
  const auto sum = std::make_shared<std::atomic<int>>(0);
  Promise<int> late;
  add_both(Future<int>::ready(1), late.future(), sum);
  CHECK(sum->load() == 0);
  late.complete(41);
  CHECK(sum->load() == 42);
}

TEST_CASE("a coroutine resumes on the thread that completes, many times over") {
  for (int i = 0; i < 200; ++i) {
    const auto sum = std::make_shared<std::atomic<int>>(0);
    Promise<int> left;
    Promise<int> right;
    Future<int> a = left.future();
    Future<int> b = right.future();
    std::thread completer([&] {
      left.complete(i);
      right.complete(1);
    });
    add_both(std::move(a), std::move(b), sum);
    completer.join();
    CHECK(sum->load() == i + 1);
  }
}

TEST_CASE("cancel and complete may race") {
  for (int i = 0; i < 200; ++i) {
    Promise<int> promise;
    Future<int> future = promise.future();
    std::atomic<int> cancels{0};
    promise.on_cancel([&] { ++cancels; });
    std::thread canceller([&] { future.cancel(); });
    promise.complete(i);
    canceller.join();
    CHECK(*future.wait() == i);
    CHECK(cancels.load() <= 1);
  }
}

TEST_CASE("a future with a driver makes progress in the waiting thread") {
  const auto driver = std::make_shared<StepDriver>();
  Promise<int> promise(driver);
  Future<int> future = promise.future();
  driver->steps_left = 3;
  CHECK(future.wait(1h).error().code() == Code::kDeadlineExceeded);
  driver->steps_left = 3;
  driver->at_end = [&] { promise.complete(11); };
  CHECK(*future.wait() == 11);
  CHECK(driver->last_deadline == slime::kNever);
}
