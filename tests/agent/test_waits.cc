#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/wait.h"
#include "tests/agent/agents.h"

// Waits for many calls of agents that a thread drives, and of agents that their callers drive.
namespace slime::test_waits {
namespace {

using namespace test;

constexpr std::int64_t kCalls = 200;

std::vector<Future<std::int64_t>> calls_of(Peer peer, std::int64_t count = kCalls) {
  std::vector<Future<std::int64_t>> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(peer.call<std::int64_t>("calc", "add", i, std::int64_t{1}));
  return out;
}

struct World {
  explicit World(Progress progress) : server(start("server")), client(start("client", progress)) {
    auto service = calculator();
    REQUIRE(server->serve(service).ok());
  }
  [[nodiscard]] Peer peer() const { return client->peer(server->address()); }
  std::unique_ptr<PeerAgent> server;
  std::unique_ptr<PeerAgent> client;
};

constexpr Progress kModes[] = {Progress::kThread, Progress::kCaller, Progress::kPolled};

}  // namespace

TEST_CASE("wait_all waits for calls of every mode of progress") {
  for (const Progress progress : kModes) {
    const World world(progress);
    const auto futures = calls_of(world.peer());
    REQUIRE(wait_all(futures, kSoon));
    for (std::int64_t i = 0; i < kCalls; ++i)
      CHECK(take(Future<std::int64_t>(futures[static_cast<std::size_t>(i)]).wait(Nanos::zero())) == i + 1);
  }
}

TEST_CASE("as_completed gives each call once in every mode of progress") {
  for (const Progress progress : kModes) {
    const World world(progress);
    auto completed = as_completed(calls_of(world.peer()), kSoon);
    std::set<std::int64_t> seen;
    while (auto future = completed.next()) seen.insert(take(future->wait(Nanos::zero())));
    CHECK(completed.left() == 0);
    CHECK(seen.size() == static_cast<std::size_t>(kCalls));
  }
}

TEST_CASE("wait_any ends when one call is done, and on its timeout") {
  for (const Progress progress : kModes) {
    const World world(progress);
    REQUIRE(world.peer().connect().wait(kSoon).has_value());
    const std::vector<Future<Payload>> never{world.peer().recv(1), world.peer().recv(2)};
    CHECK_FALSE(wait_any(never, milliseconds(5)).has_value());
    CHECK_FALSE(wait_all(never, milliseconds(5)));
    const auto futures = calls_of(world.peer(), 3);
    REQUIRE(wait_any(futures, kSoon).has_value());
    CHECK(futures[*wait_any(futures, Nanos::zero())].done());
  }
}

TEST_CASE("calls of agents that only their callers drive are waited for together") {
  const World first(Progress::kCaller);
  const World second(Progress::kCaller);
  const World third(Progress::kThread);
  std::vector<Future<std::int64_t>> all;
  for (const World* world : {&first, &second, &third}) {
    for (auto& future : calls_of(world->peer(), 20)) all.push_back(std::move(future));
  }
  CHECK(wait_all(all, kSoon));
}

TEST_CASE("calls that end by their deadline end the wait") {
  for (const Progress progress : kModes) {
    const World world(progress);
    REQUIRE(world.peer().connect().wait(kSoon).has_value());
    const std::vector<Future<Payload>> receives{world.peer().recv(1, milliseconds(20)),
                                                world.peer().recv(2, milliseconds(10))};
    CHECK(wait_all(receives, kSoon));
    CHECK(code_of(Future<Payload>(receives[0]).wait(Nanos::zero())) == Code::kDeadlineExceeded);
  }
}

TEST_CASE("wake ends a poll that waits in another thread, and the next one") {
  const auto agent = start("polled", Progress::kCaller);
  while (agent->poll(Nanos::zero())) {
  }
  agent->wake();
  CHECK(agent->poll(kSoon));
  std::thread other([&] { agent->wake(); });
  CHECK(agent->poll(kSoon));
  other.join();
}

TEST_CASE("a thread that waits with the agent's driver makes progress for it") {
  for (const Progress progress : kModes) {
    const auto server = start("server", progress);
    std::atomic<int> calls{0};
    rpc::Service service("count");
    REQUIRE(service.add("one", [&calls] { ++calls; }, {.run = rpc::Run::kInline}).ok());
    REQUIRE(server->serve(service).ok());
    const auto client = start("client");
    const auto future = client->peer(server->address()).call<void>("count", "one");
    server->driver()->wait([&calls] { return calls > 0; }, steady_clock().now() + kSoon,
                           [&] { eventually([&calls] { return calls > 0; }); });
    CHECK(calls == 1);
    if (progress != Progress::kCaller) CHECK(future.wait_done(kSoon));
    client->close(Nanos::zero()).ignore();
  }
}

}  // namespace slime::test_waits
