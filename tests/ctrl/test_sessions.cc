#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/ctrl/tokens.h"

// Requests for a peer need the session of its registration; the public instance id is not enough.
namespace slime::ctrl::sessions_test {
namespace {

using namespace std::chrono_literals;
using test::kJson;
using test::kSession;
using test::registration;
using Json = nlohmann::json;

const std::string kOther(64, '6');  // another session

Code code_of(const ApiReply& reply) {
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  return error ? error->code : Code::kOk;
}
bool denied(const ApiReply& reply) {
  return reply.status == 403 && code_of(reply) == Code::kPermissionDenied;
}

// The peer cache:0 of scope "a", registered with the token `member`, and another token that may
// join.
struct Owned : test::Roles {
  explicit Owned() : lease(*wire::decode_lease(enlist(member, kSession).body)) {}

  // Registers cache:0, always with the same public instance id.
  ApiReply enlist(std::string_view token, const std::string& session, bool takeover = false) {
    Registration peer = registration("cache:0", 1);
    peer.scope = "a";
    wire::RegisterRequest request{peer, takeover};
    if (!session.empty()) request.session = *wire::parse_session(session);
    return send("POST", "/v1/peers", wire::encode(request), token);
  }
  ApiReply ask(const char* method, const std::string& tail, Json body, const std::string& session,
               std::uint64_t incarnation) {
    body["incarnation"] = incarnation;
    if (!session.empty()) body["session"] = session;
    return send(method, str("/v1/peers/cache:0", tail, "?scope=a"), body.dump(), other);
  }
  // Sends a request of each kind for the peer, with a token that permits it.
  std::vector<ApiReply> all(const std::string& session, std::uint64_t incarnation) {
    std::vector<ApiReply> out;
    out.push_back(ask("POST", "/heartbeat", Json::object(), session, incarnation));
    const Json region = {{"name", "kv"}, {"length_bytes", 64}, {"rights", "read"}};
    out.push_back(ask("POST", "/regions", {{"publish", {region}}}, session, incarnation));
    out.push_back(ask("PUT", "/regions", {{"regions", {region}}}, session, incarnation));
    out.push_back(ask("POST", "/services", {{"publish", {{{"name", "calc"}}}}}, session, incarnation));
    out.push_back(ask("PUT", "/services", {{"services", {{{"name", "calc"}}}}}, session, incarnation));
    out.push_back(remove(session, incarnation, other));
    return out;
  }
  ApiReply remove(const std::string& session, std::uint64_t incarnation, const std::string& token) {
    const std::string target = str("/v1/peers/cache:0?scope=a&incarnation=", incarnation);
    return api.handle({.method = "DELETE",
                       .target = target,
                       .content_type = "",
                       .body = "",
                       .authorization = str("Bearer ", token),
                       .session = session});
  }
  ApiReply set_links(const std::string& session, const std::string& token) {
    Json body = {{"targets", {"x"}}};
    if (!session.empty()) body["session"] = session;
    return send("PUT", "/v1/peers/cache:0/links?scope=a", body.dump(), token);
  }
  ApiReply get(const std::string& target, const std::string& token) { return send("GET", target, "", token); }
  std::uint64_t revision() {
    return Json::parse(get("/v1/peers?scope=a", reader).body).at("revision").get<std::uint64_t>();
  }

