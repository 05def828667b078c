// Ends: with work in flight, twice, from inside, concurrently, and in a child after fork().

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

// What a connection is busy with for a while.
const std::size_t kBig = static_cast<std::size_t>(std::min(64, scaled(64))) << 20;

// A peer whose "slow.wait" runs until released.
struct Server {
  Server() : agent(start("server")) {
    rpc::Service slow("slow");
    REQUIRE(slow.add("wait",
                     [this] {
                       ++running;
                       release.wait(false);
                     })
                .ok());
    rpc::Service calc = calculator();
    REQUIRE(agent->serve(slow).ok());
    REQUIRE(agent->serve(calc).ok());
    region = take(agent->allocate(kBig, Rights::kReadWrite));
    REQUIRE(agent->publish("big", region).ok());
  }
  ~Server() { let_go(); }
  void let_go() {
    release = true;
    release.notify_all();
  }
  std::atomic<bool> release{false};
  std::atomic<int> running{0};
  std::unique_ptr<PeerAgent> agent;
  MemoryRegion region;
};

Nanos elapsed_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::steady_clock::now() - start;
}

void close_with_everything_in_flight(Progress progress) {
  Server server;
  auto agent = start("client", progress);
  Peer peer = agent->peer(server.agent->address());
  auto local = take(agent->allocate(kBig, Rights::kLocal));
  const auto remote = take(peer.region("big"));
  std::vector<Future<None>> plain;
  std::vector<Future<Payload>> payloads;
  for (int i = 0; i < 20; ++i) {
    payloads.push_back(peer.raw().call("slow", "wait", rpc::encode_arguments()));
    payloads.push_back(peer.recv(static_cast<std::uint64_t>(i)));
    const Copy copy{local, 0, remote, 0, kBig};
    plain.push_back(peer.read({&copy, 1}));
    plain.push_back(peer.send(1, as_bytes("x")));
  }
  payloads.push_back(agent->peer("nobody").recv(1));
  plain.push_back(agent->peer("127.0.0.1:1").wait_for_ready().connect());
  const auto begin = std::chrono::steady_clock::now();
  CHECK(agent->close(milliseconds(100)).code() == Code::kDeadlineExceeded);
  CHECK(elapsed_since(begin) < patient(seconds(3)));
  for (auto& future : plain) CHECK(future.done());
  for (auto& future : payloads) {
    REQUIRE(future.done());
    const Code code = code_of(future.wait());
    CHECK((code == Code::kCancelled || code == Code::kUnavailable));
  }
  CHECK(code_of(peer.connect().wait()) == Code::kUnavailable);
  CHECK(code_of(agent->allocate(4096, Rights::kLocal)) == Code::kUnavailable);
  CHECK(to_json(agent->info()).find("\"state\":\"closed\"") != std::string::npos);
  CHECK(agent->close().code() == Code::kDeadlineExceeded);  // what it said before
  agent.reset();
  CHECK(code_of(peer.connect().wait()) == Code::kUnavailable);  // a peer may outlive its agent
  const Status closed = local.close();
  CHECK_MESSAGE(closed.ok(), closed.to_string());
}

TEST_CASE("close with everything in flight is bounded, and every future is done") {
  close_with_everything_in_flight(Progress::kThread);
  close_with_everything_in_flight(Progress::kCaller);
}

TEST_CASE("a close in good order lets calls finish, on both sides") {
  Server server;
  auto agent = start("client");
  auto call = agent->peer(server.agent->address()).call<void>("slow", "wait");
  REQUIRE(eventually([&] { return server.running.load() == 1; }));
  std::thread closer([&] { CHECK(agent->close(seconds(10)).ok()); });
  CHECK_FALSE(call.wait_done(milliseconds(30)));
  server.let_go();
  CHECK(call.wait(kSoon).has_value());
  closer.join();
}

TEST_CASE("many close at once while others use it") {
  Server server;
  for (int round = 0; round < scaled(20); ++round) {
    auto agent = start("client");
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        Peer peer = agent->peer(server.agent->address());
        while (!stop) {
          const auto sum = peer.call<std::int64_t>("calc", "add", 1, 1).wait(kSoon);
          if (!sum) {
            CHECK((code_of(sum) == Code::kUnavailable || code_of(sum) == Code::kCancelled));
          }
          static_cast<void>(agent->info());
          static_cast<void>(peer.info());
        }
      });
    }
    CHECK(agent->peer(server.agent->address()).connect().wait(kSoon).has_value());
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { agent->close().ignore(); });
    }
    agent->close().ignore();
    stop = true;
    for (auto& thread : threads) thread.join();
  }
}

