// With a real registry: names, leases, what happens when either side forgets the other.

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "tests/agent/registry.h"

namespace slime {
namespace {

using namespace test;

bool registry_state(const PeerAgent& agent, std::string_view state) {
  const std::string info = to_json(agent.info());
  const auto at = info.find("\"registry\"");
  return info.find("\"state\":\"" + std::string(state) + "\"", at) < info.find("\"error\"", at);
}

TEST_CASE("peers find each other by name, and the registry shows what they have") {
  Registry registry;
  PeerAgentOptions options = options_for(registry, "worker:0");
  options.kind = "worker";
  auto worker = test::start(options);
  rpc::Service service = calculator();
  REQUIRE(worker->serve(service).ok());
  auto region = take(worker->allocate(4096, Rights::kRemoteRead));
  REQUIRE(worker->publish("weights/0", region).ok());
  auto client = test::start(options_for(registry, "client"));
  CHECK(take(client->peer("worker:0").call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(take(client->peer("worker:0").region("weights/0")).length_bytes() == 4096);
  const std::string list = to_json(take(client->list_peers()));
  CHECK(list.find("\"worker:0\"") != std::string::npos);
  CHECK(list.find("\"client\"") != std::string::npos);
  CHECK(list.find("\"weights/0\"") != std::string::npos);
  CHECK(list.find("\"calc\"") != std::string::npos);
  CHECK(list.find(worker->address()) != std::string::npos);
  CHECK(region.close().ok());
  CHECK(
      eventually([&] { return to_json(take(client->list_peers())).find("weights/0") == std::string::npos; }));
  CHECK(worker->close().ok());
  CHECK(to_json(take(client->list_peers())).find("worker:0") == std::string::npos);
}

// Returns whether the peer is connected now, by any request.
bool connected(PeerAgent& agent, const std::string& name) {
  return to_json(agent.peer(name).info()).find("\"state\":\"ready\"") != std::string::npos;
}

TEST_CASE("links that should exist are made without a use, and made again by a peer that comes back") {
  Registry registry;
  const auto control = registry.client();
  REQUIRE(control->set_links("default", "client", std::vector<std::string>{"worker:0", "worker:1"}).ok());
  auto client = test::start(options_for(registry, "client"));
  auto first = start_calculator(registry, "worker:0");
  CHECK(eventually([&] { return connected(*client, "worker:0"); }));
  // The other way to learn it: while the agent lives.
  auto third = start_calculator(registry, "worker:2");
  REQUIRE(control->set_links("default", "client", std::vector<std::string>{"worker:0", "worker:2"}).ok());
  CHECK(eventually([&] { return connected(*client, "worker:2"); }));
  first.reset();
  CHECK(eventually([&] { return !connected(*client, "worker:0"); }));
  first = start_calculator(registry, "worker:0");
  CHECK(eventually([&] { return connected(*client, "worker:0"); }));
}

// As nanoctrl has it: what `from` has said of its connection with `to`.
std::optional<ctrl::LinkReport> told(ctrl::Client& control, const std::string& from, const std::string& to) {
  for (const ctrl::LinkInfo& link : take(control.list_links("default"))) {
    if (link.from == from && link.to == to) return link.report;
  }
  return std::nullopt;
}

TEST_CASE("nanoctrl hears of an agent's connections and what they have moved, and when they are gone") {
  Registry registry;
  const auto control = registry.client();
  auto worker = start_calculator(registry, "worker:0");
  auto client = test::start(options_for(registry, "client"));
  for (int i = 0; i < 10; ++i)
    REQUIRE(client->peer("worker:0").call<std::int64_t>("calc", "add", i, 2).wait(kSoon).has_value());
  REQUIRE(eventually([&] {
    const auto report = told(*control, "client", "worker:0");
    return report && report->calls == 10;
  }));
  const auto report = told(*control, "client", "worker:0");
  CHECK(report->state == "ready");
  CHECK(to_json(client->peer("worker:0").info()).find(str("\"provider\":\"", report->provider, "\"")) !=
        std::string::npos);
  CHECK(report->sent_bytes > 0);
  CHECK(report->received_bytes > 0);
  // Each side tells with its own heartbeats: the worker's first report may be from before the last
  // call.
  CHECK(eventually([&] { return told(*control, "worker:0", "client").has_value(); }));
  CHECK(eventually([&] {
    const std::string metrics = registry.api().handle({"GET", "/metrics", "", ""}).body;
    return metrics.find("slime_agent_requests_total{peer=\"worker:0\",scope=\"default\"} 10\n") !=
           std::string::npos;
  }));
  worker.reset();
  CHECK(eventually([&] { return !told(*control, "client", "worker:0"); }));
}

TEST_CASE("an agent that is not to report tells nothing of its connections") {
  Registry registry;
  const auto control = registry.client();
  auto worker = start_calculator(registry, "worker:0");
  PeerAgentOptions options = options_for(registry, "client");
  options.report_links = false;
  auto client = test::start(options);
  REQUIRE(client->peer("worker:0").connect().wait(kSoon).has_value());
  // The other side tells, so what this one had to tell would be there, too.
  REQUIRE(eventually([&] { return told(*control, "worker:0", "client").has_value(); }));
  CHECK_FALSE(told(*control, "client", "worker:0"));
}

TEST_CASE("an agent gets in with its token, and says what is wrong with another") {
  const ctrl::NewToken root = ctrl::make_token(ctrl::Role::kAdmin, "*", "", 0, 0);
  ctrl::ApiOptions api;
  api.admin_token = root.record;
  Registry registry(seconds(15), api);
  const auto control = registry.client(root.text);
  const ctrl::TokenInfo admin = take(control->create_token({ctrl::Role::kAdmin, "*"}));
  const auto nobody = PeerAgent::start(options_for(registry, "worker:0"));
  CHECK(code_of(nobody) == Code::kUnauthenticated);
  PeerAgentOptions options = options_for(registry, "worker:0");
  options.ctrl_token = admin.token;
  auto worker = test::start(options);
  CHECK(to_json(take(worker->list_peers())).find("worker:0") != std::string::npos);
}

TEST_CASE("start fails when the name is taken or the registry is not there") {
  Registry registry;
  auto first = test::start(options_for(registry, "worker:0"));
  const auto second = PeerAgent::start(options_for(registry, "worker:0"));
  CHECK(code_of(second) == Code::kAlreadyExists);
  registry.stop();
  const auto third = PeerAgent::start(options_for(registry, "worker:1"));
  CHECK(code_of(third) == Code::kUnavailable);
  CHECK(third.status().text().find(registry.url()) != std::string::npos);
}

TEST_CASE("an absent peer is kNotFound; a waiting call runs as soon as the peer registers") {
  Registry registry;
  auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  const auto absent = peer.connect().wait(kSoon);
  CHECK(code_of(absent) == Code::kNotFound);
  CHECK(absent.status().text().find("worker:0") != std::string::npos);
  auto sent =
      peer.wait_for_ready().send(1, as_bytes("at last"));  // not a call: it may come before the service
  CHECK_FALSE(sent.wait_done(milliseconds(50)));
  auto worker = start_calculator(registry, "worker:0");
  CHECK(sent.wait(kSoon).has_value());
  CHECK(as_text(take(worker->peer("client").recv(1).wait(kSoon)).bytes()) == "at last");
}

TEST_CASE("a peer that restarts under its name at another address is found by the same object at once") {
  Registry registry;
  auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    auto worker = start_calculator(registry, "worker:0");
    const auto sum = peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon);
    REQUIRE_MESSAGE(sum.has_value(), sum.status().to_string());
    const std::string instance = worker->instance().to_string();
    CHECK(to_json(peer.info()).find(instance) != std::string::npos);
  }
}

TEST_CASE("heartbeats run no callback of a caller-driven agent") {
  Registry registry;
  auto worker = start_calculator(registry, "worker:0");
  PeerAgentOptions options = options_for(registry, "client");
  options.progress = Progress::kCaller;
  auto client = test::start(options);
  std::optional<std::thread::id> ran_on;
  client->peer("worker:0").call<std::int64_t>("calc", "add", 1, 2).then([&](const Result<std::int64_t>&) {
    ran_on = std::this_thread::get_id();
  });
  const auto beats = [&] {
    const std::string text = registry.api().handle({"GET", "/metrics", "", ""}).body;
    const std::string line = "route=\"/v1/peers/{name}/heartbeat\",status=\"200\"} ";
    const auto at = text.find(line);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + line.size()));
  };
  const int before = beats();
  REQUIRE(eventually([&] { return beats() >= before + 10; }));  // of both agents
  CHECK_FALSE(ran_on.has_value());
  REQUIRE(eventually([&] { return client->poll(milliseconds(1)), ran_on.has_value(); }));
  CHECK(*ran_on == std::this_thread::get_id());
}