  const std::string other = make(Role::kJoin, "a", admin).token;
  const Lease lease;
};

TEST_CASE("another token of the scope and the public instance id do not speak for a peer") {
  Owned f;
  const std::uint64_t before = f.revision();
  const std::string wrong[] = {"", kOther};
  for (const std::string& session : wrong) {
    CAPTURE(session);
    for (const ApiReply& reply : f.all(session, f.lease.incarnation))
      CHECK_MESSAGE(denied(reply), reply.body);
    CHECK(denied(f.set_links(session, f.other)));
  }
  CHECK(f.revision() == before);
  for (const ApiReply& reply : f.all(kSession, f.lease.incarnation))
    CHECK_MESSAGE(reply.status == 200, reply.body);
}

TEST_CASE("what an agent of an earlier version is told names the session and the upgrade") {
  Owned f;
  const ApiReply reply = f.ask("POST", "/heartbeat", Json::object(), "", f.lease.incarnation);
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  REQUIRE(error);
  CHECK(error->message.find("needs the session of the registration") != std::string::npos);
  CHECK(error->message.find("upgrade agents of an earlier version") != std::string::npos);
}

TEST_CASE("an old incarnation is 410 and an unknown peer 404, whatever the session") {
  Owned f;
  const std::string sessions[] = {"", kOther, kSession};
  for (const std::string& session : sessions) {
    for (const ApiReply& reply : f.all(session, f.lease.incarnation - 1)) CHECK(reply.status == 410);
  }
  REQUIRE(f.remove(kSession, f.lease.incarnation, f.member).status == 200);
  for (const std::string& session : sessions) {
    for (const ApiReply& reply : f.all(session, f.lease.incarnation)) CHECK(reply.status == 404);
  }
}

TEST_CASE("of many heartbeats in one request each has its own session") {
  Owned f;
  const auto lost = [&](Json peer) {
    peer["name"] = "cache:0";
    peer["incarnation"] = f.lease.incarnation;
    const Json body = {{"peers", {peer}}};
    const ApiReply reply = f.send("POST", "/v1/heartbeats?scope=a", body.dump(), f.other);
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    return wire::decode_heartbeats_reply(reply.body)->lost;
  };
  for (const Json& peer : {Json::object(), Json{{"session", kOther}}}) {
    const std::vector<LostPeer> refused = lost(peer);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].code == Code::kPermissionDenied);
  }
  CHECK(lost({{"session", kSession}}).empty());
}

TEST_CASE("the lease of a peer is not renewed without its session") {
  Owned f;
  f.clock.advance(14s);
  f.ask("POST", "/heartbeat", Json::object(), "", f.lease.incarnation);
  f.clock.advance(1s);
  CHECK(f.get("/v1/peers/cache:0?scope=a", f.reader).status == 404);
}

TEST_CASE("the same instance id without the session is another owner, and gets the name of a dead one") {
  const std::string wrong[] = {"", kOther};
  for (const std::string& session : wrong) {
    CAPTURE(session);
    Owned f;
    f.probed = ProbeResult::kSame;
    const ApiReply alive = f.enlist(f.other, session);
    CHECK(alive.status == 409);
    CHECK(alive.retry_after == Nanos::zero());
    f.probed = ProbeResult::kSilent;
    const ApiReply silent = f.enlist(f.other, session);
    CHECK(silent.status == 409);
    CHECK(silent.retry_after == 15s);
    // The owner is not affected.
    CHECK(f.ask("POST", "/heartbeat", Json::object(), kSession, f.lease.incarnation).status == 200);
    f.probed = ProbeResult::kGone;
    const ApiReply taken = f.enlist(f.other, session);
    REQUIRE_MESSAGE(taken.status == 200, taken.body);
    const Result<Lease> successor = wire::decode_lease(taken.body);
    CHECK(successor->incarnation > f.lease.incarnation);
    CHECK(f.ask("POST", "/heartbeat", Json::object(), kSession, f.lease.incarnation).status == 410);
    CHECK(denied(f.ask("POST", "/heartbeat", Json::object(), kSession, successor->incarnation)));
    const std::string theirs = to_hex(successor->session.bytes());
    CHECK(f.ask("POST", "/heartbeat", Json::object(), theirs, successor->incarnation).status == 200);
  }
}

TEST_CASE("a takeover asks the holder first, and says so when it is alive") {
  for (const ProbeResult holder : {ProbeResult::kSame, ProbeResult::kSilent, ProbeResult::kGone}) {
    Owned f;
    f.probed = holder;
    const ApiReply taken = f.enlist(f.other, kOther, true);
    REQUIRE_MESSAGE(taken.status == 200, taken.body);
    CHECK(f.probes == 1);
    CHECK(wire::decode_lease(taken.body)->incarnation > f.lease.incarnation);
    CHECK(f.ask("POST", "/heartbeat", Json::object(), kSession, f.lease.incarnation).status == 410);
  }
}

