#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/compat/entities.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/samples.h"

// The routes of DLSlime's NanoCtrl.
namespace slime::ctrl::compat_test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using test::registration;
using test::session;

struct Reply {
  int status = 0;
  Json body;
  Nanos retry_after{};
};

class Fixture {
 public:
  Fixture()
      : engine(new MemoryEngine(RegistryOptions{}, clock)),
        api({}, std::unique_ptr<Engine>(engine), clock, [this](const std::string&, const InstanceId&) {
          ++probes;
          return ProbeResult::kGone;
        }) {}

  Reply post(std::string_view target, const Json& body, std::string_view token = {}) {
    const std::string text = body.dump();
    const std::string header = token.empty() ? "" : str("Bearer ", token);
    const ApiReply reply = api.handle({.method = "POST",
                                       .target = target,
                                       .content_type = "application/json",
                                       .body = text,
                                       .authorization = header});
    return {reply.status, Json::parse(reply.body, nullptr, false), reply.retry_after};
  }
  ApiReply get(std::string_view target, std::string_view accept = "*/*") {
    return api.handle({.method = "GET", .target = target, .content_type = "", .body = "", .accept = accept});
  }
  std::optional<PeerInfo> peer(std::string_view name, std::string_view scope = "default") {
    const ApiReply reply = get(str("/v1/peers/", name, "?scope=", scope));
    if (reply.status != 200) return std::nullopt;
    Result<PeerInfo> peer = wire::decode_peer(reply.body);
    REQUIRE(peer);
    return std::move(*peer);
  }
  Reply register_native(const std::string& name, bool takeover = false) {
    Registration native = registration(name, 1);
    native.metadata = {{"gpu", "0"}};
    native.regions = {{"kv", 4096, RegionRights::kRead}};
    return post("/v1/peers", Json::parse(wire::encode(wire::RegisterRequest{native, takeover, session()})));
  }
  // Makes a token. Without `by`, makes the first token directly in the store.
  std::string make_token(Role role, const std::string& scope, std::string_view by) {
    if (by.empty()) {
      const NewToken first = ctrl::make_token(role, scope, "", unix_time_s(), 0);
      REQUIRE(engine->submit(PutTokenCommand{first.record}).status.ok());
      return first.text;
    }
    return post("/v1/tokens", Json::parse(wire::encode(TokenRequest{role, scope, "", 0})), by)
        .body.at("token");
  }

  ManualClock clock;
  int probes = 0;
  MemoryEngine* const engine;  // owned by `api`
  Api api;
};

Json service(const std::string& id, const std::string& kind) {
  return {{"entity_type", "service"},
          {"entity_id", id},
          {"kind", kind},
          {"endpoint", {{"host", "10.0.0.2"}, {"port", 6001}, {"protocol", "zmq"}}},
          {"metadata", {{"world_size", 8}, {"peer_addrs", {"10.0.0.2:5000"}}}}};
}

Json ref(const std::string& type, const std::string& id) {
  return {{"entity_type", type}, {"entity_id", id}};
}

bool is_error(const Reply& reply, int status) {
  return reply.status == status && reply.body.size() == 2 && reply.body.at("status") == "error" &&
         reply.body.at("message").is_string() && !reply.body.at("message").get<std::string>().empty();
}

TEST_CASE("an entity is registered, read, renewed, listed and removed") {
  Fixture f;
  CHECK(f.post("/register", service("prefill-0", "prefill")).body.at("status") == "ok");
  const Reply info = f.post("/get_entity_info", ref("service", "prefill-0"));
  CHECK(info.body.at("status") == "ok");
  const Json entity = info.body.at("entity_info");
  CHECK(entity.at("id") == "prefill-0");
  CHECK(entity.at("entity_id") == "prefill-0");
  CHECK(entity.at("entity_type") == "service");
  CHECK(entity.at("kind") == "prefill");
  CHECK(entity.at("endpoint").at("port") == 6001);
  CHECK(entity.at("metadata").at("world_size") == 8);
  CHECK(entity.at("resource").is_null());
  CHECK(f.post("/list_entities", Json::object()).body.at("entities") == Json::array({entity}));
  CHECK(f.post("/heartbeat", ref("service", "prefill-0")).body.at("status") == "ok");
  CHECK(f.post("/unregister", ref("service", "prefill-0")).body.at("status") == "ok");
  const Reply gone = f.post("/get_entity_info", ref("service", "prefill-0"));
  CHECK(gone.status == 200);
  CHECK(gone.body == Json{{"status", "not_found"}, {"entity_info", nullptr}});
  CHECK(f.post("/list_entities", Json::object()).body.at("entities").empty());
  CHECK(f.post("/unregister", ref("service", "prefill-0")).body.at("status") == "ok");
}

