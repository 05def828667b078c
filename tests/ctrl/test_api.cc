#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::api_test {
namespace {

using namespace std::chrono_literals;
using test::kSession;
using test::registration;
using test::session;

constexpr const char* kJson = "application/json";
constexpr const char* kBody =
    R"({"name":"a","instance":"00000000000000000000000000000001","address":"127.0.0.1:7001"})";

// The beginning of the body of a request by the owner of a peer.
const std::string kOurs = str("{\"session\":\"", kSession, "\",\"incarnation\":");

class Fixture {
 public:
  explicit Fixture(ApiOptions options = {})
      : api(options, std::make_unique<MemoryEngine>(RegistryOptions{}, clock), clock,
            [this](const std::string&, const InstanceId&) {
              ++probes;
              return probe_answer.load();
            }) {}

  // Sends the request as the server's first attempt, which may be parked.
  ApiReply ask(std::string_view target) {
    ApiRequest request{"GET", target, "", ""};
    request.answer_now = false;
    return api.handle(request);
  }
  ApiReply get(std::string_view target) { return api.handle({"GET", target, "", ""}); }
  ApiReply post(std::string_view target, std::string_view body) {
    return api.handle({"POST", target, kJson, body});
  }
  ApiReply put(std::string_view target, std::string_view body) {
    return api.handle({"PUT", target, kJson, body});
  }
  ApiReply remove(std::string_view target) {
    return api.handle(
        {.method = "DELETE", .target = target, .content_type = "", .body = "", .session = kSession});
  }
  ApiReply enroll(const std::string& name, std::uint8_t number, bool takeover = false) {
    return post("/v1/peers",
                wire::encode(wire::RegisterRequest{registration(name, number), takeover, session()}));
  }
  std::uint64_t incarnation(const ApiReply& reply) { return wire::decode_lease(reply.body)->incarnation; }

  ManualClock clock;
  std::atomic<ProbeResult> probe_answer{ProbeResult::kSilent};
  std::atomic<int> probes{0};
  Api api;
};

Code code_of(const ApiReply& reply) {
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  return error ? error->code : Code::kOk;
}

TEST_CASE("a peer is registered, read, renewed and removed") {
  Fixture f;
  const ApiReply registered = f.enroll("ns/model/w:0", 1);
  REQUIRE(registered.status == 200);
  const Result<PeerInfo> peer = wire::decode_peer(f.get("/v1/peers/ns%2Fmodel%2Fw%3A0").body);
  REQUIRE(peer);
  CHECK(peer->name == "ns/model/w:0");
  CHECK(peer->expires_in == 15s);
  const std::string beat = str(kOurs, f.incarnation(registered), "}");
  CHECK(f.post("/v1/peers/ns%2Fmodel%2Fw%3A0/heartbeat", beat).status == 200);
  const std::string removal = str("/v1/peers/ns%2Fmodel%2Fw%3A0?incarnation=", f.incarnation(registered));
  CHECK(f.remove(removal).status == 200);
  CHECK(f.remove(removal).status == 404);
  CHECK(f.get("/v1/peers/ns%2Fmodel%2Fw%3A0").status == 404);
}

TEST_CASE("registrations that are refused, each with the field in the text") {
  struct Case {
    const char* body;
    const char* text;
  };
  const Case cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "not a JSON object"},
      {"null", "not a JSON object"},
      {"{}", "\"name\" is missing"},
      {R"({"name":1})", "\"name\" is not a string"},
      {R"({"name":"a"})", "\"instance\""},
      {R"({"name":"a","instance":"xyz","address":"h:1"})", "\"instance\""},
      {R"({"name":"a","instance":"00000000000000000000000000000000","address":"h:1"})", "instance"},
      {R"({"name":"a","instance":"00000000000000000000000000000001"})", "\"address\""},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h"})", "address"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","takover":true})",
       "takover"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","takeover":1})",
       "takeover"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","regions":{}})",
       "regions"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","regions":[1]})",
       "regions[0]"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1",
          "regions":[{"name":"r","length_bytes":-1,"rights":"read"}]})",
       "regions[0].length_bytes"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1",
          "regions":[{"name":"r","length_bytes":1.5,"rights":"read"}]})",
       "regions[0].length_bytes"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1",
          "regions":[{"name":"r","length_bytes":1,"rights":"all"}]})",
       "regions[0].rights"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1",
          "regions":[{"name":"r","length_bytes":1,"rights":"read","rkey":7}]})",
       "regions[0].rkey"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","services":[{}]})",
       "services[0].name"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","metadata":{"k":1}})",
       "metadata"},
      {R"({"name":"a","instance":"00000000000000000000000000000001","address":"h:1","providers":[1]})",
       "providers"},
      {R"({"name":"a b","instance":"00000000000000000000000000000001","address":"h:1"})", "name"},
      {"{\"name\":\"\xff\"}", "not JSON"},
  };
  Fixture f;
  for (const Case& c : cases) {
    CAPTURE(c.body);
    const ApiReply reply = f.post("/v1/peers", c.body);
    CHECK(reply.status == 400);
    const std::optional<wire::Error> error = wire::decode_error(reply.body);
    REQUIRE(error);
    CHECK(error->code == Code::kInvalidArgument);
    CHECK_MESSAGE(error->message.find(c.text) != std::string::npos, error->message);
    CHECK_FALSE(error->hint.empty());
  }
  CHECK(f.post("/v1/peers", kBody).status == 200);
}

