// What the revocation of a member's token does to connections that are there.
#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "agent/limits.h"
#include "tests/agent/frame_peer.h"

namespace slime {
namespace {

using namespace test;
using rpc::wire::FrameType;

constexpr auto kLease = seconds(3);
constexpr auto kHeartbeat = seconds(1);  // of that lease
constexpr const char* kRevoked = "the key that this connection was made under was revoked";

bool says(const Peer& peer, const char* text) { return to_json(peer.info()).find(text) != std::string::npos; }

// The connection with it ended for this reason.
bool ended(const Peer& peer) { return !has_state(peer, "ready") && says(peer, kRevoked); }

// Another key for the scope, which the agent has heard of.
void rotate(Members& members, PeerAgent& agent) {
  const std::int64_t before = newest_key(agent);
  members.rotate();
  REQUIRE(eventually([&] { return newest_key(agent) > before; }));
}

TEST_CASE("connections of a member whose token was revoked end within two heartbeats, at both ends") {
  Members members(kLease);
  const auto a = members.start("a");
  const auto b = members.start("b");
  const auto gone = members.start("gone");
  const std::string id = members.last_id;
  auto memory = take(a->allocate(4096, Rights::kRemoteRead));
  REQUIRE(a->publish("memory", memory).ok());
  auto own = take(gone->allocate(4096, Rights::kLocal));
  const Copy copy{own, 0, take(gone->peer("a").region("memory")), 0, 4096};
  REQUIRE(gone->peer("a").read({&copy, 1}).wait(kSoon).has_value());
  check_adds(*b, "gone");
  auto waits = gone->peer("a").recv(1, kSoon);
  const TimePoint revoked = steady_clock().now();
  REQUIRE(members.admin->revoke_token(id).ok());
  REQUIRE(eventually([&] {
    return ended(a->peer("gone")) && ended(b->peer("gone")) && ended(gone->peer("a")) &&
           ended(gone->peer("b"));
  }));
  CHECK(steady_clock().now() - revoked < patient(2 * kHeartbeat));
  const auto cut = waits.wait(kSoon);
  CHECK(code_of(cut) == Code::kUnavailable);
  CHECK_MESSAGE(cut.status().text().find(kRevoked) != std::string::npos, cut.status().to_string());
  CHECK_FALSE(gone->peer("a").read({&copy, 1}).wait(kSoon).has_value());
  CHECK(code_of(add(*gone, "a")) == Code::kUnauthenticated);
}

TEST_CASE("members with a newer key stay connected: no call and no transfer notices a revocation") {
  Members members(kLease);
  const auto a = members.start("a");
  const auto b = members.start("b");
  auto memory = take(a->allocate(1 << 20, Rights::kRemoteRead));
  REQUIRE(a->publish("memory", memory).ok());
  auto own = take(b->allocate(1 << 20, Rights::kLocal));
  const Copy copy{own, 0, take(b->peer("a").region("memory")), 0, 1 << 20};
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  Status broken;
  const auto traffic = std::async(std::launch::async, [&] {
    while (!stop && broken.ok()) {
      broken = add(*b, "a").status();
      if (broken.ok()) broken = b->peer("a").read({&copy, 1}).wait(kSoon).status();
      ++rounds;
    }
  });
  const std::shared_ptr<void> ends_traffic(nullptr, [&](void*) { stop = true; });  // also when a check throws
  const auto made = [&] {
    return std::pair(number_in(to_json(a->info()), "connections_made"), newest_key(*a));
  };
  for (int i = 0; i < 2; ++i) {
    const auto gone = members.start("gone");
    const std::string id = members.last_id;
    check_adds(*gone, "a");
    const auto before = made();
    REQUIRE(members.admin->revoke_token(id).ok());
    CHECK(eventually([&] { return ended(a->peer("gone")); }));
    const int so_far = rounds;
    CHECK(eventually([&] { return rounds > so_far + 2; }));
    CHECK(made().first == before.first);
    CHECK(made().second > before.second);
  }
  stop = true;
  traffic.wait();
  CHECK_MESSAGE(broken.ok(), broken.to_string());
  CHECK(number_in(to_json(b->peer("a").info()), "connects") == 1);
}

TEST_CASE("keys that rotate end no connection, also with a peer that hears nothing of them") {
  Members members(kLease);
  const auto a = members.start("a");
  const auto b = members.start("b");
  check_adds(*b, "a");
  FramePeer deaf(members, *a, "deaf");
  for (int i = 0; i < 6; ++i) rotate(members, *a);
  REQUIRE(eventually([&] { return deaf.count(FrameType::kProof) == 6; }));  // a proof for each key
  CHECK(newest_key(*a) > static_cast<std::int64_t>(deaf.keys.back().id));
  check_adds(*b, "a");
  CHECK(number_in(to_json(b->peer("a").info()), "connects") == 1);
  CHECK_FALSE(deaf.ended());
  // A revocation reaches it all the same: the key that it proved has left the set long before.
  members.token();
  REQUIRE(members.admin->revoke_token(members.last_id).ok());
  REQUIRE(eventually([&] { return deaf.ended(); }));
  CHECK(deaf.told().find(std::string("unauthenticated: ") + kRevoked) == 0);
  check_adds(*b, "a");
  CHECK(number_in(to_json(b->peer("a").info()), "connects") == 1);
}

TEST_CASE("a peer of an earlier version is sent no proof, and closed in good order by a revocation alone") {
  Members members(kLease);
  const auto a = members.start("a");
  FramePeer old(members, *a, "old", rpc::wire::kOptionalFeatures & ~rpc::wire::kFeatureProofs);
  for (int i = 0; i < 4; ++i) rotate(members, *a);
  CHECK_FALSE(old.ended());
  CHECK(old.count(FrameType::kClosing) == 0);
  members.token();
  REQUIRE(members.admin->revoke_token(members.last_id).ok());
  REQUIRE(eventually([&] { return old.count(FrameType::kClosing) == 1; }));
  REQUIRE(eventually([&] { return old.ended(); }));  // without an answer of its own
  CHECK(old.count(FrameType::kProof) == 0);
}

TEST_CASE("a peer that proves a newer key in time stays, one that does not ends at the same moment") {
  Members members(kLease);
  const auto a = members.start("a");
  FramePeer proves(members, *a, "proves");
  FramePeer silent(members, *a, "silent");
  members.token();
  REQUIRE(members.admin->revoke_token(members.last_id).ok());
  // It may be faster than the agent hears of the key, and the agent faster than it.
  proves.send(FrameType::kProof, proves.proof(FramePeer::fresh_keys(members).back(), 1));
  REQUIRE(eventually([&] { return silent.ended(); }));
  CHECK(silent.told().find(kRevoked) != std::string::npos);
  CHECK_FALSE(proves.ended());
  CHECK(has_state(a->peer("proves"), "ready"));
}

TEST_CASE("an agent that hears of a revocation tells its peers, whose own heartbeat would come too late") {
  Members members(seconds(6));
  const auto a = members.start("a");
  PeerAgentOptions rarely = members.options("rarely", members.token());
  rarely.heartbeat = milliseconds(5500);  // a peer has 2 s
  const auto late = Members::start(rarely);
  check_adds(*late, "a");
  FramePeer silent(members, *a, "silent");
  members.token();
  REQUIRE(members.admin->revoke_token(members.last_id).ok());
  REQUIRE(eventually([&] { return silent.ended(); }));
  check_adds(*late, "a");
  CHECK(newest_key(*late) == newest_key(*a));
  CHECK(number_in(to_json(late->peer("a").info()), "connects") == 1);
}

TEST_CASE("a nanoctrl that comes back without its keys ends no connection between members") {
  Members members(kLease);
  const auto a = Members::start(members.options("a", kAdmin));
  const auto b = Members::start(members.options("b", kAdmin));
  check_adds(*b, "a");
  FramePeer silent(members, *a, "silent");
  const std::int64_t before = newest_key(*a);
  members.registry.stop();
  members.registry.start();
  REQUIRE(eventually([&] { return newest_key(*a) != before && newest_key(*b) == newest_key(*a); }));
  REQUIRE(eventually([&] { return silent.ended(); }));
  check_adds(*b, "a");
  CHECK(number_in(to_json(b->peer("a").info()), "connects") == 1);
}

// How many heartbeats nanoctrl has answered.
int heartbeats(Members& members) {
  const std::string bearer = std::string("Bearer ") + kAdmin;
  ctrl::ApiRequest request;
  request.method = "GET";
  request.target = "/metrics";
  request.authorization = bearer;
  const std::string all = members.registry.api().handle(request).body;
  const std::string line = R"(route="/v1/peers/{name}/heartbeat",status="200"} )";
  const std::size_t at = all.find(line);
  return at == std::string::npos ? 0 : std::stoi(all.substr(at + line.size()));
}

TEST_CASE("an agent goes on asking for the key that a peer has proved") {
  Members members(seconds(300));  // a heartbeat each 100 s
  PeerAgentOptions options = members.options("a", members.token());
  options.heartbeat = {};
  const auto a = Members::start(std::move(options));
  FramePeer raw(members, *a);
  ctrl::ScopeKey unknown = raw.keys.back();
  unknown.id += 1'000'000;
  const int before = heartbeats(members);
  raw.send(FrameType::kProof, raw.proof(unknown, 1));
  REQUIRE(eventually([&] { return heartbeats(members) >= before + 4; }));
}

TEST_CASE("a proof that is wrong, repeated or sent back ends the connection, and says why") {
  Members members(kLease);
  const auto a = members.start("a");
  int peers = 0;
  const auto ends = [&](const char* why, const auto& misbehave) {
    CAPTURE(why);
    FramePeer raw(members, *a, "raw-" + std::to_string(++peers));
    misbehave(raw);
    REQUIRE(eventually([&] { return raw.ended(); }));
    CHECK_MESSAGE(raw.told().find(why) != std::string::npos, raw.told());
    CHECK_MESSAGE(eventually([&] { return says(a->peer(raw.name), why); }),
                  to_json(a->peer(raw.name).info()));
  };
  ends("is wrong", [](FramePeer& raw) {
    ByteVector proof = raw.proof(raw.keys.back(), 1);
    proof.back() ^= std::byte{1};
    raw.send(FrameType::kProof, proof);
  });
  ends("number 1, expected 2", [](FramePeer& raw) {
    for (int i = 0; i < 2; ++i) raw.send(FrameType::kProof, raw.proof(raw.keys.back(), 1));
  });
  ends("does not parse", [](FramePeer& raw) { raw.send(FrameType::kProof, ByteVector(55)); });
  ends("is wrong", [&](FramePeer& raw) {
    rotate(members, *a);
    REQUIRE(eventually([&] { return !raw.last_proof().empty(); }));
    raw.send(FrameType::kProof, raw.last_proof());
  });
  ends("proofs under keys that are not known here", [](FramePeer& raw) {
    ctrl::ScopeKey unknown = raw.keys.back();
    unknown.id += 1'000'000;
    for (std::uint64_t n = 1; n <= agent::limits::kUnknownProofs + 1; ++n)
      raw.send(FrameType::kProof, raw.proof(unknown, n));
  });
}

}  // namespace
}  // namespace slime
