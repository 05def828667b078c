// The work of a list is bounded per request and per acquisition of the registry's lock, matching or
// not.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/api/scan.h"
#include "ctrl/client.h"
#include "ctrl/server.h"
#include "ctrl/store/records.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::scans_test {
namespace {

using test::registration;
using test::session;

std::string peer_name(std::size_t number) { return str("peer-", 100'000 + number); }

void enroll(Engine& engine, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    REQUIRE(engine.submit(RegisterCommand{registration(peer_name(i), 1), 0, Proof::trusted()}).status.ok());
}

TEST_CASE("a scan holds the registry for a slice at a time, ends with its budget, and goes on from there") {
  ManualClock clock;
  MemoryEngine engine({}, clock);
  constexpr std::size_t kPeers = 2 * limits::kVisitsPerPage + 10;
  enroll(engine, kPeers);
  const Reports reports(1 << 20, 1 << 20);
  Scans scans(engine, reports);
  std::set<std::string> seen;
  std::string after;
  for (std::size_t request = 0; request < 3; ++request) {
    const Scans::Counts before = scans.counts();
    const ScanHead head = scans.visit("default", after, {}, [&](const PeerView& peer) {
      CHECK(seen.insert(peer.info->name).second);
      return true;
    });
    const Scans::Counts now = scans.counts();
    const std::size_t expected = request < 2 ? limits::kVisitsPerPage : 10;
    CHECK(now.records - before.records == expected);
    CHECK(now.slice_most == limits::kRecordsPerSlice);
    CHECK(now.slices - before.slices == (expected + limits::kRecordsPerSlice - 1) / limits::kRecordsPerSlice);
    CHECK(head.next.has_value() == (request < 2));
    if (head.next) after = *head.next;
  }
  CHECK(seen.size() == kPeers);
}

TEST_CASE("a scan ends where the visitor does, after so many bytes, and says when nothing is left") {
  ManualClock clock;
  MemoryEngine engine({}, clock);
  enroll(engine, 10);
  const Reports reports(1 << 20, 1 << 20);
  Scans scans(engine, reports);
  const auto next_of = [&](std::string_view after, ScanBudget budget, std::size_t visits) {
    std::size_t visited = 0;
    return scans.visit("default", after, budget, [&](const PeerView&) { return ++visited < visits; }).next;
  };
  CHECK(next_of("", {}, 3) == peer_name(2));
  CHECK(next_of("", {.records = 4}, 100) == peer_name(3));
  CHECK(next_of(peer_name(3), {.records = 4}, 100) == peer_name(7));
  const std::size_t bytes =
      engine.read([](const Registry& registry) { return registry.view("default", peer_name(0))->bytes; });
  CHECK(next_of("", {.bytes = 2 * bytes + 1}, 100) == peer_name(2));
  CHECK(next_of("", {.records = 10}, 100) == std::nullopt);
  CHECK(next_of("", {}, 10) == std::nullopt);
  CHECK(next_of(peer_name(9), {}, 100) == std::nullopt);
  CHECK(scans.visit("nobody", "", {}, [](const PeerView&) { return true; }).next == std::nullopt);
}

TEST_CASE("a scan of reports leaves out the reports of agents that are gone, and ends with its budget") {
  ManualClock clock;
  MemoryEngine engine({}, clock);
  enroll(engine, 4);
  Reports reports(1 << 20, 1 << 20);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::uint64_t incarnation =
        engine.look([&](const Registry& registry) { return registry.incarnation("default", peer_name(i)); });
    // Peer 1 registered again after its report; peers 4 and 5 are not registered.
    reports.put("default", peer_name(i), i == 1 || i > 3 ? incarnation + 1 : incarnation, {});
  }
  Scans scans(engine, reports);
  std::vector<std::string> seen;
  const auto see = [&](const Reports::View& agent) {
    seen.push_back(agent.name);
    return true;
  };
  const auto looked_at = scans.visit_reports("default", {}, 3, see);
  CHECK(looked_at == peer_name(2));
  CHECK(seen == std::vector<std::string>{peer_name(0), peer_name(2)});
  CHECK_FALSE(scans.visit_reports("default", peer_name(2), 100, see).has_value());
  CHECK(seen == std::vector<std::string>{peer_name(0), peer_name(2), peer_name(3)});
}

TEST_CASE("the registry is free while a scan looks at its records, and they stay as they were taken") {
  ManualClock clock;
  MemoryEngine engine({}, clock);
  enroll(engine, 3);
  const Reports reports(1 << 20, 1 << 20);
  Scans scans(engine, reports);
  const std::uint64_t revision =
      engine.read([](const Registry& registry) { return registry.revision("default"); });
  std::vector<std::string> addresses;
  // Commands of the visitor would deadlock if the scan held the engine's lock.
  const ScanHead head = scans.visit("default", "", {}, [&](const PeerView& peer) {
    Registration moved = registration(peer.info->name, 1);
    moved.address = "127.0.0.1:9";
    CHECK(engine.submit(RegisterCommand{moved, 0, Proof::trusted()}).status.ok());
    addresses.push_back(peer.info->address);
    return true;
  });
  CHECK(addresses == std::vector<std::string>(3, "127.0.0.1:7001"));
  CHECK(head.revision == revision);  // so that a watch from this revision reports the changes
}

TEST_CASE("a record is taken for the store without its text, and encodes as it was") {
  ManualClock clock;
  Registry registry({});
  REQUIRE(
      registry.apply(RegisterCommand{registration("a", 1), 0, Proof::trusted()}, clock.now()).status.ok());
  REQUIRE(registry.apply(SetLinksCommand{"default", "a", {"b"}, Proof::trusted()}, clock.now()).status.ok());
  const RecordKey peer{Table::kPeer, "default", "a"};
  const RecordKey links{Table::kLinks, "default", "a"};
  const RecordEncoder encode_peer = record_encoder(registry, peer);
  const RecordEncoder encode_links = record_encoder(registry, links);
  const std::optional<std::string> before = encode_record(registry, peer);
  Registration moved = registration("a", 1);
  moved.address = "127.0.0.1:9";
  REQUIRE(registry.apply(RegisterCommand{moved, 0, Proof::trusted()}, clock.now()).status.ok());
  REQUIRE(registry.apply(SetLinksCommand{"default", "a", {}, Proof::trusted()}, clock.now()).status.ok());
  CHECK(encode_peer() == before);
  CHECK(encode_record(registry, peer) != before);
  CHECK(encode_links() == R"({"targets":["b"]})");
  CHECK_FALSE(record_encoder(registry, links)());
}

class Fixture {
 public:
  explicit Fixture(std::size_t peers) {
    auto engine = std::make_unique<MemoryEngine>(RegistryOptions{}, clock);
    enroll(*engine, peers);
    api.emplace(ApiOptions{}, std::move(engine), clock,
                [](const std::string&, const InstanceId&) { return ProbeResult::kSilent; });
  }
  ApiReply get(const std::string& target) { return api->handle({"GET", target, "", ""}); }
  std::uint64_t metric(const std::string& name) {
    const std::string text = get("/metrics").body;
    const auto at = text.find("\n" + name + " ");
    REQUIRE(at != std::string::npos);
    return std::stoull(text.substr(at + name.size() + 2));
  }
  std::uint64_t visited() { return metric("nanoctrl_records_visited_total"); }

  ManualClock clock;
  std::optional<Api> api;
};

TEST_CASE("a list that matches nothing looks at so many records a request, and its empty pages go on") {
  constexpr std::size_t kPeers = limits::kVisitsPerPage + 100;
  Fixture f(kPeers);
  for (const char* list : {"/v1/peers?kind=none", "/v1/services?name=none", "/v1/regions?name=none",
                           "/v1/peers?labels=a=b&limit=1"}) {
    CAPTURE(list);
    const std::uint64_t before = f.visited();
    std::vector<PeerInfo> none;
    const ApiReply first = f.get(list);
    REQUIRE(first.status == 200);
    CHECK(f.visited() - before == limits::kVisitsPerPage);
    const std::string next = str("\"next\":\"", peer_name(limits::kVisitsPerPage - 1), "\"");
    CHECK(first.body.find(next) != std::string::npos);
    CHECK(first.body.find(":[]}") != std::string::npos);
    const ApiReply last = f.get(str(list, "&after=", peer_name(limits::kVisitsPerPage - 1)));
    CHECK(f.visited() - before == kPeers);
    CHECK(last.body.find("\"next\"") == std::string::npos);
  }
}

TEST_CASE("the regions of one peer are looked for at that peer alone") {
  Fixture f(1000);
  const std::uint64_t before = f.visited();
  CHECK(f.get("/v1/regions?peer=" + peer_name(900)).body.find("\"next\"") == std::string::npos);
  CHECK(f.get("/v1/regions?peer=none").status == 200);
  CHECK(f.visited() - before == 2);
}

TEST_CASE("a client goes on behind empty pages to what matches") {
  ServerOptions options;
  options.port = 0;
  options.registry.ttl = std::chrono::hours(1);
  Result<std::unique_ptr<Server>> bound = Server::bind(std::move(options));
  REQUIRE(bound);
  Server& server = **bound;
  REQUIRE(server.start().ok());
  for (std::size_t i = 0; i <= limits::kVisitsPerPage; ++i) {
    Registration peer = registration(peer_name(i), 1);
    if (i == limits::kVisitsPerPage) {
      peer.kind = "cache";
      peer.services = {{"store", "cache", {}}};
      peer.regions = {{"blocks", 1, RegionRights::kRead}};
    }
    const std::string body = wire::encode(wire::RegisterRequest{std::move(peer), false});
    REQUIRE(server.api().handle({"POST", "/v1/peers", "application/json", body}).status == 200);
  }
  Result<std::unique_ptr<Client>> client = Client::create({.url = server.url()});
  REQUIRE(client);
  const Result<PeerList> peers = (*client)->list_peers({.kind = "cache"});
  REQUIRE(peers);
  REQUIRE(peers->peers.size() == 1);
  CHECK(peers->peers[0].name == peer_name(limits::kVisitsPerPage));
  const Result<ServiceList> services = (*client)->list_services({.name = "store"});
  REQUIRE(services);
  CHECK(services->services.size() == 1);
  const Result<std::vector<RegionEntry>> regions =
      (*client)->list_regions("default", peer_name(limits::kVisitsPerPage));
  REQUIRE(regions);
  CHECK(regions->size() == 1);
}

TEST_CASE("lists of scopes and the metrics look at no peer, however many there are") {
  Fixture f(1000);
  const std::uint64_t before = f.visited();
  CHECK(f.get("/v1/scopes").body.find("\"peers\":1000") != std::string::npos);
  CHECK(f.visited() == before);
}

TEST_CASE("a page of links takes what is reported a slice at a time, and is whole") {
  Fixture f(0);
  Report report;
  report.links.push_back({"x", "tcp", "ready", 0, 0, 0, 0});
  // Peers with and without reports alternate.
  for (std::size_t i = 0; i < 600; ++i) {
    const std::string body =
        wire::encode(wire::RegisterRequest{registration(peer_name(i), 1), false, session()});
    const ApiReply reply = f.api->handle({"POST", "/v1/peers", "application/json", body});
    REQUIRE(reply.status == 200);
    if (i % 2 == 1) continue;
    const wire::HeartbeatRequest beat{wire::decode_lease(reply.body)->incarnation, {}, report, {}, session()};
    REQUIRE(f.api
                ->handle({"POST", str("/v1/peers/", peer_name(i), "/heartbeat"), "application/json",
                          wire::encode(beat)})
                .status == 200);
  }
  const std::uint64_t slices = f.metric("nanoctrl_record_slices_total");
  std::vector<LinkInfo> links;
  const Result<wire::PageHead> head = wire::decode_link_page(f.get("/v1/links").body, links);
  REQUIRE(head);
  CHECK_FALSE(head->next);
  REQUIRE(links.size() == 300);
  CHECK(links[1].from == peer_name(2));
  CHECK(f.metric("nanoctrl_record_slices_total") - slices >= 300 / limits::kRecordsPerSlice + 1);
}

TEST_CASE("the routes without pages list a scope of more than a slice whole") {
  ManualClock clock;
  auto engine = std::make_unique<MemoryEngine>(RegistryOptions{}, clock);
  Engine& registry = *engine;
  Api api({}, std::move(engine), clock,
          [](const std::string&, const InstanceId&) { return ProbeResult::kSilent; });
  constexpr std::size_t kPeers = 3 * limits::kRecordsPerSlice + 1;
  enroll(registry, kPeers);
  const ApiReply reply = api.handle({"POST", "/list_entities", "application/json", R"({"scope":"default"})"});
  REQUIRE(reply.status == 200);
  std::size_t found = 0;
  for (std::size_t i = 0; i < kPeers; ++i)
    found += reply.body.find(str("\"", peer_name(i), "\"")) != std::string::npos ? 1 : 0;
  CHECK(found == kPeers);
}

}  // namespace
}  // namespace slime::ctrl::scans_test