TEST_CASE("nesting bombs are refused before they are parsed") {
  Fixture f;
  CHECK(f.post("/v1/peers", std::string(100000, '[')).status == 400);
  std::string objects;
  for (int i = 0; i < 50000; ++i) objects += "{\"a\":";
  const ApiReply reply = f.post("/v1/peers", objects);
  CHECK(reply.status == 400);
  CHECK(wire::decode_error(reply.body)->message.find("nests deeper") != std::string::npos);
}

TEST_CASE("the status tells the problem of a request") {
  Fixture f;
  CHECK(f.get("/v2").status == 404);
  CHECK(f.get("/v2/peers").status == 404);
  CHECK(f.get("/v1/nothing").status == 404);
  CHECK(f.get("/v1/peers/a/b").status == 404);
  CHECK(code_of(f.get("/v1/nothing")) == Code::kUnimplemented);
  CHECK(f.get("/v1/peers/%zz").status == 400);
  CHECK(f.get("/v1/peers/a%20b").status == 400);
  CHECK(f.get("/v1/peers?scop=x").status == 400);
  CHECK(f.get("/v1/peers?scope=a&scope=b").status == 400);
  CHECK(f.get("/v1/peers?scope=a%20b").status == 400);
  CHECK(f.get("/v1/peers?limit=0").status == 400);
  CHECK(f.get("/v1/watch").status == 400);
  CHECK(f.get("/v1/watch?since=-1").status == 400);
  CHECK(f.get("/v1/watch?since=1&wait_ms=30001").status == 400);
  CHECK(f.remove("/v1/peers/a").status == 400);
  CHECK(f.get(str("/v1/peers?scope=", std::string(5000, 'a'))).status == 414);
  CHECK(f.post("/v1/peers", std::string(limits::kBodyBytes + 1, ' ')).status == 413);
  CHECK(f.api.handle({"POST", "/v1/peers", "text/plain", kBody}).status == 415);
  CHECK(f.api.handle({"POST", "/v1/peers", "application/jsonx", kBody}).status == 415);
  CHECK(f.api.handle({"POST", "/v1/peers", "application/json; charset=utf-8", kBody}).status == 200);
  const ApiReply wrong = f.api.handle({"PATCH", "/v1/peers", kJson, kBody});
  CHECK(wrong.status == 405);
  CHECK(wrong.allow == "GET, POST");
  CHECK(f.remove("/healthz").status == 405);
  CHECK(f.get("/v1/peers/a/heartbeat").status == 405);
  CHECK(f.get("/healthz").status == 200);
}

TEST_CASE("a stale incarnation is 410 on every route that takes one, an unknown name 404") {
  Fixture f;
  f.enroll("a", 1);
  for (const int status : {410, 404}) {
    const char* const name = status == 410 ? "a" : "b";
    CAPTURE(name);
    CHECK(f.post(str("/v1/peers/", name, "/heartbeat"), R"({"incarnation":7})").status == status);
    CHECK(f.post(str("/v1/peers/", name, "/regions"), R"({"incarnation":7})").status == status);
    CHECK(f.put(str("/v1/peers/", name, "/regions"), R"({"incarnation":7,"regions":[]})").status == status);
    CHECK(f.post(str("/v1/peers/", name, "/services"), R"({"incarnation":7})").status == status);
    CHECK(f.put(str("/v1/peers/", name, "/services"), R"({"incarnation":7,"services":[]})").status == status);
    CHECK(f.remove(str("/v1/peers/", name, "?incarnation=7")).status == status);
  }
}

