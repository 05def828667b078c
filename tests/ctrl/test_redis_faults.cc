#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/store/redis_engine.h"
#include "ctrl/store/redis_load.h"
#include "tests/ctrl/nanoctrl.h"
#include "tests/ctrl/redis_server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"

// Engines when Redis is unavailable, hangs, has lost data, or holds unreadable data.
namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::kDurable;
using test::Nanoctrl;
using test::RedisServer;
using test::registration;

constexpr Nanos kTtl = 60s;

Result<std::unique_ptr<Engine>> try_join(const RedisServer& server, Nanos ttl = kTtl,
                                         SnapshotPolicy policy = {}) {
  return RedisEngine::open(server.url(), {.ttl = ttl, .epoch = 1}, steady_clock(), policy);
}

std::unique_ptr<Engine> join(const RedisServer& server, Nanos ttl = kTtl, SnapshotPolicy policy = {}) {
  Result<std::unique_ptr<Engine>> opened = try_join(server, ttl, policy);
  REQUIRE_MESSAGE(opened, opened.status().to_string());
  return std::move(*opened);
}

Outcome try_enroll(Engine& engine, const std::string& name, std::uint8_t number = 1) {
  return engine.submit(RegisterCommand{registration(name, number), 0, Proof::trusted()});
}

Lease enroll(Engine& engine, const std::string& name) {
  const Outcome out = try_enroll(engine, name);
  REQUIRE_MESSAGE(out.status.ok(), out.status.to_string());
  return out.lease;
}

// Registers, with retries, as an agent does.
Lease enroll_in_the_end(Engine& engine, const std::string& name) {
  Outcome out;
  REQUIRE(eventually([&] {
    out = try_enroll(engine, name);
    return out.status.ok();
  }));
  return out.lease;
}

Outcome beat(Engine& engine, const std::string& name, std::uint64_t incarnation) {
  return engine.submit(HeartbeatCommand{"default", name, incarnation, Proof::trusted()});
}

bool knows(Engine& engine, const std::string& name) {
  return engine.read([&](const Registry& registry) { return registry.find("default", name).has_value(); });
}

TEST_CASE("a start without Redis, or with a wrong one, says why") {
  RedisServer server;
  server.kill();
  CHECK(try_join(server).status().code() == Code::kUnavailable);
  CHECK(try_join(server).status().text().find("Connection refused") != std::string::npos);
  server.start();
  server.stop();
  CHECK(try_join(server).status().text().find("does not answer") != std::string::npos);
  server.resume();
  server.command({"SET", "{slime}:snapshot", "something"});
  CHECK(try_join(server).status().text().find("WRONGTYPE") != std::string::npos);
  server.command({"DEL", "{slime}:snapshot"});
  server.command({"HSET", "{slime}:snapshot", "lineage", "x"});
  CHECK(try_join(server).status().code() == Code::kCorrupt);
}

TEST_CASE("a nanoctrl with another TTL is refused, and is told the log's") {
  const RedisServer server;
  const auto engine = join(server);
  const Status refused = try_join(server, 59s).status();
  CHECK(refused.code() == Code::kInvalidArgument);
  CHECK(refused.text().find("ttl 60000 ms") != std::string::npos);
  CHECK(try_join(server, kTtl + 100us).status().ok());
}

TEST_CASE("a Redis that was restarted is used again, and has what it acknowledged") {
  RedisServer server(kDurable);
  const auto a = join(server);
  const auto b = join(server);
  const Lease lease = enroll(*a, "a");
  REQUIRE(eventually([&] { return knows(*b, "a"); }));
  server.kill();
  REQUIRE(eventually([&] { return !a->writable().ok() && !b->writable().ok(); }));
  const Outcome refused = try_enroll(*a, "b");
  CHECK(refused.status.code() == Code::kUnavailable);
  CHECK_FALSE(refused.status.maybe_executed());
  CHECK(knows(*b, "a"));
  CHECK(beat(*b, "a", lease.incarnation).status.ok());
  server.start();
  const Lease later = enroll_in_the_end(*a, "c");
  CHECK(later.incarnation == lease.incarnation + 1);
  CHECK(later.revision == lease.revision + 1);
  REQUIRE(eventually([&] { return knows(*b, "c") && b->writable().ok(); }));
  CHECK_FALSE(knows(*b, "b"));
  // Watchers continue at their revision.
  const Changes changes =
      b->read([&](const Registry& registry) { return registry.changes("default", lease.revision); });
  CHECK_FALSE(changes.resync);
  CHECK(changes.events.size() == 1);
}

