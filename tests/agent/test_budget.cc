// PeerAgentOptions::memory_bytes and max_payload_bytes, and what counts where they refuse: in
// info() and nanoctrl's metrics.
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "agent/registry/report.h"
#include "base/str.h"
#include "ctrl/limits.h"
#include "tests/agent/registry.h"

namespace slime {
namespace {

using namespace test;

constexpr std::uint64_t kMiB = 1 << 20;

PeerAgentOptions with_limits(std::uint64_t memory_bytes, std::uint64_t max_payload_bytes) {
  PeerAgentOptions options;
  options.memory_bytes = memory_bytes;
  options.max_payload_bytes = max_payload_bytes;
  return options;
}

std::unique_ptr<PeerAgent> serve_bytes(PeerAgentOptions options) {
  auto agent = test::start(std::move(options));
  rpc::Service service("bytes");
  REQUIRE(service.add("size", [](const ByteVector& bytes) { return bytes.size(); }).ok());
  REQUIRE(service.add("make", [](std::uint64_t bytes) { return ByteVector(bytes); }).ok());
  REQUIRE(agent->serve(service).ok());
  return agent;
}

TEST_CASE("the limits of memory and of a payload are shown, and have defaults") {
  const auto plain = test::start();
  CHECK(number_in(to_json(plain->info()), "memory_bytes") == std::int64_t{10} << 30);
  CHECK(number_in(to_json(plain->info()), "max_payload_bytes") == std::int64_t{64} << 30);
  const auto agent = test::start(with_limits(8 * kMiB, 100'000));
  CHECK(number_in(to_json(agent->info()), "memory_bytes") == 8 * kMiB);
  CHECK(number_in(to_json(agent->info()), "max_payload_bytes") == 100'000);
}

TEST_CASE("limits of nothing, or of too little memory, are refused by name") {
  const auto refused = [](std::uint64_t memory_bytes, std::uint64_t max_payload_bytes) {
    const auto agent = PeerAgent::start(with_limits(memory_bytes, max_payload_bytes));
    CHECK(code_of(agent) == Code::kInvalidArgument);
    return agent.status().text();
  };
  CHECK(refused(0, 1) == "memory_bytes must be at least 4194304");
  CHECK(refused(4 * kMiB - 1, 1) == "memory_bytes must be at least 4194304");
  CHECK(refused(4 * kMiB, 0) == "max_payload_bytes must be at least 1");
  CHECK(PeerAgent::start(with_limits(4 * kMiB, 1)).has_value());
}

TEST_CASE("requests and answers beyond a quarter of memory_bytes are refused, counted and told to nanoctrl") {
  Registry registry;
  PeerAgentOptions options = options_for(registry, "server");
  options.memory_bytes = 4 * kMiB;
  auto server = serve_bytes(std::move(options));
  auto client = test::start("client");
  Peer peer = client->peer(server->address());
  CHECK(take(peer.call<std::uint64_t>("bytes", "size", ByteVector(kMiB / 2)).wait(kSoon)) == kMiB / 2);
  CHECK(take(peer.call<ByteVector>("bytes", "make", kMiB / 2).wait(kSoon)).size() == kMiB / 2);
  CHECK(number_in(to_json(server->info()), "over_budget") == 0);

  const auto request = peer.call<std::uint64_t>("bytes", "size", ByteVector(2 * kMiB)).wait(kSoon);
  CHECK(code_of(request) == Code::kResourceExhausted);
  CHECK_FALSE(request.status().maybe_executed());
  CHECK(request.status().text().find("memory_bytes") != std::string::npos);
  const auto answer = peer.call<ByteVector>("bytes", "make", 2 * kMiB).wait(kSoon);
  CHECK(code_of(answer) == Code::kResourceExhausted);
  CHECK(answer.status().text().find("memory_bytes") != std::string::npos);
  CHECK(number_in(to_json(server->info()), "over_budget") == 2);
  CHECK(number_in(to_json(server->peer("client").info()), "over_budget") == 2);
  CHECK(number_in(to_json(client->info()), "over_budget") == 0);

  // The agent's counter goes on when the connection that it is of is gone.
  client.reset();
  REQUIRE(eventually([&] { return number_in(to_json(server->info()), "connections") == 0; }));
  CHECK(number_in(to_json(server->info()), "over_budget") == 2);
  CHECK(eventually([&] {
    const std::string metrics = registry.api().handle({"GET", "/metrics", "", ""}).body;
    return metrics.find("slime_agent_over_budget_total{peer=\"server\",scope=\"default\"} 2\n") !=
           std::string::npos;
  }));
}

TEST_CASE("an answer that is not read is revoked, counted and told to nanoctrl") {
  Registry registry;
  auto server = test::start(options_for(registry, "server"));
  std::atomic<bool> running{false};
  std::atomic<bool> released{false};
  rpc::Service service("bytes");
  const auto make_when_released = [&](std::uint64_t bytes) {
    running = true;
    eventually([&] { return released.load(); });
    return ByteVector(bytes);
  };
  REQUIRE(service.add("make", make_when_released).ok());
  REQUIRE(server->serve(service).ok());
  auto client = test::start("client", Progress::kCaller);
  Peer peer = client->peer(server->address());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  auto call = peer.raw().call("bytes", "make", rpc::encode_arguments(4 * kMiB), seconds(2));
  REQUIRE(eventually([&] { return client->poll(Nanos::zero()), running.load(); }));
  // Nothing drives the caller from here on, so it reads nothing.
  released = true;
  const auto revoked = [&] { return number_in(to_json(server->info()), "answers_revoked"); };
  CHECK(revoked() == 0);
  REQUIRE(eventually([&] { return revoked() == 1; }, patient(seconds(20))));
  CHECK(eventually([&] {
    const std::string metrics = registry.api().handle({"GET", "/metrics", "", ""}).body;
    return metrics.find("slime_agent_answers_revoked_total{peer=\"server\",scope=\"default\"} 1\n") !=
           std::string::npos;
  }));
}

TEST_CASE("a payload beyond the peer's max_payload_bytes is refused where it is made") {
  auto server = serve_bytes(with_limits(64 * kMiB, 100'000));
  auto client = test::start(with_limits(64 * kMiB, 50'000));
  Peer peer = client->peer(server->address());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  CHECK(take(peer.call<std::uint64_t>("bytes", "size", ByteVector(99'000)).wait(kSoon)) == 99'000);
  const auto request = peer.call<std::uint64_t>("bytes", "size", ByteVector(101'000)).wait(kSoon);
  CHECK(code_of(request) == Code::kInvalidArgument);
  CHECK_FALSE(request.status().maybe_executed());
  CHECK(request.status().text().find("takes at most 100000 (its max_payload_bytes)") != std::string::npos);
  CHECK(take(peer.call<ByteVector>("bytes", "make", 49'000).wait(kSoon)).size() == 49'000);
  const auto answer = peer.call<ByteVector>("bytes", "make", 51'000).wait(kSoon);
  CHECK_FALSE(answer.has_value());
  CHECK(answer.status().text().find("takes at most 50000 (its max_payload_bytes)") != std::string::npos);
  MESSAGE(answer.status().to_string());
  const auto message = peer.send(1, ByteVector(101'000)).wait(kSoon);
  CHECK(code_of(message) == Code::kInvalidArgument);
  CHECK(message.status().text().find("takes at most 100000 (its max_payload_bytes)") != std::string::npos);
}

TEST_CASE("a report has a counter for everything that was refused, given back or taken away") {
  agent::ReportCounters counters;
  counters.board.receives_given_back = 1;
  counters.board.over_budget = 2;
  counters.board.answers_revoked = 3;
  counters.strangers_evicted = 4;
  const ctrl::Report report = agent::make_report({}, counters);
  CHECK(report.counters.at("receives_given_back") == 1);
  CHECK(report.counters.at("over_budget") == 2);
  CHECK(report.counters.at("answers_revoked") == 3);
  CHECK(report.counters.at("strangers_evicted") == 4);
  CHECK(report.counters.size() <= ctrl::limits::kReportCounters);
}

}  // namespace
}  // namespace slime