TEST_CASE("a name conflict is settled by the probe of its holder") {
  Fixture f;
  f.enroll("a", 1);
  f.probe_answer = ProbeResult::kSame;
  const ApiReply alive = f.enroll("a", 2);
  CHECK(alive.status == 409);
  CHECK(code_of(alive) == Code::kAlreadyExists);
  CHECK(alive.retry_after == Nanos::zero());
  f.probe_answer = ProbeResult::kSilent;
  const ApiReply silent = f.enroll("a", 2);
  CHECK(silent.status == 409);
  CHECK(silent.retry_after == 15s);
  f.probe_answer = ProbeResult::kGone;
  const ApiReply taken = f.enroll("a", 2);
  CHECK(taken.status == 200);
  CHECK(f.probes == 3);
}

TEST_CASE("an explicit takeover takes the name from a holder that is alive") {
  Fixture f;
  const std::uint64_t old = f.incarnation(f.enroll("a", 1));
  f.probe_answer = ProbeResult::kSame;
  const ApiReply taken = f.enroll("a", 2, true);
  REQUIRE(taken.status == 200);
  CHECK(f.incarnation(taken) > old);
  CHECK(f.probes == 1);
}

TEST_CASE("a silent holder keeps its name until its lease ends") {
  Fixture f;
  f.enroll("a", 1);
  f.clock.advance(15s - 1ns);
  CHECK(f.enroll("a", 2).status == 409);
  f.clock.advance(1ns);
  CHECK(f.enroll("a", 2).status == 200);
}

TEST_CASE("heartbeats bring the changes of the scope") {
  Fixture f;
  const ApiReply lease = f.enroll("a", 1);
  const std::uint64_t since = wire::decode_lease(lease.body)->revision;
  f.enroll("b", 2);
  const std::string body = str(kOurs, f.incarnation(lease), ",\"since\":", since, "}");
  const Result<Changes> changes = wire::decode_changes(f.post("/v1/peers/a/heartbeat", body).body);
  REQUIRE(changes);
  REQUIRE(changes->events.size() == 1);
  CHECK(changes->events[0].name == "b");
  CHECK(changes->events[0].kind == EventKind::kRegistered);
  CHECK(changes->revision == since + 1);
  const std::string plain = str(kOurs, f.incarnation(lease), "}");
  CHECK(wire::decode_changes(f.post("/v1/peers/a/heartbeat", plain).body)->events.empty());
}

TEST_CASE("lists come in pages and filtered") {
  Fixture f;
  for (std::uint8_t i = 0; i < 5; ++i) {
    Registration r = registration(str("p", int{i}), static_cast<std::uint8_t>(i + 1));
    if (i % 2 == 0) r.kind = "cache";
    r.services = {{"calc", i % 2 == 0 ? "math" : "other", {"add"}}};
    r.regions = {{"kv", 100, RegionRights::kReadWrite}};
    REQUIRE(f.post("/v1/peers", wire::encode(wire::RegisterRequest{r, false, session()})).status == 200);
  }
  std::vector<PeerInfo> peers;
  Result<wire::PageHead> head = wire::decode_peer_page(f.get("/v1/peers?limit=2").body, peers);
  REQUIRE(head);
  REQUIRE(head->next);
  CHECK(*head->next == "p1");
  head = wire::decode_peer_page(f.get("/v1/peers?limit=3&after=p1").body, peers);
  CHECK_FALSE(head->next);
  CHECK(peers.size() == 5);
  peers.clear();
  REQUIRE(wire::decode_peer_page(f.get("/v1/peers?kind=cache").body, peers));
  CHECK(peers.size() == 3);
  std::vector<ServiceEntry> services;
  REQUIRE(wire::decode_service_page(f.get("/v1/services?kind=other").body, services));
  CHECK(services.size() == 2);
  std::vector<RegionEntry> regions;
  REQUIRE(wire::decode_region_page(f.get("/v1/regions?peer=p3&name=kv").body, regions));
  REQUIRE(regions.size() == 1);
  CHECK(regions[0].region == RegionInfo{"kv", 100, RegionRights::kReadWrite});
}

