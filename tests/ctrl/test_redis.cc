#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/store/records.h"
#include "ctrl/store/redis_engine.h"
#include "tests/ctrl/random_commands.h"
#include "tests/ctrl/redis_server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

// Several engines that share one registry in a working Redis; test_redis_faults.cc tests a failing
// one.
namespace slime::ctrl::redis_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::scaled;
using test::RedisServer;
using test::registration;

constexpr Nanos kTtl = 60s;

std::unique_ptr<RedisEngine> join(const RedisServer& server, Nanos ttl = kTtl, SnapshotPolicy policy = {}) {
  Result<std::unique_ptr<Engine>> opened =
      RedisEngine::open(server.url(), {.ttl = ttl, .epoch = 1}, steady_clock(), policy);
  REQUIRE_MESSAGE(opened, opened.status().to_string());
  return std::unique_ptr<RedisEngine>(static_cast<RedisEngine*>(opened->release()));
}

Lease enroll(Engine& engine, const std::string& name, std::uint8_t number = 1) {
  const Outcome out = engine.submit(RegisterCommand{registration(name, number), 0, Proof::trusted()});
  REQUIRE_MESSAGE(out.status.ok(), out.status.to_string());
  return out.lease;
}

std::optional<PeerInfo> find(Engine& engine, const std::string& name) {
  return engine.read([&](const Registry& registry) { return registry.find("default", name); });
}

// Waits until both engines have applied the later of their current positions.
void meet(RedisEngine& a, RedisEngine& b) {
  const EntryId id = std::max(a.position().first, b.position().first);
  REQUIRE(eventually([&] { return a.position().first >= id && b.position().first >= id; }));
}

// Compares two engines at the same entry; further entries may arrive while the first is read.
void check_same(RedisEngine& a, RedisEngine& b) {
  std::vector<Record> left;
  std::vector<Record> right;
  const auto read = [](RedisEngine& engine, std::vector<Record>& out) {
    const EntryId before = engine.position().first;
    out = engine.read([](const Registry& registry) { return encode_records(registry); });
    return std::pair(before, engine.position().first);
  };
  REQUIRE(eventually([&] {
    const auto first = read(a, left);
    const auto second = read(b, right);
    return first == second && first.first == first.second;
  }));
  REQUIRE(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i) CHECK(left[i].value == right[i].value);
}

TEST_CASE("a peer that was registered through one engine is found, renewed and removed through another") {
  const RedisServer server;
  const auto a = join(server);
  const auto b = join(server);
  Registration peer = registration("a", 1);
  peer.metadata = {{"gpu", "0"}};
  peer.services = {{"calc", "math", {"add"}}};
  peer.regions = {{"kv", 4096, RegionRights::kReadWrite}};
  const Outcome registered = a->submit(RegisterCommand{peer, 0, Proof::trusted()});
  REQUIRE(registered.status.ok());
  REQUIRE(eventually([&] { return find(*b, "a").has_value(); }));
  CHECK(static_cast<const Registration&>(*find(*b, "a")) == peer);
  const std::uint64_t incarnation = registered.lease.incarnation;
  CHECK(b->submit(HeartbeatCommand{"default", "a", incarnation, Proof::trusted()}).lease.revision ==
        registered.lease.revision);
  CHECK(b->submit(UpdateRegionsCommand{"default", "a", incarnation, false, {}, {"kv"}, Proof::trusted()})
            .status.ok());
  REQUIRE(eventually([&] { return find(*a, "a")->regions.empty(); }));
  CHECK(b->submit(DeregisterCommand{"default", "a", incarnation, Proof::trusted()}).status.ok());
  REQUIRE(eventually([&] { return !find(*a, "a"); }));
  check_same(*a, *b);
}

TEST_CASE("a heartbeat through an engine that has yet to hear of the registration is in order") {
  const RedisServer server;
  const auto a = join(server);
  const auto b = join(server);
  const int rounds = scaled(200);
  for (int i = 0; i < rounds; ++i) {
    // A new owner each time: the other engine may still know the previous one.
    const Outcome out =
        a->submit(RegisterCommand{registration("a", static_cast<std::uint8_t>(1 + i % 2)),
                                  find(*a, "a") ? find(*a, "a")->incarnation : 0, Proof::trusted()});
    REQUIRE(out.status.ok());
    const Outcome beat = b->submit(HeartbeatCommand{"default", "a", out.lease.incarnation, Proof::trusted()});
    REQUIRE_MESSAGE(beat.status.ok(), beat.status.to_string());
  }
  CHECK(b->submit(HeartbeatCommand{"default", "nobody", 1, Proof::trusted()}).status.code() ==
        Code::kNotFound);
}