TEST_CASE("a registration whose reply was lost is repeated, without a probe or an event") {
  Owned f;
  const std::uint64_t before = f.revision();
  const ApiReply again = f.enlist(f.member, kSession);
  REQUIRE(again.status == 200);
  CHECK(wire::decode_lease(again.body)->incarnation == f.lease.incarnation);
  CHECK(to_hex(wire::decode_lease(again.body)->session.bytes()) == kSession);
  CHECK(f.probes == 0);
  CHECK(f.revision() == before);
}

TEST_CASE("nanoctrl makes a new session for each registration without one") {
  Owned f;
  REQUIRE(f.remove(kSession, f.lease.incarnation, f.member).status == 200);
  const Lease first = *wire::decode_lease(f.enlist(f.member, "").body);
  CHECK(first.session.size() == limits::kSessionBytes);
  const std::string session = to_hex(first.session.bytes());
  CHECK(wire::decode_lease(f.enlist(f.member, session).body)->incarnation == first.incarnation);
  REQUIRE(f.remove(session, first.incarnation, f.member).status == 200);
  CHECK(wire::decode_lease(f.enlist(f.member, "").body)->session != first.session);
}

TEST_CASE("the owner of a peer may use another token") {
  Owned f;
  const ApiReply again = f.enlist(f.other, kSession);
  REQUIRE(again.status == 200);
  CHECK(wire::decode_lease(again.body)->incarnation == f.lease.incarnation);
}

TEST_CASE("an administrator of the scope removes any peer of it, and sets its links") {
  Owned f;
  CHECK(f.set_links("", f.owner).status == 200);
  CHECK(denied(f.remove(kOther, f.lease.incarnation, f.owner)));  // a session that is sent must
                                                                  // match
  CHECK(f.remove("", f.lease.incarnation, f.owner).status == 200);
}

TEST_CASE("a peer without tokens is its owner's, too") {
  test::Fixture f;
  const ApiReply enrolled = f.enroll("w", "a", "");
  const std::uint64_t incarnation = wire::decode_lease(enrolled.body)->incarnation;
  const std::string target = str("/v1/peers/w?scope=a&incarnation=", incarnation);
  CHECK(denied(f.send("DELETE", target, "", "")));
  CHECK(
      denied(f.send("POST", "/v1/peers/w/heartbeat?scope=a", Json{{"incarnation", incarnation}}.dump(), "")));
  CHECK(f.beat("w", incarnation, "", {}, "a").status == 200);
}

TEST_CASE("an invalid session is an invalid request") {
  Owned f;
  for (const char* wrong : {"5", "xyz", "555555555555555555555555555555555555555555555555555555555555555g"}) {
    CHECK(f.remove(wrong, f.lease.incarnation, f.member).status == 400);
    CHECK(f.ask("POST", "/heartbeat", Json::object(), wrong, f.lease.incarnation).status == 400);
    Json body = Json::parse(wire::encode(wire::RegisterRequest{registration("b", 2)}));
    body["session"] = wrong;
    CHECK(f.send("POST", "/v1/peers", body.dump(), f.admin).status == 400);
  }
}

TEST_CASE("no reply but that of the registration has a session, and the backup alone its hash") {
  Owned f;
  const std::string hash = session_sha256(f.lease.session);
  CHECK(to_hex(f.lease.session.bytes()) == kSession);
  for (const char* target : {"/v1/peers?scope=a", "/v1/peers/cache:0?scope=a", "/v1/services?scope=a",
                             "/v1/regions?scope=a", "/v1/watch?scope=a&since=0", "/v1/scopes", "/v1/status",
                             "/v1/tokens", "/v1/links?scope=a", "/metrics", "/v1/backup"}) {
    CAPTURE(target);
    const ApiReply reply = f.get(target, f.admin);
    REQUIRE(reply.status == 200);
    CHECK(reply.body.find(kSession) == std::string::npos);
    const bool has_hash = reply.body.find(hash) != std::string::npos;
    CHECK(has_hash == (std::string(target) == "/v1/backup"));
  }
  for (const ApiReply& reply : f.all(kSession, f.lease.incarnation)) {
    CHECK(reply.body.find(kSession) == std::string::npos);
    CHECK(reply.body.find(hash) == std::string::npos);
  }
}