TEST_CASE("lists are filtered by labels and health") {
  Fixture f;
  for (std::uint8_t i = 0; i < 4; ++i) {
    Registration r = registration(str("p", int{i}), static_cast<std::uint8_t>(i + 1));
    r.metadata = {{"rack", i < 2 ? "a" : "b"}, {"gpu", i % 2 == 0 ? "h200" : "h100"}};
    r.services = {{"m", "model", {}, i == 3 ? Health::kDraining : Health::kServing, {{"model", "m-7b"}}}};
    REQUIRE(f.post("/v1/peers", wire::encode(wire::RegisterRequest{r, false, session()})).status == 200);
  }
  const auto peers = [&](const char* labels) {
    std::vector<PeerInfo> out;
    REQUIRE(wire::decode_peer_page(f.get(str("/v1/peers?labels=", labels)).body, out));
    return out.size();
  };
  CHECK(peers("rack%3Da") == 2);
  CHECK(peers("rack=a,gpu=h200") == 1);
  CHECK(peers("rack=c") == 0);
  CHECK(peers("other=a") == 0);
  for (const char* wrong : {"rack", "=a", "rack=a,,gpu=h200"})
    CHECK(f.get(str("/v1/peers?labels=", wrong)).status == 400);
  const auto services = [&](const char* filter) {
    std::vector<ServiceEntry> out;
    REQUIRE(wire::decode_service_page(f.get(str("/v1/services?", filter)).body, out));
    return out.size();
  };
  CHECK(services("labels=model=m-7b") == 4);
  CHECK(services("health=serving") == 3);
  CHECK(services("health=draining&labels=model=m-7b") == 1);
  CHECK(f.get("/v1/services?health=fine").status == 400);
}

TEST_CASE("a peer learns which links it should have when it registers, and of changes as events") {
  Fixture f;
  CHECK(f.put("/v1/peers/a/links", R"({"targets":["b","c"]})").status == 200);
  const Result<Lease> lease = wire::decode_lease(f.enroll("a", 1).body);
  REQUIRE(lease);
  CHECK(lease->links == std::vector<std::string>{"b", "c"});
  CHECK(f.put("/v1/peers/a/links", R"({"targets":["b","c"]})").status == 200);  // no change, no event
  CHECK(f.put("/v1/peers/a/links", R"({"targets":["d"]})").status == 200);
  const std::string body = str(kOurs, lease->incarnation, ",\"since\":", lease->revision, "}");
  const Result<Changes> changes = wire::decode_changes(f.post("/v1/peers/a/heartbeat", body).body);
  REQUIRE(changes->events.size() == 1);
  CHECK(changes->events[0].kind == EventKind::kLinks);
  CHECK(changes->events[0].name == "a");
  CHECK(*wire::decode_links(f.get("/v1/peers/a/links").body) == std::vector<std::string>{"d"});
  CHECK(f.put("/v1/peers/a/links", R"({"targets":[]})").status == 200);
  CHECK(wire::decode_links(f.get("/v1/peers/a/links").body)->empty());
  for (const char* wrong : {R"({"targets":["a"]})", R"({"targets":["b","b"]})", R"({"targets":"b"})", "{}"})
    CHECK(f.put("/v1/peers/a/links", wrong).status == 400);
}

TEST_CASE("heartbeats of many peers renew each lease that its owner still has, and name the others") {
  Fixture f;
  const std::uint64_t a = f.incarnation(f.enroll("a", 1));
  const ApiReply second = f.enroll("b", 2);
  const std::uint64_t b = f.incarnation(second);
  f.clock.advance(14s);
  const std::string body = wire::encode(wire::HeartbeatsRequest{
      wire::decode_lease(second.body)->revision, {{"a", a, session()}, {"b", b - 1, session()}, {"c", 1}}});
  const Result<Heartbeats> beats = wire::decode_heartbeats_reply(f.post("/v1/heartbeats", body).body);
  REQUIRE(beats);
  REQUIRE(beats->lost.size() == 2);
  CHECK(beats->lost[0].name == "b");
  CHECK(beats->lost[0].code == Code::kAborted);
  CHECK(beats->lost[1].name == "c");
  CHECK(beats->lost[1].code == Code::kNotFound);
  CHECK(beats->changes.events.empty());
  f.clock.advance(1s);
  CHECK(f.get("/v1/peers/a").status == 200);
  CHECK(f.get("/v1/peers/b").status == 404);
  const Result<Heartbeats> later = wire::decode_heartbeats_reply(f.post("/v1/heartbeats", body).body);
  REQUIRE(later->changes.events.size() == 1);
  CHECK(later->changes.events[0].kind == EventKind::kExpired);
  wire::HeartbeatsRequest many;
  many.peers.resize(limits::kHeartbeats + 1, {"a", a});
  CHECK(f.post("/v1/heartbeats", wire::encode(many)).status == 400);
}