TEST_CASE("a caller-driven agent finds names too") {
  Registry registry;
  auto worker = start_calculator(registry, "worker:0");
  PeerAgentOptions options = options_for(registry, "client");
  options.progress = Progress::kCaller;
  auto client = test::start(options);
  CHECK(take(client->peer("worker:0").call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
}

TEST_CASE(
    "the registry dies and comes back empty: calls go on, and everybody is listed again with all they have") {
  Registry registry;
  auto worker = start_calculator(registry, "worker:0");
  auto region = take(worker->allocate(4096, Rights::kRemoteRead));
  REQUIRE(worker->publish("weights", region).ok());
  auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  REQUIRE(peer.connect().wait(kSoon).has_value());
  registry.stop();
  REQUIRE(eventually([&] { return registry_state(*client, "unreachable"); }));
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  auto late = take(worker->allocate(4096, Rights::kRemoteRead));
  CHECK(worker->publish("late", late).ok());  // known to peers now, to the registry when it is back
  CHECK(take(peer.region("late")).length_bytes() == 4096);
  registry.start();
  CHECK(eventually(
      [&] {
        const auto list = client->list_peers();
        const std::string text = list ? to_json(*list) : "";
        return text.find("weights") != std::string::npos && text.find("late") != std::string::npos &&
               text.find("\"calc\"") != std::string::npos && text.find("\"client\"") != std::string::npos;
      },
      seconds(3)));
  // The list may show it before the answer to its registration has come.
  CHECK(eventually([&] { return registry_state(*client, "registered"); }));
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(number_in(to_json(client->info()), "connections_made") == 1);
}

TEST_CASE(
    "an agent whose name was taken says so, keeps its connections, and has the name again when it is free") {
  Registry registry;
  auto worker = start_calculator(registry, "worker:0");
  auto client = test::start(options_for(registry, "client"));
  Peer by_address = client->peer(worker->address());
  REQUIRE(by_address.connect().wait(kSoon).has_value());
  ctrl::Registration other;
  other.name = "worker:0";
  other.instance = InstanceId::random();
  other.address = "127.0.0.1:9";
  const auto lease = take(registry.client()->register_peer(other, {}, true));
  REQUIRE(eventually([&] { return registry_state(*worker, "fenced"); }));
  CHECK(take(by_address.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  REQUIRE(registry.client()->deregister("default", "worker:0", lease.incarnation, lease.session).ok());
  CHECK(eventually([&] { return registry_state(*worker, "registered"); }));
  CHECK(take(client->peer("worker:0").call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
}

TEST_CASE("an expired lease: a peer that answers keeps the connection") {
  Registry registry(patient(milliseconds(300)));
  PeerAgentOptions options = options_for(registry, "worker:0");
  options.heartbeat = patient(seconds(60));  // it will be declared dead
  auto worker = test::start(options);
  rpc::Service service = calculator();
  REQUIRE(worker->serve(service).ok());
  auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  REQUIRE(peer.connect().wait(kSoon).has_value());
  REQUIRE(
      eventually([&] { return to_json(take(client->list_peers())).find("worker:0") == std::string::npos; }));
  // Several of the client's heartbeats have brought the news.
  const auto beats = [&] { return number_in(to_json(client->info()), "heartbeats"); };
  const auto seen = beats();
  REQUIRE(eventually([&] { return beats() >= seen + 3; }));
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(number_in(to_json(client->info()), "connections_made") == 1);
}

TEST_CASE("when the name has a new owner, the same object reaches the new one though the old still answers") {
  Registry registry(patient(milliseconds(300)));
  PeerAgentOptions options = options_for(registry, "worker:0");
  options.heartbeat = seconds(60);
  auto old_owner = test::start(options);
  auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  REQUIRE(peer.connect().wait(kSoon).has_value());
  std::unique_ptr<PeerAgent> new_owner;
  REQUIRE(eventually([&] {
    auto agent = PeerAgent::start(options_for(registry, "worker:0"));
    if (agent) new_owner = std::move(*agent);
    return new_owner != nullptr;
  }));
  CHECK(eventually([&] {
    return peer.connect().wait(kSoon) &&
           to_json(peer.info()).find(new_owner->instance().to_string()) != std::string::npos;
  }));
}

TEST_CASE("news of owners before the one that a name has now cost its connection nothing") {
  Registry registry;
  PeerAgentOptions slow = options_for(registry, "client");
  slow.heartbeat = seconds(1);  // so that the lookup is faster than the news of all three
  auto client = test::start(slow);
  for (int i = 0; i < 2; ++i) REQUIRE(start_calculator(registry, "worker:0")->close().ok());
  auto worker = start_calculator(registry, "worker:0");
  Peer peer = client->peer("worker:0");
  REQUIRE(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  const std::int64_t before = number_in(to_json(client->info()), "heartbeats");
  REQUIRE(eventually([&] { return number_in(to_json(client->info()), "heartbeats") >= before + 2; }));
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(number_in(to_json(peer.info()), "connects") == 1);
}

TEST_CASE("news of former owners of a name cost nothing to the connection that its present owner opened") {
  Registry registry;
  PeerAgentOptions slow = options_for(registry, "worker:0");
  slow.heartbeat = seconds(1);  // so that the connection is there before the news of all three
  const auto worker = test::start(slow);
  for (int i = 0; i < 2; ++i) REQUIRE(test::start(options_for(registry, "client"))->close().ok());
  const auto client = test::start(options_for(registry, "client"));
  Peer peer = client->peer("worker:0");
  REQUIRE(peer.connect().wait(kSoon).has_value());
  const std::int64_t before = number_in(to_json(worker->info()), "heartbeats");
  REQUIRE(eventually([&] { return number_in(to_json(worker->info()), "heartbeats") >= before + 2; }));
  CHECK(peer.connect().wait(kSoon).has_value());
  CHECK(number_in(to_json(client->info()), "connections_made") == 1);
}

TEST_CASE("close does not wait for a registry that is not there") {
  Registry registry;
  auto agent = test::start(options_for(registry, "agent"));
  registry.stop();
  const auto begin = std::chrono::steady_clock::now();
  CHECK(agent->close().ok());
  CHECK(std::chrono::steady_clock::now() - begin < patient(seconds(4)));
}

}  // namespace
}  // namespace slime
