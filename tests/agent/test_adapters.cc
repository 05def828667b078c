// RDMA adapters by name: agents with settings of their own.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "agent/agent_impl.h"
#include "tests/agent/agents.h"
#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::adapters_test {
namespace {

using namespace slime::test;
using transport::testing::FakeFabric;
using transport::testing::FakeOptions;

FakeOptions pumped() {
  FakeOptions out = FakeOptions::roce(2);
  out.pump_thread = true;  // the agents' loops sleep
  return out;
}

// Verbs on `fabric`, with the settings of each agent.
std::vector<transport::ProviderEntry> verbs_on(FakeFabric& fabric) {
  return {{"verbs", [&fabric](const transport::ProviderSettings& settings) {
             return transport::verbs::make_verbs_provider(fabric.functions(), settings.verbs.value());
           }}};
}

std::unique_ptr<PeerAgent> start_with(FakeFabric& fabric, std::string name, VerbsOptions verbs) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = "verbs";
  options.verbs = std::move(verbs);
  return take(PeerAgentImpl::start(std::move(options), verbs_on(fabric)));
}

bool contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

TEST_CASE("two agents of one process use the adapters that they name, each with its own settings") {
  FakeFabric fabric(pumped());
  VerbsOptions first;
  first.device = "fake0";
  first.traffic_class = 104;
  VerbsOptions second;
  second.device = "fake1";
  second.service_level = 3;
  auto a = start_with(fabric, "a", first);
  auto b = start_with(fabric, "b", second);
  Peer peer = a->peer(b->address());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  CHECK(contains(peer.info().endpoint, "fake0 port 1"));
  CHECK(contains(peer.info().endpoint, "SL 0, traffic class 104"));
  Peer back = b->peer("a");
  REQUIRE(back.connect().wait(kSoon).has_value());
  CHECK(contains(back.info().endpoint, "fake1 port 1"));
  CHECK(contains(back.info().endpoint, "SL 3, traffic class 0"));
}

TEST_CASE("an agent does not start without the adapter that it names") {
  for (const char* provider : {"auto", "verbs"}) {
    CAPTURE(provider);
    PeerAgentOptions options;
    options.provider = provider;
    options.verbs.emplace().device = "nosuch0";
    const auto agent = PeerAgent::start(std::move(options));
    REQUIRE_FALSE(agent.has_value());
    CHECK(contains(agent.status().text(), "provider verbs"));
  }
}

TEST_CASE("an agent that uses no verbs does not look for the adapter that it names") {
  PeerAgentOptions options;
  options.provider = "tcp";
  options.verbs.emplace().device = "nosuch0";
  CHECK(PeerAgent::start(std::move(options)).has_value());
}

TEST_CASE("settings of verbs out of their bounds are refused, whatever the provider") {
  PeerAgentOptions options;
  options.provider = "tcp";
  options.verbs.emplace().traffic_class = 256;
  const Status status = PeerAgent::start(std::move(options)).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(contains(status.text(), "traffic_class is 256, must be 0 to 255"));
}

}  // namespace slime::adapters_test