TEST_CASE("wanted links are listed by page, with whether both ends are there") {
  Fixture f;
  f.enroll("b", 1);
  f.enroll("c", 2);
  for (const char* name : {"b", "c", "d"})
    REQUIRE(f.put(str("/v1/peers/", name, "/links"), R"({"targets":["a","x"]})").status == 200);
  REQUIRE(f.put("/v1/peers/b/links", R"({"targets":["c"]})").status == 200);
  std::vector<LinkInfo> links;
  const Result<wire::PageHead> head = wire::decode_link_page(f.get("/v1/links?limit=2").body, links);
  REQUIRE(head);
  REQUIRE(head->next);
  CHECK(*head->next == "c");
  REQUIRE(links.size() == 3);
  CHECK(links[0].from == "b");
  CHECK(links[0].to == "c");
  CHECK(links[0].both_there);
  CHECK_FALSE(links[1].both_there);
  CHECK_FALSE(wire::decode_link_page(f.get("/v1/links?after=c").body, links)->next);
  CHECK(links.size() == 5);
}

TEST_CASE("a page of links ends early when its peers have many") {
  Fixture f;
  Report report;
  for (int i = 0; i < 1000; ++i) report.links.push_back({str("to-", i), "tcp", "ready", 0, 0, 0, 0});
  std::vector<std::string> names;
  for (std::uint8_t i = 1; i <= 10; ++i) {
    names.push_back(str("p-", 10 + i));
    const wire::HeartbeatRequest beat{f.incarnation(f.enroll(names.back(), i)), {}, report, {}, session()};
    REQUIRE(f.post(str("/v1/peers/", names.back(), "/heartbeat"), wire::encode(beat)).status == 200);
  }
  std::vector<LinkInfo> links;
  std::string after;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const std::size_t before = links.size();
    const Result<wire::PageHead> head =
        wire::decode_link_page(f.get(str("/v1/links?after=", after)).body, links);
    REQUIRE(head);
    CHECK(links.size() - before <= limits::kLinksPerPage + report.links.size());
    more = head->next.has_value();
    if (more) after = *head->next;
  }
  CHECK(pages == 2);
  REQUIRE(links.size() == names.size() * report.links.size());
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(links[i * report.links.size()].from == names[i]);
}

TEST_CASE("the scopes are listed with what they have") {
  Fixture f;
  Registration r = registration("w", 1);
  r.scope = "other";
  r.services = {{"m", "model", {}}};
  r.regions = {{"kv", 100, RegionRights::kRead}, {"v", 1, RegionRights::kRead}};
  REQUIRE(f.post("/v1/peers", wire::encode(wire::RegisterRequest{r, false, session()})).status == 200);
  f.enroll("a", 2);
  const Result<std::vector<ScopeInfo>> scopes = wire::decode_scopes(f.get("/v1/scopes").body);
  REQUIRE(scopes);
  REQUIRE(scopes->size() == 2);
  const ScopeInfo& other = (*scopes)[1];
  CHECK(other.scope == "other");
  CHECK(other.peers == 1);
  CHECK(other.services == 1);
  CHECK(other.regions == 2);
}

