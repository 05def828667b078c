// Providers of one service in processes of their own, which are killed while they are called.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/e2e/world.h"

namespace slime::test {
namespace {

constexpr std::size_t kCalls = 8;  // under way at once

std::size_t held_by(PeerAgent& agent, const std::string& name) {
  const auto held = agent.peer(name).call<std::size_t>("work", "held").wait();
  REQUIRE_MESSAGE(held.has_value(), held.status().to_string());
  return *held;
}

}  // namespace

TEST_CASE("calls that may be repeated all succeed while their providers are killed one after the other") {
  Nanoctrl nanoctrl;
  std::vector<Process> providers;
  providers.reserve(3);
  for (int i = 0; i < 3; ++i) providers.push_back(start_peer(str("worker:", i), nanoctrl.url(), 4096));
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) {
    const auto agent = start_agent("caller", nanoctrl.url(), progress);
    const ServiceProxy proxy = agent->proxy("work", {.policy = Balance::kLeastInFlight}).idempotent();
    const std::size_t victim = progress == Progress::kThread ? 2 : 1;
    for (int round = 0; round < 30; ++round) {
      std::vector<Future<std::string>> calls;
      for (std::size_t i = 0; i < kCalls; ++i)
        calls.push_back(proxy.call<std::string>("echo", str(round, "/", i)));
      if (round == 10) REQUIRE(providers[victim].kill().ok());
      for (std::size_t i = 0; i < kCalls; ++i) {
        const auto answer = calls[i].wait(kReady);
        REQUIRE_MESSAGE(answer.has_value(), answer.status().to_string());
        CHECK(*answer == str(round, "/", i));
      }
    }
  }
}

TEST_CASE("a call that a killed provider may have executed is not made again, the next one goes to another") {
  Nanoctrl nanoctrl;
  std::map<std::string, Process> providers;
  for (const char* name : {"worker:0", "worker:1"})
    providers.emplace(name, start_peer(name, nanoctrl.url(), 4096));
  const auto agent = start_agent("caller", nanoctrl.url());
  const ServiceProxy proxy = agent->proxy("work", {.policy = Balance::kSticky});
  auto held = proxy.raw().call("hold", rpc::encode_arguments());
  std::string victim;
  REQUIRE(eventually([&] {
    for (const auto& [name, process] : providers) {
      if (held_by(*agent, name) == 1) victim = name;
    }
    return !victim.empty();
  }));
  REQUIRE(providers.at(victim).kill().ok());
  const auto lost = held.wait(kReady);
  CHECK(lost.status().code() == Code::kUnavailable);
  CHECK(lost.status().maybe_executed());
  const auto next = proxy.call<std::string>("echo", "x").wait(kReady);
  CHECK_MESSAGE(next.has_value(), next.status().to_string());
  CHECK(held_by(*agent, victim == "worker:0" ? "worker:1" : "worker:0") == 0);
}

}  // namespace slime::test