// The routes of NanoCtrl have no sessions: objects belong to the token.
struct Entities : test::Roles {
  ApiReply post(const std::string& target, Json body, const std::string& token) {
    body["scope"] = "a";
    return send("POST", target, body.dump(), token);
  }
  ApiReply enlist(const std::string& token) {
    return post("/register", {{"entity_id", "cache:0"}, {"kind", "cache"}}, token);
  }
  ApiReply start(const std::string& token) {
    return post("/start_peer_agent", {{"alias", "agent:0"}, {"address", "h:1"}}, token);
  }
  std::vector<ApiReply> all(const std::string& token) {
    std::vector<ApiReply> out;
    out.push_back(post("/heartbeat", {{"entity_id", "cache:0"}}, token));
    out.push_back(enlist(token));
    out.push_back(post("/register_mr",
                       {{"agent_name", "agent:0"}, {"mr_name", "m"}, {"addr", 1}, {"length", 1}, {"rkey", 1}},
                       token));
    out.push_back(post("/v1/desired_topology/agent:0", {{"target_peers", {"x"}}}, token));
    out.push_back(post("/cleanup", {{"agent_name", "agent:0"}}, token));
    out.push_back(post("/unregister", {{"entity_id", "cache:0"}}, token));
    return out;
  }
  const std::string other = make(Role::kJoin, "a", admin).token;
};

TEST_CASE("what NanoCtrl's routes made is for the token that made it to change") {
  Entities f;
  REQUIRE(f.enlist(f.member).status == 200);
  REQUIRE(f.start(f.member).status == 200);
  for (const ApiReply& reply : f.all(f.other)) CHECK_MESSAGE(reply.status == 403, reply.body);
  for (const ApiReply& reply : f.all(f.member)) CHECK_MESSAGE(reply.status == 200, reply.body);
}

TEST_CASE("an administrator of the scope removes what another token made there") {
  Entities f;
  REQUIRE(f.enlist(f.member).status == 200);
  CHECK(f.enlist(f.owner).status == 403);
  CHECK(f.post("/unregister", {{"entity_id", "cache:0"}}, f.owner).status == 200);
  CHECK(f.enlist(f.other).status == 200);
}

TEST_CASE("no session speaks for what NanoCtrl's routes made") {
  Entities f;
  REQUIRE(f.enlist(f.member).status == 200);
  const Json peer = Json::parse(f.send("GET", "/v1/peers/cache:0?scope=a", "", f.reader).body);
  const std::uint64_t incarnation = peer.at("incarnation");
  CHECK(denied(f.beat("cache:0", incarnation, f.member, {}, "a")));
  Registration same = registration("cache:0", 1);
  same.scope = "a";
  same.instance = *InstanceId::parse(peer.at("instance").get<std::string>());
  f.probed = ProbeResult::kGone;  // not probed: the listener does not know the instance id
  CHECK(
      f.send("POST", "/v1/peers", wire::encode(wire::RegisterRequest{same, false, test::session()}), f.member)
          .status == 409);
  CHECK(f.probes == 0);
}

TEST_CASE("an entity made before there were tokens can be changed by any token, until one registers it") {
  test::Fixture f;
  const std::string body = Json{{"entity_id", "s"}, {"kind", "k"}, {"scope", "a"}}.dump();
  const std::string beat = Json{{"entity_id", "s"}, {"scope", "a"}}.dump();
  REQUIRE(f.send("POST", "/register", body, "").status == 200);
  const std::string admin = f.make(Role::kAdmin, "*", "").token;
  const std::string one = f.make(Role::kJoin, "a", admin).token;
  const std::string two = f.make(Role::kJoin, "a", admin).token;
  CHECK(f.send("POST", "/heartbeat", beat, one).status == 200);
  CHECK(f.send("POST", "/register", body, two).status == 200);
  CHECK(f.send("POST", "/heartbeat", beat, one).status == 403);
  CHECK(f.send("POST", "/heartbeat", beat, two).status == 200);
}

}  // namespace
}  // namespace slime::ctrl::sessions_test