TEST_CASE("of two that want one name through two engines at once, one gets it") {
  const RedisServer server;
  const std::unique_ptr<RedisEngine> engines[] = {join(server), join(server)};
  const int rounds = scaled(200);
  std::vector<Outcome> outcomes[2];
  std::barrier together(2);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      for (int i = 0; i < rounds; ++i) {
        together.arrive_and_wait();
        outcomes[index].push_back(engines[index]->submit(RegisterCommand{
            registration(str("name-", i), static_cast<std::uint8_t>(index + 1)), 0, Proof::trusted()}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int won[2] = {0, 0};
  for (std::size_t i = 0; i < static_cast<std::size_t>(rounds); ++i) {
    const std::size_t winner = outcomes[0][i].status.ok() ? 0 : 1;
    const Outcome& lost = outcomes[1 - winner][i];
    REQUIRE(outcomes[winner][i].status.ok());
    REQUIRE(lost.status.code() == Code::kAlreadyExists);
    REQUIRE(lost.holder);
    CHECK(lost.holder->incarnation == outcomes[winner][i].lease.incarnation);
    ++won[winner];
  }
  MESSAGE(won[0], " to ", won[1]);
  check_same(*engines[0], *engines[1]);
}

ScopeKeys keys_of(Engine& engine) {
  return engine.look([](const Registry& registry) { return registry.keys("default"); });
}

TEST_CASE("of two that rotate the keys of a scope through two engines at once, one has done it") {
  const RedisServer server;
  const std::unique_ptr<RedisEngine> engines[] = {join(server), join(server)};
  enroll(*engines[0], "a");
  meet(*engines[0], *engines[1]);
  const int rounds = scaled(50);
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t newest = newest_id(keys_of(*engines[0]));
    Status said[2];
    std::vector<std::thread> threads;
    for (std::size_t index = 0; index < 2; ++index) {
      threads.emplace_back([&, index] {
        said[index] = engines[index]
                          ->submit(RotateKeysCommand{"default", newest, false,
                                                     Secret::random(limits::kScopeKeyBytes), 1})
                          .status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(said[0].ok() != said[1].ok());
    CHECK(said[said[0].ok() ? 1 : 0].code() == Code::kAborted);
    meet(*engines[0], *engines[1]);
    REQUIRE(keys_of(*engines[0]) == keys_of(*engines[1]));
  }
  CHECK(keys_of(*engines[0]).size() == limits::kScopeKeys);
  check_same(*engines[0], *engines[1]);
}

TEST_CASE(
    "a log that was written before scopes had keys goes on, and is of this format with the next snapshot") {
  RedisServer server;
  const auto rules = [&] { return server.command({"HGET", "{slime}:snapshot", "rules"}).text; };
  {
    const auto before = join(server);
    enroll(*before, "a");
  }
  const std::string now = rules();
  REQUIRE(now == describe_rules({.ttl = kTtl}));
  const std::string old = describe_rules({.ttl = kTtl}, 1);
  server.command({"HSET", "{slime}:snapshot", "rules", old});
  const auto engine = join(server, kTtl, {.entries = 2, .interval = 1h});
  CHECK(find(*engine, "a"));
  REQUIRE(engine->submit(RotateKeysCommand{"default", 0, false, Secret::random(limits::kScopeKeyBytes), 1})
              .status.ok());
  REQUIRE(eventually([&] {
    enroll(*engine, "b");
    return rules() == now;
  }));
  const auto late = join(server);
  meet(*engine, *late);
  CHECK(keys_of(*late) == keys_of(*engine));
  CHECK(keys_of(*late).size() == 1);
}

TEST_CASE("a log that was written before there were quotas is taken over with the default ones only") {
  RedisServer server;
  enroll(*join(server), "a");
  const std::string old = describe_rules({.ttl = kTtl}, 2);
  server.command({"HSET", "{slime}:snapshot", "rules", old});
  const RegistryOptions other{.ttl = kTtl, .epoch = 1, .record_bytes_per_scope_max = 1 << 20};
  const auto refused = RedisEngine::open(server.url(), other, steady_clock(), {});
  REQUIRE_FALSE(refused);
  CHECK_MESSAGE(refused.error().text().find("--scope-bytes") != std::string::npos, refused.error().text());
  CHECK(find(*join(server), "a"));
}

Command random_command(Rng& rng, std::uint64_t granted) {
  Registration peer = registration(str("peer-", rng.below(20)), static_cast<std::uint8_t>(1 + rng.below(3)));
  peer.scope = str("scope-", rng.below(3));
  return test::random_peer_command(rng, std::move(peer), granted);
}

TEST_CASE("after random commands through all of them engines have the same records, early and late ones") {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  MESSAGE("seed ", seed);
  const RedisServer server;
  const std::unique_ptr<RedisEngine> engines[] = {join(server, kTtl, {.entries = 300, .interval = 60s}),
                                                  join(server)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Rng rng(seed + i);
      std::uint64_t granted = 1;
      const int count = scaled(1000);
      for (int step = 0; step < count; ++step) {
        // An engine that lags behind the snapshots may miss its own entry; the effect is in the
        // snapshot.
        const Outcome out = engines[i % 2]->submit(random_command(rng, granted));
        if (out.lease.incarnation != 0) granted = out.lease.incarnation;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  meet(*engines[0], *engines[1]);
  check_same(*engines[0], *engines[1]);
  const auto late = join(server);
  meet(*engines[0], *late);
  check_same(*engines[0], *late);
}

TEST_CASE("peers are there again when all engines have ended, with whole leases") {
  const RedisServer server;
  auto engine = join(server);
  const Lease lease = enroll(*engine, "a");
  const std::uint64_t epoch = engine->epoch();
  engine.reset();
  engine = join(server);
  REQUIRE(find(*engine, "a"));
  CHECK(find(*engine, "a")->incarnation == lease.incarnation);
  CHECK(engine->epoch() == epoch);
  CHECK(engine->submit(HeartbeatCommand{"default", "a", lease.incarnation, Proof::trusted()}).status.ok());
  CHECK(enroll(*engine, "b").incarnation > lease.incarnation);
}

// Returns the number of entries appended until the first two snapshots have shortened the log.
std::uint64_t append_until_short(RedisServer& server, RedisEngine& a) {
  std::uint64_t appended = 0;
  const auto length = [&] { return server.command({"XLEN", "{slime}:log"}).integer; };
  const auto snapshot = [&] { return server.command({"HGET", "{slime}:snapshot", "entries"}).text; };
  // Wait for two further snapshots.
  std::string last = snapshot();
  for (int written = 0; written < 3;) {
    enroll(a, str("peer-", ++appended % 7), static_cast<std::uint8_t>(1));
    const std::string next = snapshot();
    written += next == last ? 0 : 1;
    last = next;
  }
  REQUIRE(eventually([&] { return static_cast<std::uint64_t>(length()) < a.position().second; }));
  return appended;
}

void keep_short(const SnapshotPolicy& policy) {
  RedisServer server;
  const auto a = join(server, kTtl, policy);
  const std::uint64_t appended = append_until_short(server, *a);
  const auto late = join(server);
  meet(*a, *late);
  check_same(*a, *late);
  CHECK(late->position().second >= appended);
  // A watcher with an earlier revision lists the peers again.
  CHECK(late->read([](const Registry& registry) { return registry.changes("default", 1).resync; }));
}

TEST_CASE("snapshots keep the log short, and an engine that comes late starts from one") {
  keep_short({.entries = 20, .interval = 1h});
}

TEST_CASE("snapshots keep a log of few large entries short, too") {
  keep_short({.bytes = 8000, .interval = 1h});
}

TEST_CASE("a lease ends at the same revision for all, by any engine that is left") {
  const RedisServer server;
  auto gone = join(server, 500ms);
  const auto a = join(server, 500ms);
  const auto b = join(server, 500ms);
  std::mutex mutex;
  std::map<const Engine*, std::vector<Event>> told;
  for (Engine* const engine : {static_cast<Engine*>(a.get()), static_cast<Engine*>(b.get())}) {
    engine->on_event([&, engine](const ScopedEvent& event) {
      const std::lock_guard lock(mutex);
      told[engine].push_back(event.event);
    });
  }
  const Lease lease = enroll(*gone, "a");
  gone.reset();  // this engine answered the heartbeats
  const auto expired = [&](const Engine* engine) {
    const std::lock_guard lock(mutex);
    return told[engine].size() == 2;
  };
  REQUIRE(eventually([&] { return expired(a.get()) && expired(b.get()); }));
  CHECK(told[a.get()] == told[b.get()]);
  CHECK(told[a.get()][1].kind == EventKind::kExpired);
  CHECK(told[a.get()][1].revision == lease.revision + 1);
  check_same(*a, *b);
}

TEST_CASE("a lease can be renewed through any engine") {
  const RedisServer server;
  const std::unique_ptr<RedisEngine> engines[] = {join(server, 2s), join(server, 2s)};
  const Lease lease = enroll(*engines[0], "a");
  std::size_t turn = 0;
  const TimePoint end = steady_clock().now() + 3s;
  REQUIRE(eventually([&] {
    REQUIRE(engines[++turn % 2]
                ->submit(HeartbeatCommand{"default", "a", lease.incarnation, Proof::trusted()})
                .status.ok());
    return steady_clock().now() >= end;
  }));
  CHECK(find(*engines[0], "a"));
}

TEST_CASE("registries of other prefixes and databases are others; a password is needed and never told") {
  const RedisServer server({"--requirepass", "s3cret/"});
  const auto open = [&](const std::string& sign_in, const std::string& rest) {
    return open_engine(str("redis://", sign_in, "127.0.0.1:", server.port(), rest), {.ttl = kTtl, .epoch = 1},
                       steady_clock());
  };
  CHECK(open("", "").status().code() == Code::kUnauthenticated);
  CHECK(open(":wrong@", "").status().code() == Code::kUnauthenticated);
  std::vector<std::unique_ptr<Engine>> engines;
  for (const char* rest : {"", "/3", "?prefix=other", "/3?prefix=other"}) {
    Result<std::unique_ptr<Engine>> engine = open(":s3cret%2F@", rest);
    REQUIRE_MESSAGE(engine, engine.status().to_string());
    CHECK((*engine)->describe().find("s3cret") == std::string::npos);
    engines.push_back(std::move(*engine));
  }
  for (const auto& engine : engines) {
    CHECK(engine->read([](const Registry& registry) { return registry.peer_count(); }) == 0);
    enroll(*engine, "a");
  }
}

TEST_CASE("a Redis user needs no other rights than docs/operations.md says") {
  RedisServer server;
  server.command({"ACL", "SETUSER", "slime", "on", ">s3cret", "~{slime}:*", "+@stream", "+@hash", "+eval",
                  "+del", "+expire", "+persist", "+exists", "+rename", "+ping", "+select"});
  const Result<std::unique_ptr<Engine>> engine =
      RedisEngine::open(str("redis://slime:s3cret@127.0.0.1:", server.port(), "/0"),
                        {.ttl = kTtl, .epoch = 1}, steady_clock(), {.entries = 20, .interval = 1h});
  REQUIRE_MESSAGE(engine, engine.status().to_string());
  append_until_short(server, dynamic_cast<RedisEngine&>(**engine));
}

TEST_CASE("the address of a store in Redis") {
  const Result<redis::Address> whole = redis::parse_url("redis://me:p%40ss@[::1]:6380/2?prefix=a/b");
  REQUIRE(whole);
  CHECK(whole->host == "::1");
  CHECK(whole->port == 6380);
  CHECK(whole->user == "me");
  CHECK(whole->password == "p@ss");
  CHECK(whole->database == 2);
  CHECK(whole->prefix == "a/b");
  CHECK(redis::to_string(*whole) == "redis://[::1]:6380/2?prefix=a/b");
  CHECK(redis::parse_url("redis://redis.local:6379/")->prefix == "slime");
  const Result<redis::Address> tls = redis::parse_url("rediss://:p@h:1?ca=/a%20b&prefix=x&key=/k&cert=/c");
  REQUIRE(tls);
  CHECK(tls->tls);
  CHECK(tls->prefix == "x");
  CHECK(tls->ca_file == "/a b");
  CHECK(tls->certificate_file == "/c");
  CHECK(tls->key_file == "/k");
  CHECK(redis::to_string(*tls) == "rediss://h:1/0?prefix=x");
  CHECK(redis::parse_url("rediss://h:1")->tls);
  for (const char* url :
       {"rediss://", "rediss://h:1?cert=/c", "rediss://h:1?ca=", "rediss://h:1?ca=%zz",
        "rediss://h:1?prefix=a&", "redis://h:1?ca=/a", "redis://", "redis://h", "redis://h:0",
        "redis://h:1/x", "redis://h:1/1/2", "redis://h:1?ttl=3",
        "redis://h:1?prefix=", "redis://h:1?prefix={a}", "redis://me@h:1", "redis://:%zz@h:1"})
    CHECK(redis::parse_url(url).status().code() == Code::kInvalidArgument);
}

TEST_CASE("the files of a Redis URL may be made absolute; everything else stays as it is") {
  const std::string here = std::filesystem::current_path().string();
  const auto tls = redis::parse_url(
      redis::with_absolute_files("rediss://me:p%40%26s@h:1/3?ca=a%20b&prefix=x&cert=/c&key=d/k"));
  REQUIRE(tls);
  CHECK(tls->ca_file == here + "/a b");
  CHECK(tls->certificate_file == "/c");
  CHECK(tls->key_file == here + "/d/k");
  CHECK(tls->prefix == "x");
  CHECK(tls->password == "p@&s");
  for (const std::string url : {"redis://h:1", "redis://h:1?", "redis://h:1?prefix=y",
                                "rediss://h:1?ca=", "rediss://h:1?ca", "rediss://h:1?&&ca=%zz"})
    CHECK(redis::with_absolute_files(url) == url);
}

}  // namespace
}  // namespace slime::ctrl::redis_test