TEST_CASE("a heartbeat gives 60 s, and one that comes too late is told not_found") {
  Fixture f;
  REQUIRE(f.post("/register", service("s", "k")).status == 200);
  f.clock.advance(59s);
  CHECK(f.post("/heartbeat", ref("service", "s")).body.at("status") == "ok");
  f.clock.advance(59s);
  CHECK(f.post("/heartbeat", ref("service", "s")).body.at("status") == "ok");
  f.clock.advance(60s);
  const Reply late = f.post("/heartbeat", ref("service", "s"));
  CHECK(late.status == 200);
  CHECK(late.body.at("status") == "not_found");
  CHECK(f.post("/register", service("s", "k")).status == 200);
  CHECK(f.post("/heartbeat", ref("service", "s")).body.at("status") == "ok");
}

TEST_CASE("an entity is a peer: in the native list, with an address, and its changes are events") {
  Fixture f;
  REQUIRE(f.post("/register", service("s", "cache")).status == 200);
  const std::optional<PeerInfo> peer = f.peer("s");
  REQUIRE(peer);
  CHECK(peer->kind == "cache");
  CHECK(peer->address == "10.0.0.2:6001");
  CHECK(peer->ttl == 60s);
  Json changed = service("s", "cache");
  changed["metadata"] = {{"world_size", 16}};
  REQUIRE(f.post("/register", changed).status == 200);
  REQUIRE(f.post("/unregister", ref("service", "s")).status == 200);
  const Result<Changes> changes = wire::decode_changes(f.get(str("/v1/watch?since=", peer->revision)).body);
  REQUIRE(changes);
  REQUIRE(changes->events.size() == 2);
  CHECK(changes->events[0].kind == EventKind::kUpdated);
  CHECK(changes->events[0].incarnation == peer->incarnation);
  CHECK(changes->events[1].kind == EventKind::kDeregistered);
}

TEST_CASE("addresses: a host and a port, or a placeholder that cannot be connected to") {
  Fixture f;
  const auto address = [&](const Json& endpoint) {
    Json body = service("s", "k");
    body["endpoint"] = endpoint;
    REQUIRE(f.post("/register", body).status == 200);
    return f.peer("s")->address;
  };
  CHECK(address({{"host", "h"}, {"port", 1}}) == "h:1");
  CHECK(address({{"host", "fe80::1"}, {"port", 1}}) == "[fe80::1]:1");
  CHECK(address("h:2") == "h:2");
  for (const Json& odd :
       {Json(nullptr), Json("h"), Json(7), Json{{"host", "h"}}, Json{{"host", "h"}, {"port", 0}},
        Json{{"host", "h"}, {"port", 65536}}, Json{{"host", 1}, {"port", "1"}}})
    CHECK(address(odd) == compat::kNoAddress);
}

TEST_CASE("registering again changes an entity; another entity_type with its id is refused") {
  Fixture f;
  REQUIRE(f.post("/register", service("s", "old")).status == 200);
  REQUIRE(f.post("/register", service("s", "new")).status == 200);
  CHECK(f.post("/get_entity_info", ref("service", "s")).body.at("entity_info").at("kind") == "new");
  Json other = service("s", "new");
  other["entity_type"] = "engine";
  CHECK(is_error(f.post("/register", other), 409));
  CHECK(f.post("/heartbeat", ref("engine", "s")).body.at("status") == "not_found");
  CHECK(f.post("/get_entity_info", ref("engine", "s")).body.at("status") == "not_found");
  CHECK(f.post("/unregister", ref("engine", "s")).body.at("status") == "ok");
  CHECK(f.peer("s"));
}