TEST_CASE("the metrics count requests by route, and say how many peers there are now") {
  Fixture f;
  f.enroll("ns/a", 1);
  f.get("/v1/peers/ns%2Fa");
  f.get("/v1/peers/ns%2Fb");
  f.get("/no/such/route");
  const ApiReply reply = f.get("/metrics");
  CHECK(reply.content_type.starts_with("text/plain"));
  const auto has = [&](const char* line) { return reply.body.find(line) != std::string::npos; };
  CHECK(has("nanoctrl_peers{scope=\"default\"} 1"));
  CHECK(has("nanoctrl_requests_total{method=\"POST\",route=\"/v1/peers\",status=\"200\"} 1"));
  CHECK(has("nanoctrl_requests_total{method=\"GET\",route=\"/v1/peers/{name}\",status=\"200\"} 1"));
  CHECK(has("nanoctrl_requests_total{method=\"GET\",route=\"/v1/peers/{name}\",status=\"404\"} 1"));
  CHECK(has("nanoctrl_requests_total{method=\"GET\",route=\"other\",status=\"404\"} 1"));
  CHECK(has("nanoctrl_request_seconds_count{route=\"/v1/peers\"} 1"));
  CHECK(has("nanoctrl_store_writable 1"));
  CHECK(has("nanoctrl_store_seconds_count 1"));
  CHECK(has("nanoctrl_store_waiting 0"));
  CHECK(has("nanoctrl_refused_total 0"));
  CHECK(has("nanoctrl_events_total{event=\"registered\"} 1"));
  f.clock.advance(15s);
  CHECK(f.get("/metrics").body.find("nanoctrl_peers{scope=\"default\"} 0") != std::string::npos);
  CHECK(f.get("/metrics").body.find("nanoctrl_events_total{event=\"expired\"} 1") != std::string::npos);
}

TEST_CASE("what agents report of their connections is added up by agent and provider, and goes with them") {
  Fixture f;
  const std::uint64_t incarnation = f.incarnation(f.enroll("a", 1));
  Report report;
  report.links = {{"b", "tcp", "ready", 10, 20, 0, 1},
                  {"c", "tcp", "ready", 1, 2, 0, 3},
                  {"d", "shm", "idle", 5, 6, 8, 7}};
  report.counters = {{"requests", 4}};
  const wire::HeartbeatRequest beat{incarnation, {}, report, {}, session()};
  REQUIRE(f.post("/v1/peers/a/heartbeat", wire::encode(beat)).status == 200);
  const std::string text = f.get("/metrics").body;
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  CHECK(has("slime_agent_links{peer=\"a\",provider=\"tcp\",scope=\"default\",state=\"ready\"} 2"));
  CHECK(has("slime_agent_link_sent_bytes{peer=\"a\",provider=\"tcp\",scope=\"default\"} 11"));
  CHECK(has("slime_agent_link_received_bytes{peer=\"a\",provider=\"shm\",scope=\"default\"} 6"));
  CHECK(has("slime_agent_link_direct_bytes{peer=\"a\",provider=\"shm\",scope=\"default\"} 8"));
  CHECK(has("slime_agent_link_calls{peer=\"a\",provider=\"tcp\",scope=\"default\"} 4"));
  CHECK(has("slime_agent_requests_total{peer=\"a\",scope=\"default\"} 4"));
  f.clock.advance(15s);
  f.get("/v1/peers");
  CHECK(f.get("/metrics").body.find("slime_agent_") == std::string::npos);
}

TEST_CASE("an agent cannot make as many metrics as it likes") {
  Fixture f;
  Report report;
  for (int i = 0; i < 100; ++i) report.links.push_back({str("to-", i), str("p", i), str("s", i), 1, 0, 0, 0});
  for (int agent = 0; agent < 4; ++agent) {
    report.counters.clear();
    for (int i = 0; i < 30; ++i)
      report.counters.emplace(std::string(static_cast<std::size_t>(i + 1), static_cast<char>('a' + agent)),
                              1);
    const std::string name = str("a", agent);
    const wire::HeartbeatRequest beat{
        f.incarnation(f.enroll(name, static_cast<std::uint8_t>(agent + 1))), {}, report, {}, session()};
    REQUIRE(f.post(str("/v1/peers/", name, "/heartbeat"), wire::encode(beat)).status == 200);
  }
  const std::string text = f.get("/metrics").body;
  CHECK(
      text.find("slime_agent_links{peer=\"a0\",provider=\"other\",scope=\"default\",state=\"other\"} 100") !=
      std::string::npos);
  CHECK(text.find("provider=\"p0\"") == std::string::npos);
  std::size_t families = 0;
  for (std::size_t at = 0; (at = text.find("# TYPE slime_agent_", at)) != std::string::npos; ++at) ++families;
  CHECK(families == 5 + 64);
}