TEST_CASE("a handler may close its own agent: it takes the bound, not for ever") {
  std::atomic<int> code{-1};
  auto server = start("server");
  rpc::Service service("admin");
  REQUIRE(
      service.add("close", [&] { code = static_cast<int>(server->close(milliseconds(50)).code()); }).ok());
  REQUIRE(server->serve(service).ok());
  auto client = start("client");
  const auto ended = client->peer(server->address()).call<void>("admin", "close").wait(kSoon);
  CHECK(code_of(ended) == Code::kUnavailable);
  REQUIRE(eventually([&] { return code.load() >= 0; }));
  CHECK(code.load() == static_cast<int>(Code::kDeadlineExceeded));
}

// Threads write until their agent, which another thread closes, refuses them.
void close_under_writes(Progress progress) {
  Server server;
  for (int round = 0; round < scaled(20); ++round) {
    auto agent = start("client", progress);
    Peer peer = agent->peer(server.agent->address());
    const auto remote = take(peer.region("big"));
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        std::vector<Future<None>> writes;
        bool open = true;
        while (open) {
          auto local = agent->allocate(64, Rights::kLocal);
          if (!local) break;
          const Copy copy{*local, 0, remote, 0, 64};
          for (int each = 0; each < 8; ++each) writes.push_back(peer.write({&copy, 1}, kSoon));
          ++begun;
          const auto last = writes.back().wait(kSoon);
          open = last || code_of(last) == Code::kInvalidArgument;  // the region may close first
          writes.pop_back();
        }
        ++begun;
        for (auto& write : writes) CHECK(write.wait_done(kSoon));
      });
    }
    while (begun < 2) std::this_thread::yield();
    agent->close().ignore();
    for (auto& thread : threads) thread.join();
    CHECK(code_of(peer.connect().wait(kSoon)) == Code::kUnavailable);
  }
}

TEST_CASE("writes that begin while their agent closes all end") {
  close_under_writes(Progress::kThread);
  close_under_writes(Progress::kPolled);
  close_under_writes(Progress::kCaller);
}

TEST_CASE("regions are closed with their agent, and outlive it as handles") {
  Server server;
  MemoryRegion kept;
  std::vector<std::byte> memory(4096);
  {
    auto agent = start("owner");
    kept = take(agent->register_memory(memory.data(), memory.size(), Rights::kReadWrite));
    REQUIRE(agent->publish("kept", kept).ok());
    CHECK(take(server.agent->peer(agent->address()).region("kept")).length_bytes() == 4096);
  }
  CHECK(kept.length_bytes() == 4096);
  CHECK(kept.close().ok());
}

#if !defined(__SANITIZE_THREAD__)
// The exit status of what a child does; 99: it did not end in time.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (!eventually([&] { return waitpid(child, &status, WNOHANG) == child; })) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 99;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

void fork_and_use(Progress progress) {
  Server server;
  auto agent = start("parent", progress);
  Peer peer = agent->peer(server.agent->address());
  auto local = take(agent->allocate(4096, Rights::kReadWrite));
  auto remote = take(peer.region("big"));
  auto under_way = peer.call<void>("slow", "wait");
  CHECK_FALSE(under_way.wait_done(milliseconds(5)));
  const int status = in_child([&] {
    const auto call = peer.call<std::int64_t>("calc", "add", 1, 1).wait(seconds(1));
    if (code_of(call) != Code::kUnavailable) return 1;
    if (call.status().text().find("fork") == std::string::npos) return 2;
    const Copy copy{local, 0, remote, 0, 64};
    if (code_of(peer.read({&copy, 1}).wait(seconds(1))) != Code::kUnavailable) return 3;
    if (code_of(peer.region("big")) != Code::kUnavailable) return 4;
    if (agent->close().code() != Code::kUnavailable) return 5;
    if (agent->poll(milliseconds(1))) return 6;
    if (to_json(agent->info()).find("forked") == std::string::npos) return 7;
    if (under_way.wait_done(milliseconds(20))) return 8;
    if (local.close().code() != Code::kUnavailable) return 9;
    local = MemoryRegion();
    under_way.cancel();
    agent.reset();  // touches nothing of the parent's
    auto fresh = PeerAgent::start({.name = "child", .provider = provider()});
    if (!fresh) return 10;
    const auto own =
        (*fresh)->peer(server.agent->address()).call<std::int64_t>("calc", "add", 2, 2).wait(kSoon);
    if (!own || *own != 4) return 11;
    return 0;
  });
  CHECK(status == 0);
  // The parent goes on as if nothing had happened, on the same connection.
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) == 2);
  const Copy copy{local, 0, remote, 0, 64};
  const Status read = peer.read({&copy, 1}).wait(kSoon).status();
  CHECK_MESSAGE(read.ok(), read.to_string());
  server.let_go();
  CHECK(under_way.wait(kSoon).has_value());
  CHECK(number_in(to_json(agent->info()), "connections_made") == 1);
}

TEST_CASE("after fork() the child's objects answer kUnavailable and the parent is unharmed") {
  fork_and_use(Progress::kThread);
  fork_and_use(Progress::kCaller);
}
#endif

}  // namespace
}  // namespace slime