TEST_CASE("an agent is started, found and cleaned up") {
  Fixture f;
  const Reply started = f.post("/start_peer_agent", {{"alias", "a"},
                                                     {"address", "10.0.0.2"},
                                                     {"device", "mlx5_0"},
                                                     {"ib_port", 2},
                                                     {"link_type", "RoCE"},
                                                     {"resource", {{"nics", {{{"name", "mlx5_0"}}}}}}});
  CHECK(started.status == 200);
  CHECK(started.body.at("status") == "ok");
  CHECK(started.body.at("name") == "a");
  CHECK(started.body.at("redis_address") == "");
  CHECK(started.body.at("resource").at("nics")[0].at("name") == "mlx5_0");
  const Json agents = f.post("/query", Json::object()).body;
  REQUIRE(agents.size() == 1);
  CHECK(agents[0] == Json{{"name", "a"},
                          {"device", "mlx5_0"},
                          {"ib_port", 2},
                          {"link_type", "RoCE"},
                          {"address", "10.0.0.2"},
                          {"resource", {{"nics", {{{"name", "mlx5_0"}}}}}},
                          {"memory_keys", Json::array()}});
  CHECK(f.peer("a")->kind == "agent");
  CHECK(f.peer("a")->address == compat::kNoAddress);
  CHECK(f.post("/heartbeat", ref("agent", "a")).body.at("status") == "ok");
  const Reply again = f.post("/start_peer_agent", {{"alias", "a"}, {"address", "10.0.0.3"}});
  CHECK(is_error(again, 409));
  CHECK(again.retry_after == 60s);
  CHECK(f.post("/cleanup", {{"agent_name", "a"}}).body.at("status") == "ok");
  CHECK(f.post("/cleanup", {{"agent_name", "a"}}).body.at("status") == "ok");
  CHECK(f.post("/query", Json::object()).body == Json::array());
  CHECK(f.post("/start_peer_agent", {{"alias", "a"}, {"address", "10.0.0.3"}}).status == 200);
}

TEST_CASE("agents without an alias get names of their own") {
  Fixture f;
  const std::string first = f.post("/start_peer_agent", {{"address", ""}}).body.at("name");
  const std::string second =
      f.post("/start_peer_agent", {{"address", "h:1"}, {"name_prefix", "w"}, {"alias", nullptr}})
          .body.at("name");
  CHECK(first.starts_with("agent-"));
  CHECK(second.starts_with("w-"));
  CHECK(f.post("/query", Json::object()).body.size() == 2);
}

