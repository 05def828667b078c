// How often operations through agents lock a mutex and read a clock, both sides together.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "tests/instructions/counts.h"

namespace slime::testing {
namespace {

constexpr int kInFlight = 64;
// operations, until every table and pool has the size that it keeps; counted ones
constexpr int kFirst = 1024;
constexpr int kCounted = 4096;
// On a busy machine a thread looks for work more often, and sleeps more often. So an operation is
// counted again, at most this often, as long as it is above its bounds.
constexpr int kRuns = 20;

struct Each {  // of one operation, or of one turn
  double locks = 0;
  double clocks = 0;
};

Each each_of(const Counts& before, const Counts& after, double number) {
  const Counts spent = after - before;
  return {.locks = static_cast<double>(spent.locks) / number,
          .clocks = static_cast<double>(spent.clocks) / number};
}

Each least_of(const std::function<Each()>& run, const Each& most) {
  Each out = run();
  for (int i = 1; i < kRuns && (out.locks > most.locks || out.clocks > most.clocks); ++i) {
    const Each one = run();
    out = {.locks = std::min(out.locks, one.locks), .clocks = std::min(out.clocks, one.clocks)};
  }
  return out;
}

// An agent that calls and one that serves.
class Pair {
 public:
  Pair(const std::string& provider, Progress progress)
      : server(start(provider, "server", progress)), client(start(provider, "client", progress)) {
    REQUIRE(service.add("next", [](std::uint64_t n) { return n + 1; }, {rpc::Run::kInline}).ok());
    REQUIRE(server->serve(service).ok());
    from = require(client->allocate(64 << 10, Rights::kLocal));
    to = require(server->allocate(64 << 10, Rights::kReadWrite));
    REQUIRE(server->publish("memory", to).ok());
    peer = client->peer(server->address());
    if (progress == Progress::kCaller) drive();
    REQUIRE(peer.connect().wait().has_value());
    remote = require(peer.region("memory"));
  }
  ~Pair() { stop(); }

  // Polls the server in a thread, until stop().
  void drive() {
    over_.store(false);
    driver_ = std::thread([this] {
      while (!over_.load()) server->poll(std::chrono::milliseconds(20));
    });
  }
  void stop() {
    if (!driver_.joinable()) return;
    over_.store(true);
    server->wake();
    driver_.join();
  }

  [[nodiscard]] Future<std::uint64_t> call(std::uint64_t number) {
    return peer.call<std::uint64_t>("calculator", "next", number);
  }
  [[nodiscard]] Future<None> write() {
    const Copy copy{.local = from, .remote = remote, .length_bytes = 64};
    return peer.write({&copy, 1});
  }

  rpc::Service service{"calculator"};
  std::unique_ptr<PeerAgent> server;
  std::unique_ptr<PeerAgent> client;
  Peer peer;
  MemoryRegion from;
  MemoryRegion to;
  RemoteRegion remote;

 private:
  static std::unique_ptr<PeerAgent> start(const std::string& provider, std::string name, Progress progress) {
    PeerAgentOptions options;
    options.name = std::move(name);
    options.provider = provider;
    options.progress = progress;
    return require(PeerAgent::start(std::move(options)));
  }
  template <class T>
  static T require(Result<T> result) {
    INFO(result.status().to_string());
    REQUIRE(result.has_value());
    return std::move(*result);
  }