TEST_CASE("no lease ends because Redis was away for longer than it") {
  RedisServer server(kDurable);
  constexpr Nanos kShort = 2s;
  const auto a = join(server, kShort);
  const auto b = join(server, kShort);
  std::atomic<int> ended{0};
  for (const auto& engine : {a.get(), b.get()}) {
    engine->on_event([&](const ScopedEvent& event) { ended += event.event.kind == EventKind::kExpired; });
  }
  const Lease lease = enroll(*a, "a");
  server.kill();
  REQUIRE(eventually([&] { return !a->writable().ok() && !b->writable().ok(); }));
  // The engine answers heartbeats for a third of the TTL, then agents look for another nanoctrl.
  CHECK(beat(*a, "a", lease.incarnation).status.ok());
  const TimePoint away = steady_clock().now();
  REQUIRE(eventually([&] {
    return beat(*a, "a", lease.incarnation).status.code() == Code::kUnavailable &&
           steady_clock().now() > away + kShort * 3 / 2;
  }));
  server.start();
  REQUIRE(eventually([&] { return a->writable().ok() && b->writable().ok(); }));
  CHECK(knows(*a, "a"));
  CHECK(beat(*b, "a", lease.incarnation).status.ok());
  CHECK(ended.load() == 0);
  REQUIRE(eventually([&] { return ended.load() == 2; }));  // no more heartbeats
}

TEST_CASE("a Redis that hangs fails what waits for it, and holds up no end") {
  RedisServer server;
  auto engine = join(server);
  enroll(*engine, "a");
  server.stop();
  const Outcome out = try_enroll(*engine, "b");
  CHECK(out.status.code() == Code::kUnavailable);
  CHECK(try_enroll(*engine, "c").status.code() == Code::kUnavailable);
  CHECK(knows(*engine, "a"));
  engine.reset();
  server.resume();
  CHECK(knows(*join(server), "a"));
}

// Checks that both engines begin anew, with the same registry, after `lose`.
template <class Lose>
void check_loss(RedisServer& server, Lose lose) {
  const auto a = join(server);
  const auto b = join(server);
  std::atomic<int> resets{0};
  for (const auto& engine : {a.get(), b.get()}) engine->on_reset([&] { ++resets; });
  const Lease lease = enroll(*a, "a");
  REQUIRE(eventually([&] { return knows(*b, "a"); }));
  const std::uint64_t epoch = a->epoch();
  lose();
  REQUIRE(eventually([&] { return !knows(*a, "a") && !knows(*b, "a"); }));
  REQUIRE(eventually([&] { return a->writable().ok() && b->writable().ok(); }));
  CHECK(resets.load() == 2);
  CHECK(a->epoch() == b->epoch());
  CHECK(a->epoch() > epoch);
  CHECK(beat(*b, "a", lease.incarnation).status.code() == Code::kNotFound);
  const Changes changes =
      b->read([&](const Registry& registry) { return registry.changes("default", lease.revision); });
  CHECK(changes.resync);
  const Lease again = enroll(*b, "a");
  CHECK(again.incarnation > lease.incarnation);
  CHECK(again.revision > lease.revision);
  REQUIRE(eventually([&] { return knows(*a, "a"); }));
}

TEST_CASE("when the log is gone a new registry begins, with larger numbers, and agents register again") {
  RedisServer server;
  check_loss(server, [&] { server.command({"FLUSHALL"}); });
}

TEST_CASE("the same when Redis was restarted and has kept nothing") {
  RedisServer server;
  check_loss(server, [&] {
    server.kill();
    server.start();
  });
}

TEST_CASE("watchers learn at once that the registry is another one") {
  RedisServer server;
  Nanoctrl nanoctrl(server.url());
  const std::unique_ptr<Client> client = nanoctrl.client();
  const Result<Lease> lease = client->register_peer(registration("a", 1));
  REQUIRE(lease);
  Result<Changes> changes = Status(Code::kCancelled, "");
  std::thread watcher([&] { changes = client->watch("default", lease->revision, 30s); });
  const bool watched =
      eventually([&] { return client->server_status().value_or(ServerStatus{}).watchers == 1; });
  server.command({"FLUSHALL"});
  watcher.join();
  REQUIRE(watched);
  REQUIRE(changes);
  CHECK(changes->resync);  // a watch that only timed out would have no resync
}

TEST_CASE("when Redis comes back with an older state numbers go on from those that were told") {
  RedisServer server;
  const auto a = join(server);
  const auto b = join(server);
  enroll(*a, "kept");
  server.command({"SAVE"});
  Lease lost;
  for (int i = 0; i < 50; ++i) lost = enroll(*a, str("lost-", i));
  server.kill();
  server.start();
  REQUIRE(eventually([&] { return !knows(*a, "lost-0") && !knows(*b, "lost-0"); }));
  const Lease next = enroll_in_the_end(*b, "next");
  CHECK(next.incarnation > lost.incarnation);
  CHECK(next.revision > lost.revision);
  CHECK(knows(*b, "kept"));
  REQUIRE(eventually([&] { return a->writable().ok(); }));
  CHECK(beat(*a, "lost-0", lost.incarnation).status.code() == Code::kNotFound);
  const Changes changes =
      a->read([&](const Registry& registry) { return registry.changes("default", lost.revision); });
  CHECK(changes.resync);
}

