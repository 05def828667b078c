// The keys of a scope: which tokens receive them, and when they change.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "ctrl/store/log_format.h"
#include "ctrl/store/records.h"
#include "tests/ctrl/tokens.h"

namespace slime::ctrl::keys_test {
namespace {

using namespace test;
using namespace std::chrono_literals;

Secret secret(unsigned char fill) { return Secret(ByteVector(limits::kScopeKeyBytes, std::byte{fill})); }

// ---------------------------------------------------------------------------------------- registry

struct Rotated {
  Rotated() {
    REQUIRE(registry.apply(RegisterCommand{registration("a", 1), 0, Proof::trusted()}, {}).status.ok());
  }
  Status rotate(std::uint64_t replaces, unsigned char fill, bool alone = false) {
    return registry.apply(RotateKeysCommand{"default", replaces, alone, secret(fill), fill}, {}).status;
  }
  // Returns the fill bytes of the keys, oldest first.
  std::vector<std::uint64_t> fills() const {
    std::vector<std::uint64_t> out;
    for (const ScopeKey& key : registry.keys("default")) out.push_back(key.made_unix_s);
    return out;
  }
  std::uint64_t newest() const { return newest_id(registry.keys("default")); }
  Registry registry{{.epoch = 500}};
};

TEST_CASE("a scope has its last three keys, and each has a larger id than all before it") {
  Rotated r;
  CHECK(r.newest() == 0);
  std::uint64_t last = 0;
  for (unsigned char fill = 1; fill <= 5; ++fill) {
    REQUIRE(r.rotate(last, fill).ok());
    CHECK(r.newest() > last);
    last = r.newest();
  }
  CHECK(r.fills() == std::vector<std::uint64_t>{3, 4, 5});
  REQUIRE(r.rotate(last, 6, true).ok());
  CHECK(r.fills() == std::vector<std::uint64_t>{6});
}

TEST_CASE("of two commands that replace the same key one has an effect") {
  Rotated r;
  REQUIRE(r.rotate(0, 1).ok());
  const std::uint64_t first = r.newest();
  CHECK(r.rotate(0, 2).code() == Code::kAborted);
  REQUIRE(r.rotate(first, 3).ok());
  CHECK(r.rotate(first, 4).code() == Code::kAborted);
  CHECK(r.fills() == std::vector<std::uint64_t>{1, 3});
}

TEST_CASE("a scope that is not there has no keys, and half a key is none") {
  Rotated r;
  CHECK(r.registry.apply(RotateKeysCommand{"other", 0, false, secret(1), 1}, {}).status.code() ==
        Code::kNotFound);
  CHECK(r.registry.apply(RotateKeysCommand{"default", 0, false, Secret(as_bytes("short")), 1}, {})
            .status.code() == Code::kInvalidArgument);
  CHECK(r.registry.keys("other").empty());
  CHECK(r.registry.keys("default").empty());
}

TEST_CASE("revoking a token that may join drops the keys of its scope in the same command") {
  const auto left = [](Role role, const std::string& scope) {
    Rotated r;
    REQUIRE(r.rotate(0, 1).ok());
    const TokenRecord token{"0123456789abcdef", role, scope, "", std::string(64, 'a'), 1, 0};
    REQUIRE(r.registry.apply(PutTokenCommand{token, true}, {}).status.ok());
    const Outcome out = r.registry.apply(RevokeTokenCommand{token.id, true}, {});
    REQUIRE(out.status.ok());
    const bool dropped = r.registry.keys("default").empty();
    const RecordKey key{Table::kKeys, "default", {}};
    CHECK(dropped == (std::count(out.touched.begin(), out.touched.end(), key) == 1));
    CHECK(dropped == !encode_record(r.registry, key));
    return !dropped;
  };
  CHECK_FALSE(left(Role::kJoin, "default"));
  CHECK_FALSE(left(Role::kAdmin, "default"));
  CHECK_FALSE(left(Role::kJoin, "*"));
  CHECK(left(Role::kRead, "default"));
  CHECK(left(Role::kJoin, "other"));
}

TEST_CASE("keys are restored with the rest, and those that cannot be are corrupt") {
  Rotated r;
  REQUIRE(r.rotate(0, 1).ok());
  REQUIRE(r.rotate(r.newest(), 2).ok());
  const auto restored = [](RegistryState state) { return Registry::restore({}, std::move(state), {}); };
  Result<RegistryState> state = decode_records(encode_records(r.registry));
  REQUIRE(state);
  const Result<Registry> same = restored(*state);
  REQUIRE(same);
  CHECK(same->keys("default") == r.registry.keys("default"));
  RegistryState later = *state;
  later.keys["default"].back().id = later.last_incarnation + 1;
  CHECK(restored(later).status().text().find("later time") != std::string::npos);
  RegistryState elsewhere = *state;
  elsewhere.keys["nowhere"] = elsewhere.keys["default"];
  CHECK(restored(elsewhere).status().text().find("have no scope") != std::string::npos);
  RegistryState many = *state;
  while (many.keys["default"].size() <= limits::kScopeKeys) {
    ScopeKeys& keys = many.keys["default"];
    keys.insert(keys.begin(), {keys.front().id - 1, secret(9), 1});
  }
  CHECK(restored(many).status().code() == Code::kCorrupt);
}

TEST_CASE("a rotation in the log is what it was, and half of one is refused") {
  const LogEntry entry{"00ff", 7, RotateKeysCommand{"a", 3, true, secret(0xab), 12}};
  const EncodedEntry encoded = encode_entry(entry);
  CHECK(
      encoded.head ==
      R"({"alone":true,"engine":"00ff","kind":"rotate_keys","made_unix_s":12,"number":7,"replaces":3,"scope":"a"})");
  CHECK(encoded.body == R"({"key":")" + to_hex(secret(0xab).bytes()) + R"("})");
  const Result<LogEntry> decoded = decode_entry(encoded.head, encoded.body);
  REQUIRE(decoded);
  const auto& command = std::get<RotateKeysCommand>(decoded->command);
  CHECK(command.scope == "a");
  CHECK(command.replaces == 3);
  CHECK(command.alone);
  CHECK(command.secret == secret(0xab));
  CHECK(command.made_unix_s == 12);
  for (const char* body : {"", "{}", R"({"key":"ab"})", R"({"key":7})"})
    CHECK(decode_entry(encoded.head, body).status().code() == Code::kCorrupt);
}

// -------------------------------------------------------------------------------------------------
// routes

// Peers of scope "a" and their replies.
struct Keys : Fixture {
  explicit Keys(ApiOptions options = {}) : Fixture(std::move(options)) {}
  Lease lease(const std::string& name, std::string_view token, const std::string& scope = "a") {
    const ApiReply reply = enroll(name, scope, token);
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    return *wire::decode_lease(reply.body);
  }
  ScopeKeys news(const std::string& name, const Lease& lease, std::string_view token, std::uint64_t have,
                 const std::string& scope = "a") {
    const ApiReply reply = beat(name, lease.incarnation, token, have, scope);
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    return wire::decode_changes(reply.body)->keys;
  }
  void pass(std::uint64_t seconds) {
    now_s += seconds;
    api.tick();
  }
  const TokenInfo admin = make(Role::kAdmin, "*", "");
  const TokenInfo member = make(Role::kJoin, "a", admin.token);
  const TokenInfo other = make(Role::kJoin, "a", admin.token);
  const TokenInfo reader = make(Role::kRead, "a", admin.token);
  const TokenInfo stranger = make(Role::kJoin, "b", admin.token);
};

TEST_CASE("members of a scope are told its keys as they register, all the same ones") {
  Keys f;
  const Lease first = f.lease("x", f.member.token);
  REQUIRE(first.keys.size() == 1);
  CHECK(first.keys[0].secret.size() == limits::kScopeKeyBytes);
  CHECK(f.lease("y", f.other.token).keys == first.keys);
  CHECK(f.lease("z", f.admin.token).keys == first.keys);
  const Lease elsewhere = f.lease("x", f.stranger.token, "b");
  REQUIRE(elsewhere.keys.size() == 1);
  CHECK_FALSE(elsewhere.keys[0].secret == first.keys[0].secret);
}

TEST_CASE("where no token is needed there are no keys") {
  Fixture f;
  const ApiReply reply = f.enroll("x", "a", "");
  REQUIRE(reply.status == 200);
  CHECK(reply.body.find("key") == std::string::npos);
  const Lease lease = *wire::decode_lease(reply.body);
  CHECK(lease.keys.empty());
  CHECK(f.beat("x", lease.incarnation, "", 0, "a").body.find("key") == std::string::npos);
}

TEST_CASE("a heartbeat returns keys only on request, and if they differ") {
  Keys f;
  const Lease lease = f.lease("x", f.member.token);
  const std::uint64_t newest = newest_id(lease.keys);
  CHECK(f.news("x", lease, f.member.token, newest).empty());
  CHECK(f.news("x", lease, f.member.token, 0) == lease.keys);
  CHECK(f.news("x", lease, f.member.token, newest + 1) == lease.keys);
  CHECK(f.beat("x", lease.incarnation, f.member.token, {}, "a").body.find("key") == std::string::npos);
}

TEST_CASE("a token that may not join the scope receives no key, on no route") {
  Keys f;
  const Lease lease = f.lease("x", f.member.token);
  const std::string key = to_hex(lease.keys[0].secret.bytes());
  CHECK(f.enroll("y", "a", f.reader.token).status == 403);
  CHECK(f.enroll("y", "a", f.stranger.token).status == 403);
  CHECK(f.beat("x", lease.incarnation, f.reader.token, 0, "a").status == 403);
  CHECK(f.beat("x", lease.incarnation, f.stranger.token, 0, "a").status == 403);
  CHECK(f.enroll("y", "a", "").status == 401);
  for (const char* target :
       {"/v1/peers?scope=a", "/v1/peers/x?scope=a", "/v1/services?scope=a", "/v1/regions?scope=a",
        "/v1/links?scope=a", "/v1/watch?scope=a&since=0", "/v1/scopes", "/v1/status", "/v1/tokens",
        "/metrics", "/healthz", "/v1/peers/x/links?scope=a", "/v1/backup"}) {
    for (const TokenInfo* token : {&f.reader, &f.member, &f.admin}) {
      CAPTURE(target);
      const ApiReply reply = f.send("GET", target, "", token->token);
      CHECK(reply.body.find(key) == std::string::npos);
      CHECK(reply.body.find("\"keys\"") == std::string::npos);
    }
  }
  CHECK(f.send("GET", "/v1/backup", "", f.admin.token).status == 200);
  CHECK(f.send("GET", "/v1/backup", "", f.member.token).status == 403);
}

TEST_CASE("keys rotate by the clock: the new one is next, and the one before it is current") {
  Keys f({.key_rotation = 60s});
  const Lease lease = f.lease("x", f.member.token);
  f.pass(59);
  CHECK(f.news("x", lease, f.member.token, newest_id(lease.keys)).empty());
  f.pass(1);
  const ScopeKeys second = f.news("x", lease, f.member.token, newest_id(lease.keys));
  REQUIRE(second.size() == 2);
  CHECK(second[0] == lease.keys[0]);
  f.pass(60);
  f.api.tick();  // in the same second: no effect
  CHECK(f.news("x", lease, f.member.token, newest_id(second)).size() == 3);
  f.pass(60);
  const ScopeKeys fourth = f.news("x", lease, f.member.token, newest_id(second));
  REQUIRE(fourth.size() == 3);
  CHECK(fourth[0] == second[1]);
}

TEST_CASE("keys made by a clock that is ahead are replaced after a period, also when a token expires") {
  Keys f({.key_rotation = 60s});
  f.now_s += 1'000'000;
  const Lease first = f.lease("x", f.member.token);
  f.now_s -= 1'000'000;
  f.pass(1);
  CHECK(f.news("x", first, f.member.token, newest_id(first.keys)).empty());
  f.clock.advance(60s);
  const Lease lease = f.lease("x", f.member.token);
  REQUIRE(lease.keys == first.keys);
  f.pass(1);
  const ScopeKeys next = f.news("x", lease, f.member.token, newest_id(lease.keys));
  REQUIRE(next.size() == 2);
  CHECK(next[0] == lease.keys[0]);

  Keys g({.key_rotation = 0s});
  g.make(Role::kJoin, "a", g.admin.token, 10);
  g.now_s += 1'000'000;
  // The token has not expired by the clock that is ahead, so nothing happens.
  g.lease("x", g.member.token);
  g.now_s -= 1'000'000;
  g.pass(10);
  g.clock.advance(15s);
  const Lease known = g.lease("x", g.member.token);
  g.pass(1);
  const ScopeKeys alone = g.news("x", known, g.member.token, newest_id(known.keys));
  REQUIRE(alone.size() == 1);
  CHECK_FALSE(alone[0] == known.keys[0]);
}

TEST_CASE("two clocks that are hours apart do not replace each other's keys at every look") {
  Keys f({.key_rotation = 60s});
  f.make(Role::kJoin, "a", f.admin.token, 1);
  const Lease lease = f.lease("x", f.member.token);
  std::set<std::uint64_t> newest;
  for (int i = 0; i < 30; ++i) {
    f.now_s += 7200;
    f.api.tick();
    f.now_s -= 7200;
    f.pass(1);
    newest.insert(newest_id(f.news("x", lease, f.member.token, 0)));
  }
  CHECK(newest.size() <= 2);
}

TEST_CASE("a scope without peers gets no new keys, nor does any without a period; a TTL passes between two") {
  Keys f({.key_rotation = 60s});
  const Lease lease = f.lease("x", f.member.token);
  f.clock.advance(1h);  // the lease expires
  f.pass(3600);
  CHECK(f.lease("x", f.member.token).keys == lease.keys);
  Keys never({.key_rotation = Nanos::zero()});
  const Lease kept = never.lease("x", never.member.token);
  never.pass(1'000'000);
  CHECK(never.news("x", kept, never.member.token, newest_id(kept.keys)).empty());
  Keys often({.key_rotation = 1s});
  const Lease first = often.lease("x", often.member.token);
  often.pass(14);
  CHECK(often.news("x", first, often.member.token, newest_id(first.keys)).empty());
  often.pass(1);
  CHECK(often.news("x", first, often.member.token, newest_id(first.keys)).size() == 2);
}

TEST_CASE("when a token is revoked the remaining members get a new key, and its bearer none") {
  for (const bool everywhere : {false, true}) {
    CAPTURE(everywhere);
    Keys f;
    const TokenInfo gone = f.make(Role::kJoin, everywhere ? "*" : "a", f.admin.token);
    const Lease lease = f.lease("x", gone.token);
    const Lease staying = f.lease("y", f.member.token);
    const Lease elsewhere = f.lease("x", f.stranger.token, "b");
    REQUIRE(f.send("DELETE", str("/v1/tokens/", gone.id), "", f.admin.token).status == 200);
    CHECK(f.beat("x", lease.incarnation, gone.token, 0, "a").status == 401);
    const ScopeKeys next = f.news("y", staying, f.member.token, newest_id(staying.keys));
    REQUIRE(next.size() == 1);
    CHECK(next[0].id > newest_id(staying.keys));
    CHECK_FALSE(next[0].secret == staying.keys[0].secret);
    const ScopeKeys there = f.news("x", elsewhere, f.stranger.token, newest_id(elsewhere.keys), "b");
    CHECK(there.empty() == !everywhere);
  }
}

TEST_CASE("a token that runs out takes the keys along that its bearer knew, once") {
  Keys f;
  const TokenInfo short_lived = f.make(Role::kJoin, "a", f.admin.token, 100);
  const Lease staying = f.lease("y", f.member.token);
  f.pass(99);
  CHECK(f.news("y", staying, f.member.token, newest_id(staying.keys)).empty());
  f.pass(1);
  const ScopeKeys next = f.news("y", staying, f.member.token, newest_id(staying.keys));
  REQUIRE(next.size() == 1);
  CHECK_FALSE(next[0].secret == staying.keys[0].secret);
  f.pass(100);
  CHECK(f.news("y", staying, f.member.token, newest_id(next)).empty());
}

TEST_CASE("the bearer of a token that ran out is not told the next key by a nanoctrl whose clock is behind") {
  Keys f;
  const TokenInfo short_lived = f.make(Role::kJoin, "a", f.admin.token, 100);
  const Lease lease = f.lease("x", short_lived.token);
  const Lease staying = f.lease("y", f.member.token);
  f.pass(100);
  f.now_s -= 2;
  CHECK(f.news("x", lease, short_lived.token, newest_id(lease.keys)).empty());
  CHECK(f.news("y", staying, f.member.token, newest_id(staying.keys)).size() == 1);
  CHECK(f.enroll("z", "a", short_lived.token).status == 401);
}

TEST_CASE("a reader's token that ends, or one of another scope, changes no key") {
  Keys f;
  const TokenInfo reader = f.make(Role::kRead, "a", f.admin.token, 100);
  const Lease lease = f.lease("x", f.member.token);
  f.pass(200);
  REQUIRE(f.send("DELETE", str("/v1/tokens/", f.reader.id), "", f.admin.token).status == 200);
  REQUIRE(f.send("DELETE", str("/v1/tokens/", f.stranger.id), "", f.admin.token).status == 200);
  CHECK(f.news("x", lease, f.member.token, newest_id(lease.keys)).empty());
}

}  // namespace
}  // namespace slime::ctrl::keys_test