  std::atomic<bool> over_{false};
  std::thread driver_;
};

// Keeps `in_flight` operations under way, and waits for the oldest.
template <class T>
Each operations(int in_flight, const std::function<Future<T>()>& begin) {
  std::vector<Future<T>> under_way;
  for (int i = 0; i < in_flight; ++i) under_way.push_back(begin());
  Counts before;
  int right = 0;
  for (int i = 0; i < kFirst + kCounted; ++i) {
    if (i == kFirst) before = counts();
    Future<T>& oldest = under_way[static_cast<std::size_t>(i % in_flight)];
    right += oldest.wait().has_value() ? 1 : 0;
    oldest = begin();
  }
  const Counts after = counts();
  for (Future<T>& last : under_way) right += last.wait().has_value() ? 1 : 0;
  CHECK(right == kFirst + kCounted + in_flight);
  return each_of(before, after, kCounted);
}

// The most of each for one operation.
struct Bounds {
  std::string provider;
  int in_flight = 1;
  Each call;
  Each write;
};

void check(const Bounds& bounds, const std::string& what, const Each& most,
           const std::function<Each()>& run) {
  const Each found = least_of(run, most);
  INFO(bounds.provider, ", ", what, ", ", bounds.in_flight, " in flight: ", found.locks, " locks, ",
       found.clocks, " clock readings");
  CHECK(found.locks <= most.locks);
  CHECK(found.clocks <= most.clocks);
}

void check_operations(Progress mode, const std::vector<Bounds>& all) {
  for (const Bounds& bounds : all) {
    Pair pair(bounds.provider, mode);
    check(bounds, "calls", bounds.call,
          [&] { return operations<std::uint64_t>(bounds.in_flight, [&] { return pair.call(1); }); });
    check(bounds, "writes", bounds.write,
          [&] { return operations<None>(bounds.in_flight, [&] { return pair.write(); }); });
  }
}

constexpr double kNone = 0.05;  // what happens now and then, beside the operations
// A thread that waits reads the clock in each turn; how long it waits is the machine's.
constexpr double kAny = std::numeric_limits<double>::infinity();

TEST_CASE("the counters count") {
  std::mutex mutex;
  const Counts before = counts();
  mutex.lock();
  mutex.unlock();
  const bool locked = mutex.try_lock();
  static_cast<void>(std::chrono::steady_clock::now());
  const Counts after = counts();
  REQUIRE(locked);
  mutex.unlock();
  CHECK(after.locks - before.locks == 2);
  CHECK(after.clocks - before.clocks == 1);
}

TEST_CASE("an operation of spinning agents locks nothing, except for a write over tcp") {
  check_operations(Progress::kCaller, {{"shm", 1, {kNone, kAny}, {kNone, 3.5}},
                                       {"shm", kInFlight, {kNone, kAny}, {kNone, 1.5}},
                                       {"tcp", 1, {kNone, kAny}, {1 + kNone, kAny}},
                                       {"tcp", kInFlight, {kNone, kAny}, {1 + kNone, kAny}}});
}

TEST_CASE("an operation in default mode locks two or three times at most") {
  check_operations(Progress::kThread, {{"shm", 1, {2.5, kAny}, {kNone, 1.5}},
                                       {"shm", kInFlight, {2.5, 3}, {1.5, 2}},
                                       {"tcp", 1, {2.5, kAny}, {2.5, kAny}},
                                       {"tcp", kInFlight, {2.5, kAny}, {2.5, kAny}}});
}

// One thread drives both ends, so that a poll() is a turn of one of them.
TEST_CASE("a turn of a spinning loop locks nothing, and reads the clock twice at most") {
  for (const std::string provider : {"shm", "tcp"}) {
    CAPTURE(provider);
    Pair pair(provider, Progress::kCaller);
    pair.stop();
    std::vector<Future<std::uint64_t>> under_way(kInFlight);
    constexpr int kRounds = 100;
    Counts begun;
    Counts turned;
    int turns = 0;
    for (int i = -kRounds; i < kRounds; ++i) {
      if (i == 0) begun = turned = {};
      if (i == 0) turns = 0;
      const Counts before = counts();
      for (auto& call : under_way) call = pair.call(1);
      const Counts between = counts();
      for (const auto& call : under_way) {
        for (; !call.done(); turns += 2) {
          pair.client->poll(Nanos::zero());
          pair.server->poll(Nanos::zero());
        }
      }
      const Counts after = counts();
      begun += between - before;
      turned += after - between;
      for (auto& call : under_way) REQUIRE(call.wait().has_value());
    }
    const Each call = each_of({}, begun, kRounds * kInFlight);
    CHECK(call.locks <= kNone);
    CHECK(call.clocks <= 1 + kNone);
    const Each turn = each_of({}, turned, turns);
    CHECK(turn.locks <= kNone);
    CHECK(turn.clocks <= 2);
    const Counts before = counts();
    for (int i = 0; i < kCounted; ++i) pair.client->poll(Nanos::zero());
    const Each idle = each_of(before, counts(), kCounted);
    CHECK(idle.locks <= kNone);
    CHECK(idle.clocks <= 1 + kNone);
    INFO("a call: ", call.clocks, " clock readings; a turn with work: ", turn.clocks,
         "; without: ", idle.clocks);
    CHECK(turns > 0);
    pair.drive();
  }
}

}  // namespace
}  // namespace slime::testing
