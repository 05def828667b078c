// Behaviour of servers: limits, order, draining, health, description; discovery of services.
#include <signal.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/matrix/client.h"
#include "tests/support/eventually.h"

namespace slime::matrix {
namespace {

using std::chrono::milliseconds;

void limit_queue(Run& run) {
  Peer small = run.start_small(1, 2);
  auto enter = small.call<void>("Small", "enter", run.key);
  run.await_count(str("entered:", run.key), 1);
  auto first = small.call<void>("Small", "mark", run.key, "first");
  auto second = small.call<void>("Small", "mark", run.key, "second");
  const auto third = small.call<void>("Small", "mark", run.key, "third").wait(kSoon);
  expect(!error_of(third, Code::kResourceExhausted, "one too many").maybe_executed(), "not executed");
  run.ask<void>("open", run.key);
  take(enter.wait(kSoon), "enter");
  take(first.wait(kSoon), "the first");
  take(second.wait(kSoon), "the second");
}

void limit_running(Run& run) {
  Peer small = run.start_small(4, 8);
  auto first = small.call<void>("Small", "enter_alone", run.key);
  run.await_count(str("entered:", run.key), 1);
  auto second = small.call<void>("Small", "enter_alone", run.key);
  take(small.call<void>("Small", "mark", run.key, "other").wait(kSoon), "another method beside it");
  expect_equal(run.ask<std::int64_t>("count", str("entered:", run.key)), 1, "calls of it that run");
  run.ask<void>("open", run.key);
  take(first.wait(kSoon), "the first");
  take(second.wait(kSoon), "the second");
}

void priorities(Run& run) {
  Peer small = run.start_small(1, 8);
  auto enter = small.call<void>("Small", "enter", run.key);
  run.await_count(str("entered:", run.key), 1);
  std::vector<Future<None>> waiting;
  for (const char* const method : {"mark_low", "mark", "mark_high"})
    waiting.push_back(small.call<void>("Small", method, run.key, method));
  // All requests have arrived: a request after them was refused or served.
  expect_equal(take(small.call<std::string>("slime.Health", "check", "").wait(kSoon)), "serving", "health");
  run.ask<void>("open", run.key);
  take(enter.wait(kSoon), "enter");
  for (auto& each : waiting) take(each.wait(kSoon), "a mark");
  const std::vector<std::string> expected{"mark_high", "mark", "mark_low"};
  expect_equal(run.ask<std::vector<std::string>>("notes", run.key), expected, "the order");
}

std::string health(Peer peer, const std::string& service) {
  return take(peer.call<std::string>("slime.Health", "check", service).wait(kSoon), "health");
}

void drain(Run& run) {
  Peer small = run.start_small(2, 8);
  auto enter = small.call<void>("Small", "enter", run.key);
  run.await_count(str("entered:", run.key), 1);
  auto drained = run.peer.call<void>("Matrix", "drain_small", run.small_name, 15'000);
  expect(test::eventually([&] { return health(small, "") == "draining"; }), "health says that it drains");
  const auto refused = small.call<void>("Small", "mark", run.key, "x").wait(kSoon);
  expect(!error_of(refused, Code::kUnavailable, "a call meanwhile").maybe_executed(), "not executed");
  expect(!drained.done(), "the drain waits for what runs");
  run.ask<void>("open", run.key);
  take(enter.wait(kSoon), "what ran");
  take(drained.wait(kSoon), "the drain");
}

// A handler that does not return blocks no other method, and a drain waits for its timeout.
void stuck_handler(Run& run) {
  Peer small = run.start_small(2, 8);
  auto stuck = small.call<void>("Small", "enter", run.key);
  run.await_count(str("entered:", run.key), 1);
  for (int i = 0; i < 100; ++i)
    take(small.call<void>("Small", "mark", run.key, "x").wait(kSoon), "another method");
  const auto began = steady_clock().now();
  const auto drained = run.peer.call<void>("Matrix", "drain_small", run.small_name, 50).wait(kSoon);
  expect_code(drained, Code::kDeadlineExceeded, "the drain");
  expect(steady_clock().now() - began < test::patient(std::chrono::seconds(5)), "its bound holds");
  expect(!stuck.done(), "it still runs");
  run.ask<void>("open", run.key);
  take(stuck.wait(kSoon), "its answer");
}

void health_of(Run& run) {
  expect_equal(health(run.peer, ""), "serving", "the server");
  expect_equal(health(run.peer, "Matrix"), "serving", "a service");
  expect_equal(health(run.peer, "Nobody"), "unknown", "another one");
}

void reflection(Run& run) {
  const auto services = take(run.peer.services(kSoon).wait(kSoon), "services");
  const rpc::MethodInfo* add = nullptr;
  for (const auto& service : services)
    for (const auto& method : service.methods)
      if (service.name == "Matrix" && method.name == "add") add = &method;
  if (add == nullptr) fail("Matrix.add is not told");
  expect_equal(add->parameters.size(), std::size_t{2}, "its parameters");
  expect_equal(add->parameters[0].name, "a", "the first one's name");
  expect_equal(add->parameters[1].type, "int", "the second one's type");
  expect_equal(add->result, "int", "its result");
  expect_equal(add->doc, "The sum.", "its doc");
}

void proxy_round_robin(Run& run) {
  const auto agent = run.start(true);
  const ServiceProxy proxy = agent->proxy("Provider").with_timeout(kSoon);
  std::map<std::string, int> answers;
  for (int i = 0; i < 12; ++i) ++answers[take(proxy.call<std::string>("who").wait(kSoon), "who")];
  expect(answers.size() >= 2 && answers.contains(run.place.victim), "both providers are called");
  for (const auto& [name, count] : answers)
    expect_equal(count, 12 / static_cast<int>(answers.size()), str("the share of ", name));
}

void proxy_failover(Run& run) {
  const auto agent = run.start(true);
  const ServiceProxy proxy = agent->proxy("Provider").with_timeout(kSoon);
  const auto who = [&] { return take(proxy.call<std::string>("who").wait(kSoon), "who"); };
  expect(test::eventually([&] { return who() == run.place.victim; }), "the victim serves");
  const auto pid =
      take(agent->peer(run.place.victim).call<std::int64_t>("Provider", "pid").wait(kSoon), "pid");
  expect(pid > 1 && ::kill(static_cast<pid_t>(pid), SIGKILL) == 0, "it is killed");
  const ServiceProxy again = proxy.idempotent();
  for (int i = 0; i < 20; ++i)
    expect(take(again.call<std::string>("who").wait(kSoon), "a call after that") != run.place.victim,
           "another answers");
}

void proxy_idempotent(Run& run) {
  const auto agent = run.start(true);
  const ServiceProxy once = agent->proxy("Matrix").with_timeout(kSoon);
  const auto failed = once.call<std::int64_t>("flaky", run.key + "-once", 1).wait(kSoon);
  expect(error_of(failed, Code::kUnavailable, "not repeated").maybe_executed(), "it was executed");
  const auto repeated = once.idempotent({.attempts = 3}).call<std::int64_t>("flaky", run.key, 2).wait(kSoon);
  expect_equal(take(repeated, "the repeated call"), 3, "executions");
  expect_equal(run.ask<std::int64_t>("count", run.key + "-once"), 1, "executions of the other");
}

constexpr std::array kServerFeatures{
    Feature{"limit_queue", limit_queue},
    Feature{"limit_running", limit_running},
    Feature{"priorities", priorities},
    Feature{"drain", drain},
    Feature{"stuck_handler", stuck_handler},
    Feature{"health", health_of},
    Feature{"reflection", reflection},
    Feature{"proxy_round_robin", proxy_round_robin},
    Feature{"proxy_idempotent", proxy_idempotent},
    Feature{"proxy_failover", proxy_failover},
};

}  // namespace

std::span<const Feature> server_features() { return kServerFeatures; }

}  // namespace slime::matrix