TEST_CASE("a kind of event that a later server may tell is skipped") {
  const Result<Changes> changes = wire::decode_changes(
      R"({"server_epoch":1,"revision":3,"resync":false,"more":false,"events":[
          {"revision":2,"event":"promoted","name":7},
          {"revision":3,"event":"expired","name":"a","instance":"00000000000000000000000000000001",
           "incarnation":1,"address":"h:1"}]})");
  REQUIRE(changes);
  REQUIRE(changes->events.size() == 1);
  CHECK(changes->events[0].name == "a");
}

TEST_CASE("a peer may ask for a lease of its own length") {
  Fixture f;
  Registration r = registration("slow", 1);
  r.ttl = 60s;
  const ApiReply reply = f.post("/v1/peers", wire::encode(wire::RegisterRequest{r, false, session()}));
  const Result<Lease> lease = wire::decode_lease(reply.body);
  REQUIRE(lease);
  CHECK(lease->ttl == 60s);
  CHECK(lease->heartbeat_interval == 20s);
  f.enroll("usual", 2);
  f.clock.advance(59s);
  CHECK(f.get("/v1/peers/usual").status == 404);
  CHECK(f.get("/v1/peers/slow").status == 200);
  CHECK(f.post("/v1/peers/slow/heartbeat", str(kOurs, lease->incarnation, "}")).status == 200);
  f.clock.advance(59s);
  CHECK(f.get("/v1/peers/slow").status == 200);
  f.clock.advance(1s);
  CHECK(f.get("/v1/peers/slow").status == 404);
  r.ttl = 50ms;
  CHECK(f.post("/v1/peers", wire::encode(wire::RegisterRequest{r, false, session()})).status == 400);
}

TEST_CASE("a watch returns at once when there is news, and empty after its wait") {
  Fixture f;
  const std::uint64_t since = f.api.epoch();
  CHECK(wire::decode_changes(f.get(str("/v1/watch?since=", since, "&wait_ms=1")).body)->events.empty());
  f.enroll("a", 1);
  CHECK(wire::decode_changes(f.get(str("/v1/watch?since=", since, "&wait_ms=30000")).body)->events.size() ==
        1);
  CHECK(wire::decode_changes(f.get("/v1/watch?since=0&wait_ms=30000").body)->resync);
}

TEST_CASE("a watch without news is parked with its scope for its wait, unless it must be answered") {
  Fixture f;
  const std::string target = str("/v1/watch?scope=s&since=", f.api.epoch(), "&wait_ms=30000");
  const ApiReply parked = f.ask(target);
  REQUIRE(parked.parked);
  CHECK(parked.parked->key == "s");
  CHECK(parked.parked->wait == 30s);
  CHECK(wire::decode_changes(f.get(target).body)->events.empty());
  const std::string brief = str("/v1/watch?scope=s&since=", f.api.epoch());
  CHECK_FALSE(f.ask(brief).parked);
}

TEST_CASE("a watch that is asked again after a change or an expiry tells it") {
  Fixture f;
  const Result<Lease> lease = wire::decode_lease(f.enroll("a", 1).body);
  const std::string target = str("/v1/watch?since=", lease->revision, "&wait_ms=30000");
  const auto watch = [&] { return f.ask(target); };
  REQUIRE(watch().parked);
  CHECK(f.api.tick() == 15s);
  f.clock.advance(15s);
  CHECK(f.api.tick() == Nanos::max());
  CHECK(wire::decode_changes(watch().body)->events.at(0).kind == EventKind::kExpired);
}

TEST_CASE("the status tells how many watches are parked") {
  Fixture f({.parked = [] { return 7; }});
  CHECK(f.get("/v1/status").body.find("\"watchers\":7") != std::string::npos);
}

TEST_CASE("stop refuses what comes later") {
  Fixture f;
  f.api.stop();
  CHECK(f.get(str("/v1/watch?since=", f.api.epoch(), "&wait_ms=30000")).status == 503);
  CHECK(code_of(f.enroll("a", 1)) == Code::kUnavailable);
}

TEST_CASE("of many instances that want one name at once exactly one gets it") {
  Fixture f;
  f.probe_answer = ProbeResult::kSame;
  std::atomic<int> won{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (std::uint8_t i = 1; i <= 8; ++i) {
    threads.emplace_back([&, i] {
      const int status = f.enroll("a", i).status;
      ++(status == 200 ? won : refused);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(won == 1);
  CHECK(refused == 7);
}

}  // namespace
}  // namespace slime::ctrl::api_test