// Redis has lost entries of two engines. The one that had applied less returns first, and its new
// commands get the numbers of the lost commands.
TEST_CASE("a registry whose last entry is gone begins anew, even where others have made up for its numbers") {
  RedisServer server;
  const auto engine = join(server);
  enroll(*engine, "kept");
  const RegistryOptions options{.ttl = kTtl, .epoch = 1};
  const RegistryState state = engine->read([](const Registry& registry) { return registry.state(); });
  Result<Registry> earlier = Registry::restore(options, state, steady_clock().now());
  REQUIRE(earlier);
  const Outcome forgotten = earlier->apply(RegisterCommand{registration("forgotten", 2), 0, Proof::trusted()},
                                           steady_clock().now());
  const Lease next = enroll(*engine, "next");
  REQUIRE(next.revision >= forgotten.lease.revision);

  const Result<redis::Address> address = redis::parse_url(server.url());
  REQUIRE(address);
  redis::Interrupt interrupt;
  Result<redis::Connection> connection = redis::Connection::open(*address, 10s, interrupt);
  REQUIRE(connection);
  const LogKeys keys(address->prefix);
  RedisLog log(*connection, keys);
  const std::string lineage = server.command({"HGET", "{slime}:snapshot", "lineage"}).text;
  const Result<LoadedLog> loaded = load_log(log, "late", options, {lineage, *earlier, Replay(), true});
  REQUIRE_MESSAGE(loaded, loaded.status().to_string());
  CHECK(loaded->registry.changes("default", forgotten.lease.revision).resync);
  CHECK(loaded->registry.find("default", "next"));
  // The other engines' lost entries are gone, too.
  REQUIRE(eventually([&] {
    return engine->read([&](const Registry& registry) {
      return registry.changes("default", forgotten.lease.revision).resync;
    });
  }));
}

TEST_CASE("commands of a later version stop a nanoctrl that does not know them, and no other") {
  RedisServer server;
  const auto engine = join(server);
  const Lease lease = enroll(*engine, "a");
  server.command(
      {"XADD", "{slime}:log", "*", "head", R"({"engine":"later","number":1,"kind":"vote"})", "body", ""});
  REQUIRE(eventually([&] { return !engine->writable().ok(); }));
  CHECK(engine->writable().text().find("'vote'") != std::string::npos);
  CHECK(try_enroll(*engine, "b").status.code() == Code::kUnavailable);
  // Agents move to an engine that still follows the log.
  CHECK(beat(*engine, "a", lease.incarnation).status.code() == Code::kUnavailable);
  CHECK(knows(*engine, "a"));
  const Status refused = try_join(server).status();
  CHECK(refused.code() == Code::kUnimplemented);
  CHECK(refused.text().find("later version") != std::string::npos);
}

TEST_CASE("a Redis that refuses changes is told, and used when it takes them again") {
  RedisServer server;
  const auto engine = join(server);
  server.command({"CONFIG", "SET", "maxmemory", "1"});
  server.command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  CHECK(try_enroll(*engine, "a").status.code() == Code::kUnavailable);
  CHECK(engine->writable().text().find("OOM") != std::string::npos);
  CHECK(try_join(server).status().text().find("OOM") != std::string::npos);
  server.command({"CONFIG", "SET", "maxmemory", "0"});
  enroll_in_the_end(*engine, "a");
}

TEST_CASE("a nanoctrl that was stopped while the log went on without it starts anew from the snapshot") {
  RedisServer server;
  const auto engine = join(server, 600s, {.entries = 20, .interval = 60s});
  enroll(*engine, "a");
  Nanoctrl stopped(server.url());
  const std::unique_ptr<Client> client = stopped.client();
  const Result<PeerList> before = client->list_peers();
  REQUIRE(before);
  REQUIRE(before->peers.size() == 1);
  REQUIRE(stopped.process().stop().ok());
  int names = 0;
  // Wait for some more snapshots, so that entries which the engine has not read are gone.
  std::string trimmed = server.command({"HGET", "{slime}:snapshot", "trimmed"}).text;
  for (int moved = 0; moved < 3;) {
    enroll(*engine, str("peer-", ++names));
    const std::string now = server.command({"HGET", "{slime}:snapshot", "trimmed"}).text;
    moved += now == trimmed ? 0 : 1;
    trimmed = now;
  }
  REQUIRE(stopped.process().resume().ok());
  REQUIRE(eventually([&] {
    const Result<PeerList> list = client->list_peers();
    return list && list->peers.size() == static_cast<std::size_t>(names) + 1;
  }));
  const Lease lease = enroll(*engine, "last");
  REQUIRE(eventually([&] { return client->get_peer("default", "last").has_value(); }));
  const Result<PeerList> after = client->list_peers();
  REQUIRE(after);
  CHECK(after->revision == lease.revision);
  const Result<Changes> changes = client->watch("default", before->revision, Nanos::zero());
  REQUIRE(changes);
  CHECK(changes->resync);
}

}  // namespace
}  // namespace slime::ctrl