TEST_CASE("regions of an agent: integers of 64 bits, replaced by name, gone with the agent") {
  Fixture f;
  const Json kv = {{"agent_name", "a"},
                   {"mr_name", "kv cache"},
                   {"addr", std::uint64_t{0xffff'ffff'ffff'f000}},
                   {"length", 4096},
                   {"rkey", 0xffff'ffffU}};
  CHECK(is_error(f.post("/register_mr", kv), 404));
  REQUIRE(f.post("/start_peer_agent", {{"alias", "a"}, {"address", "h:1"}}).status == 200);
  CHECK(f.post("/register_mr", kv).body.at("status") == "ok");
  const Json query = {{"src", "b"}, {"dst", "a"}, {"mr_name", "kv cache"}};
  CHECK(f.post("/get_mr_info", query).body == Json{{"mr_info",
                                                    {{"addr", std::uint64_t{0xffff'ffff'ffff'f000}},
                                                     {"length", 4096},
                                                     {"rkey", 0xffff'ffffU},
                                                     {"lkey", 0}}}});
  Json moved = kv;
  moved["addr"] = 1;
  CHECK(f.post("/register_mr", moved).status == 200);
  CHECK(f.post("/get_mr_info", query).body.at("mr_info").at("addr") == 1);
  CHECK(f.post("/query", Json::object()).body[0].at("memory_keys") == Json::array({"kv cache"}));
  CHECK(f.post("/get_mr_info", {{"dst", "a"}, {"mr_name", "x"}}).body == Json{{"mr_info", nullptr}});
  REQUIRE(f.post("/cleanup", {{"agent_name", "a"}}).status == 200);
  CHECK(f.post("/get_mr_info", query).body == Json{{"mr_info", nullptr}});
}

TEST_CASE("a desired topology sets the wanted links of any agent, registered or not") {
  Fixture f;
  const Json spec = {{"target_peers", {"b", "c"}}, {"min_bw", "100Gbps"}, {"symmetric", true}};
  CHECK(f.post("/v1/desired_topology/ns/a", spec).body.at("status") == "ok");
  CHECK(Json::parse(f.get("/v1/peers/ns%2Fa/links").body).at("targets") == spec.at("target_peers"));
  CHECK(f.post("/v1/desired_topology/ns%2Fa", {{"target_peers", Json::array()}}).body.at("status") == "ok");
  CHECK(Json::parse(f.get("/v1/peers/ns%2Fa/links").body).at("targets").empty());
  CHECK(is_error(f.post("/v1/desired_topology/a", Json::object()), 400));
  CHECK(is_error(f.post("/v1/desired_topology/a", {{"target_peers", {1}}}), 400));
  CHECK(is_error(f.post("/v1/desired_topology/a", {{"target_peers", {"a"}}}), 400));
}

TEST_CASE("a slime agent is seen, and neither changed nor removed nor kept alive") {
  Fixture f;
  REQUIRE(f.register_native("w").status == 200);
  const std::optional<PeerInfo> before = f.peer("w");
  const Json agents = f.post("/query", Json::object()).body;
  REQUIRE(agents.size() == 1);
  CHECK(agents[0].at("name") == "w");
  CHECK(agents[0].at("address") == "127.0.0.1:7001");
  CHECK(agents[0].at("memory_keys") == Json::array({"kv"}));
  const Json entity = f.post("/get_entity_info", ref("agent", "w")).body.at("entity_info");
  CHECK(entity.at("kind") == "worker");
  CHECK(entity.at("endpoint") == Json{{"host", "127.0.0.1"}, {"port", 7001}, {"protocol", "slime"}});
  CHECK(entity.at("metadata") == Json{{"gpu", "0"}});
  CHECK(f.post("/list_entities", Json::object()).body.at("entities") == Json::array({entity}));
  CHECK(f.post("/get_mr_info", {{"dst", "w"}, {"mr_name", "kv"}}).body == Json{{"mr_info", nullptr}});

  Json same = service("w", "worker");
  CHECK(is_error(f.post("/register", same), 409));
  same["entity_type"] = "agent";
  CHECK(is_error(f.post("/register", same), 409));
  CHECK(is_error(f.post("/start_peer_agent", {{"alias", "w"}, {"address", "h:1"}}), 409));
  CHECK(is_error(f.post("/unregister", ref("agent", "w")), 409));
  CHECK(is_error(f.post("/unregister", ref("service", "w")), 409));
  CHECK(is_error(f.post("/cleanup", {{"agent_name", "w"}}), 409));
  CHECK(is_error(f.post("/register_mr",
                        {{"agent_name", "w"}, {"mr_name", "m"}, {"addr", 1}, {"length", 1}, {"rkey", 1}}),
                 409));
  f.clock.advance(1s);
  CHECK(f.post("/heartbeat", ref("agent", "w")).body.at("status") == "not_found");
  const std::optional<PeerInfo> after = f.peer("w");
  REQUIRE(after);
  CHECK(static_cast<const Registration&>(*after) == static_cast<const Registration&>(*before));
  CHECK(after->incarnation == before->incarnation);
  CHECK(after->expires_in == before->expires_in - 1s);
}

TEST_CASE("a slime agent does not get the name of a living entity, except by taking it over") {
  Fixture f;
  REQUIRE(f.post("/register", service("s", "k")).status == 200);
  const Reply refused = f.register_native("s");
  CHECK(refused.status == 409);
  CHECK(refused.retry_after == 60s);
  // The listener at the entity's endpoint cannot know the instance, so it is not probed.
  CHECK(f.probes == 0);
  CHECK(f.register_native("s", true).status == 200);
  CHECK(f.post("/heartbeat", ref("service", "s")).body.at("status") == "not_found");
}

TEST_CASE("scopes isolate: lists, entities, heartbeats, regions and removals") {
  Fixture f;
  const auto in = [](Json body, const Json& scope) {
    body["scope"] = scope;
    return body;
  };
  REQUIRE(f.post("/register", in(service("s", "k"), "a")).status == 200);
  REQUIRE(f.post("/start_peer_agent", in({{"alias", "w"}, {"address", "h:1"}}, "a")).status == 200);
  const Json region = {{"agent_name", "w"}, {"mr_name", "m"}, {"addr", 1}, {"length", 1}, {"rkey", 1}};
  REQUIRE(f.post("/register_mr", in(region, "a")).status == 200);
  for (const Json& scope : {Json("b"), Json(nullptr), Json(""), Json("default"), Json("a:service")}) {
    CAPTURE(scope);
    CHECK(f.post("/list_entities", in(Json::object(), scope)).body.at("entities").empty());
    CHECK(f.post("/list_entities", in({{"entity_type", "service"}}, scope)).body.at("entities").empty());
    CHECK(f.post("/list_entities", in({{"entity_type", "a:service"}}, scope)).body.at("entities").empty());
    CHECK(f.post("/list_entities", in({{"entity_type", "*"}}, scope)).body.at("entities").empty());
    CHECK(f.post("/list_entities", in({{"kind", "k"}}, scope)).body.at("entities").empty());
    CHECK(f.post("/query", in(Json::object(), scope)).body.empty());
    CHECK(f.post("/get_entity_info", in(ref("service", "s"), scope)).body.at("status") == "not_found");
    CHECK(f.post("/get_entity_info", in(ref("a:service", "s"), scope)).body.at("status") == "not_found");
    CHECK(f.post("/heartbeat", in(ref("service", "s"), scope)).body.at("status") == "not_found");
    CHECK(f.post("/get_mr_info", in({{"dst", "w"}, {"mr_name", "m"}}, scope)).body.at("mr_info").is_null());
    CHECK(is_error(f.post("/register_mr", in(region, scope)), 404));
    CHECK(f.post("/unregister", in(ref("service", "s"), scope)).status == 200);
    CHECK(f.post("/cleanup", in({{"agent_name", "w"}}, scope)).status == 200);
  }
  CHECK(f.post("/list_entities", in(Json::object(), "a")).body.at("entities").size() == 2);
  // The same id in another scope is another entity.
  CHECK(f.post("/register", in(service("s", "other"), "b")).status == 200);
  CHECK(f.post("/list_entities", in({{"kind", "k"}}, "a")).body.at("entities").size() == 1);
}

TEST_CASE("entities are listed by type and kind, over more than one page of the registry") {
  Fixture f;
  for (std::size_t i = 0; i < limits::kPeersPerPage + 1; ++i)
    REQUIRE(f.post("/register", service(str("s", i), i % 2 == 0 ? "even" : "odd")).status == 200);
  REQUIRE(f.post("/start_peer_agent", {{"alias", "z"}, {"address", "h:1"}}).status == 200);
  const auto count = [&](const Json& filter) {
    return f.post("/list_entities", filter).body.at("entities").size();
  };
  CHECK(count(Json::object()) == limits::kPeersPerPage + 2);
  CHECK(count({{"entity_type", nullptr}, {"kind", nullptr}}) == limits::kPeersPerPage + 2);
  CHECK(count({{"entity_type", "service"}}) == limits::kPeersPerPage + 1);
  CHECK(count({{"kind", "odd"}}) == limits::kPeersPerPage / 2);
  CHECK(count({{"entity_type", "agent"}}) == 1);
  CHECK(count({{"entity_type", "agent"}, {"kind", "odd"}}) == 0);
  CHECK(f.post("/query", Json::object()).body.size() == 1);
}

TEST_CASE("what the native record has no field for is kept exactly, up to 32 KiB") {
  Fixture f;
  Json body = service("s", "k");
  std::string text;
  while (text.size() < 9000) text += "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \"\\\n";
  body["metadata"] = {{"text", text}, {"numbers", {1, -2, 2.5, true, nullptr}}, {"deep", {{{{{1}}}}}}};
  body["resource"] = {{"nics", Json::array()}};
  body["unknown"] = {{"field", 1}};
  REQUIRE(f.post("/register", body).status == 200);
  const Json info = f.post("/get_entity_info", ref("service", "s")).body.at("entity_info");
  CHECK(info.at("metadata") == body["metadata"]);
  CHECK(info.at("resource") == body["resource"]);
  CHECK(f.peer("s")->metadata.size() > 8);
  // A changed entity must fit as well; a change that does not fit leaves the entity as it is.
  Json large = body;
  large["metadata"] = {{"text", std::string(33000, 'x')}};
  CHECK(is_error(f.post("/register", large), 413));
  CHECK(f.post("/get_entity_info", ref("service", "s")).body.at("entity_info") == info);
}

TEST_CASE("there is no Redis, and the replies that have an address of one say so") {
  Fixture f;
  const Reply reply = f.post("/get_redis_address", Json::object());
  CHECK(reply.status == 200);
  CHECK(reply.body.at("status") == "ok");
  CHECK(reply.body.at("redis_address") == "");
  CHECK(reply.body.at("message").get<std::string>().find("no Redis") != std::string::npos);
}

TEST_CASE("GET / says that it runs, to programs") {
  Fixture f;
  const ApiReply reply = f.get("/");
  CHECK(reply.status == 200);
  CHECK(reply.content_type == "text/plain");
  CHECK(f.get("/", "").status == 200);
  CHECK(f.get("/", "text/html,application/xhtml+xml,*/*;q=0.8").status == 302);
}

TEST_CASE("requests that are refused, in the shape that these clients read") {
  Fixture f;
  struct Case {
    const char* target;
    Json body;
  };
  const Case cases[] = {
      {"/register", Json::object()},
      {"/register", {{"entity_id", "a b"}, {"kind", "k"}}},
      {"/register", {{"entity_id", "a"}}},
      {"/register", {{"entity_id", "a"}, {"kind", 1}}},
      {"/register", {{"entity_id", "a"}, {"kind", "a b"}}},
      {"/register", {{"entity_id", "a"}, {"kind", "k"}, {"scope", 1}}},
      {"/register", {{"entity_id", "a"}, {"kind", "k"}, {"scope", "*"}}},
      {"/unregister", Json::object()},
      {"/heartbeat", {{"entity_type", "service"}}},
      {"/get_entity_info", {{"entity_id", ""}}},
      {"/list_entities", Json::array()},
      {"/list_entities", {{"kind", {1}}}},
      {"/start_peer_agent", {{"alias", "a"}}},
      {"/start_peer_agent", {{"alias", "a"}, {"address", "h:1"}, {"ib_port", -1}}},
      {"/start_peer_agent", {{"address", "h:1"}, {"name_prefix", "a b"}}},
      {"/cleanup", Json::object()},
      {"/query", "text"},
      {"/register_mr", {{"agent_name", "a"}, {"mr_name", "m"}}},
      {"/register_mr",
       {{"agent_name", "a"}, {"mr_name", "m"}, {"addr", 1}, {"length", 1}, {"rkey", 1ULL << 32}}},
      {"/get_mr_info", {{"dst", "a"}}},
      {"/get_redis_address", Json::array()},
  };
  for (const Case& refused : cases) {
    CAPTURE(refused.target);
    CAPTURE(refused.body.dump());
    CHECK(is_error(f.post(refused.target, refused.body), 400));
  }
  CHECK(f.post("/v1/peers", Json::object()).body.contains("code"));  // other routes keep their form
  const ApiReply get = f.get("/register");
  CHECK(get.status == 405);
  CHECK(get.allow == "POST");
  CHECK(compat::decode_error(get.body));
  const ApiReply type = f.api.handle({"POST", "/register", "text/plain", "{}"});
  CHECK(type.status == 415);
  CHECK(compat::decode_error(type.body));
  f.api.stop();
  CHECK(is_error(f.post("/query", Json::object()), 503));
}

}  // namespace
}  // namespace slime::ctrl::compat_test
