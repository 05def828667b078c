// What callers see when the process at the other end is killed or stopped. Real processes, real
// signals.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/str.h"
#include "tests/e2e/pattern.h"
#include "tests/e2e/world.h"

namespace slime::test::e2e_death_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kCalls = 64;

// Everything that waits for one peer: calls that it never answers, and a read that takes a while.
struct Load {
  std::vector<Future<Payload>> calls;
  Future<None> read;
};

// Of the connection to the peer, as its info() says; -1 while there is none.
std::int64_t received_bytes(const Peer& peer) {
  constexpr std::string_view kKey = "\"bytes_received\":";
  const std::string info = to_json(peer.info());
  const auto at = info.find(kKey);
  return at == std::string::npos ? -1 : std::stoll(info.substr(at + kKey.size()));
}

// Bounds the time that an end takes: one second where this program runs alone. scripts/test.sh runs
// more beside it, and sets a larger bound.
Nanos longest_end() { return milliseconds(setting("SLIME_E2E_BOUND_MS", 1000)); }

std::uint64_t region_bytes() { return setting("SLIME_E2E_REGION_MIB", 1024) << 20; }

Load start_load(Peer& peer, MemoryRegion& local, Nanos timeout) {
  Load load;
  const auto remote = peer.region("big");
  REQUIRE_MESSAGE(remote.has_value(), remote.status().to_string());
  for (std::size_t i = 0; i < kCalls; ++i) {
    load.calls.push_back(peer.raw().call("work", "hold", rpc::encode_arguments(), timeout));
  }
  // They are in flight once the peer holds them.
  REQUIRE(eventually([&] {
    const auto held = peer.call<std::size_t>("work", "held").wait();
    return held && *held >= kCalls;
  }));
  const std::int64_t before = received_bytes(peer);
  const Copy copy[] = {{local, 0, *remote, 0, local.length_bytes()}};
  load.read = peer.read(copy, timeout);
  // And the read once its first bytes are here, or all of them.
  REQUIRE(eventually([&] { return received_bytes(peer) > before + 65'536 || load.read.done(); }));
  return load;
}

}  // namespace

TEST_CASE("a killed peer ends 64 calls and a read within a second, and its successor is used at once") {
  const std::uint64_t rounds = setting("SLIME_E2E_ROUNDS", 5);
  Nanoctrl nanoctrl;
  const auto agent = start_agent("caller", nanoctrl.url());
  auto local = agent->allocate(region_bytes(), Rights::kLocal);
  REQUIRE(local.has_value());
  Peer peer = agent->peer("victim");
  std::uint64_t reads_ok = 0;
  Nanos slowest{};
  for (std::uint64_t round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Process victim = start_peer("victim", nanoctrl.url(), region_bytes());
    // The same client object, the first call to a process that it has never seen.
    const auto hello = peer.call<std::string>("work", "echo", std::string("hello")).wait();
    REQUIRE_MESSAGE(hello.has_value(), hello.status().to_string());

    Load load = start_load(peer, *local, seconds(30));
    REQUIRE(victim.kill().ok());
    const TimePoint killed = steady_clock().now();
    for (auto& call : load.calls) {
      const auto reply = call.wait(seconds(5));
      slowest = std::max(slowest, steady_clock().now() - killed);
      REQUIRE_FALSE(reply.has_value());
      CHECK_MESSAGE(reply.error().code() == Code::kUnavailable, reply.error().to_string());
      CHECK(reply.error().maybe_executed());
    }
    const auto read = load.read.wait(seconds(5));
    slowest = std::max(slowest, steady_clock().now() - killed);
    if (read) {
      ++reads_ok;
      CHECK(has_pattern(local->bytes()));
    } else {
      CHECK_MESSAGE(read.error().code() == Code::kUnavailable, read.error().to_string());
    }
    REQUIRE(slowest < longest_end());
    REQUIRE(victim.wait(kReady).has_value());
  }
  MESSAGE(str(rounds, " rounds; slowest end after the kill: ",
              std::chrono::duration_cast<milliseconds>(slowest).count(),
              " ms; reads that were complete: ", reads_ok));
}

TEST_CASE(
    "with a stopped peer everything ends by its deadline, and after it continues the peer is used again") {
  Nanoctrl nanoctrl;
  const auto agent = start_agent("caller", nanoctrl.url());
  auto local = agent->allocate(region_bytes(), Rights::kLocal);
  REQUIRE(local.has_value());
  Peer peer = agent->peer("sleeper");
  Process sleeper = start_peer("sleeper", nanoctrl.url(), region_bytes());
  // A deadline that the preparation does not use up: the slow part is over before it is given.
  const Nanos timeout = seconds(5);
  Load load = start_load(peer, *local, timeout);
  REQUIRE(sleeper.stop().ok());
  const TimePoint stopped = steady_clock().now();
  auto message = peer.send(1, as_bytes("anybody there?"), milliseconds(500));
  const auto sent = message.wait(seconds(30));
  REQUIRE_FALSE(sent.has_value());
  CHECK(sent.error().code() == Code::kDeadlineExceeded);
  for (auto& call : load.calls) {
    const auto reply = call.wait(seconds(30));
    REQUIRE_FALSE(reply.has_value());
    CHECK((reply.error().code() == Code::kDeadlineExceeded || reply.error().code() == Code::kUnavailable));
  }
  const auto read = load.read.wait(seconds(30));
  CHECK(
      (read || read.error().code() == Code::kDeadlineExceeded || read.error().code() == Code::kUnavailable));
  CHECK(steady_clock().now() - stopped < timeout + longest_end());
  REQUIRE(sleeper.resume().ok());
  CHECK(eventually(
      [&] { return peer.call<std::string>("work", "echo", std::string("again")).wait().has_value(); }));
}

TEST_CASE(
    "nanoctrl killed and restarted empty: calls go on, and every agent is listed again within two "
    "heartbeats") {
  Nanoctrl nanoctrl;
  const auto agent = start_agent("caller", nanoctrl.url());
  Process worker = start_peer("worker", nanoctrl.url(), 1 << 20);
  Peer peer = agent->peer("worker");
  const auto call = [&] { return peer.call<std::string>("work", "echo", std::string("x")).wait(seconds(5)); };
  REQUIRE(call().has_value());
  nanoctrl.kill();
  for (int i = 0; i < 100; ++i) REQUIRE(call().has_value());
  nanoctrl.start();
  const TimePoint restarted = steady_clock().now();
  const bool listed = eventually([&] {
    const auto again = call();
    REQUIRE_MESSAGE(again.has_value(), again.status().to_string());
    const auto peers = agent->list_peers();
    if (!peers) return false;
    const std::string text = to_json(*peers);
    return text.find("\"caller\"") != std::string::npos && text.find("\"worker\"") != std::string::npos &&
           text.find("\"big\"") != std::string::npos && text.find("\"work\"") != std::string::npos;
  });
  const Nanos took = steady_clock().now() - restarted;
  CHECK(listed);
  MESSAGE(str("listed again ", std::chrono::duration_cast<milliseconds>(took).count(),
              " ms after the restart; two heartbeats are 1000 ms"));
}

}  // namespace slime::test::e2e_death_test
