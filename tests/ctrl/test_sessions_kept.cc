#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "base/bytes.h"
#include "ctrl/api/api.h"
#include "ctrl/store/backup.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/records.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/backup_text.h"
#include "tests/ctrl/redis_server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"

// Sessions across restarts, failovers and upgrades.
namespace slime::ctrl::sessions_kept_test {
namespace {

using slime::test::eventually;
using test::kSession;
using test::registration;

constexpr const char* kJson = "application/json";
const std::string kOther(64, '6');

// nanoctrl's routes over a store that other nodes may share.
class Node {
 public:
  explicit Node(const std::string& store, const Clock& clock = steady_clock())
      : api_({}, open(store, clock), clock, [this](const std::string&, const InstanceId&) {
          ++probes;
          return ProbeResult::kSame;
        }) {}

  ApiReply enroll(const std::string& name, const std::string& session, bool takeover = false) {
    return post("/v1/peers", wire::encode(wire::RegisterRequest{registration(name, 1), takeover,
                                                                *wire::parse_session(session)}));
  }
  int beat(const std::string& name, std::uint64_t incarnation, const std::string& session) {
    wire::HeartbeatRequest request{incarnation, {}};
    if (!session.empty()) request.session = *wire::parse_session(session);
    return post(str("/v1/peers/", name, "/heartbeat"), wire::encode(request)).status;
  }
  ApiReply get(const std::string& target) {
    return api_.handle({.method = "GET", .target = target, .content_type = "", .body = ""});
  }

  int probes = 0;

 private:
  static std::unique_ptr<Engine> open(const std::string& store, const Clock& clock) {
    Result<std::unique_ptr<Engine>> engine = open_engine(store, {.epoch = 1}, clock);
    REQUIRE_MESSAGE(engine, engine.status().to_string());
    return std::move(*engine);
  }
  ApiReply post(const std::string& target, const std::string& body) {
    return api_.handle({.method = "POST", .target = target, .content_type = kJson, .body = body});
  }

  Api api_;
};

std::uint64_t incarnation_of(const ApiReply& reply) {
  REQUIRE_MESSAGE(reply.status == 200, reply.body);
  return wire::decode_lease(reply.body)->incarnation;
}

TEST_CASE("a restart on SQLite keeps sessions, and accepts no other") {
  const slime::test::Folder folder;
  const std::string store = "sqlite:" + folder.file("registry");
  auto node = std::make_unique<Node>(store);
  const std::uint64_t incarnation = incarnation_of(node->enroll("cache:0", kSession));
  node.reset();
  node = std::make_unique<Node>(store);
  CHECK(node->beat("cache:0", incarnation, kOther) == 403);
  CHECK(node->beat("cache:0", incarnation, "") == 403);
  CHECK(node->beat("cache:0", incarnation, kSession) == 200);
  CHECK(node->enroll("cache:0", kOther).status == 409);
  CHECK(incarnation_of(node->enroll("cache:0", kSession)) == incarnation);
  CHECK(node->probes == 1);
}

TEST_CASE("a backup keeps sessions' hashes, and the owner continues after a restore") {
  const slime::test::Folder folder;
  std::uint64_t incarnation = 0;
  std::string backup;
  {
    Node node("sqlite:" + folder.file("first"));
    incarnation = incarnation_of(node.enroll("cache:0", kSession));
    backup = node.get("/v1/backup").body;
  }
  CHECK(backup.find(kSession) == std::string::npos);
  const std::string store = "sqlite:" + folder.file("second");
  Result<RegistryState> state = test::decoded(backup);
  REQUIRE(state);
  REQUIRE(restore_backup(store, {.epoch = 1}, std::move(*state), steady_clock()).ok());
  Node node(store);
  CHECK(node.beat("cache:0", incarnation, kOther) == 403);
  CHECK(node.beat("cache:0", incarnation, kSession) == 200);
}

TEST_CASE("a record from before there were sessions has no owner until its lease ends") {
  const slime::test::Folder folder;
  const std::string store = "sqlite:" + folder.file("registry");
  Registry old({.epoch = 1});
  const Outcome out =
      old.apply(RegisterCommand{registration("cache:0", 1), 0, Proof::trusted()}, TimePoint{});
  REQUIRE(out.status.ok());
  REQUIRE(restore_backup(store, {.epoch = 1}, old.state(), steady_clock()).ok());
  ManualClock clock;
  Node node(store, clock);
  CHECK(node.beat("cache:0", out.lease.incarnation, "") == 403);
  CHECK(node.beat("cache:0", out.lease.incarnation, kSession) == 403);
  CHECK(node.enroll("cache:0", kSession).status == 409);
  clock.advance(limits::kTtlDefault);
  const std::uint64_t next = incarnation_of(node.enroll("cache:0", kSession));
  CHECK(node.beat("cache:0", next, kSession) == 200);
}

TEST_CASE("servers that share a Redis know each other's sessions, and a failover loses no agent") {
  test::RedisServer redis;
  auto first = std::make_unique<Node>(redis.url());
  const auto second = std::make_unique<Node>(redis.url());
  const std::uint64_t incarnation = incarnation_of(first->enroll("cache:0", kSession));
  REQUIRE(eventually([&] { return second->get("/v1/peers/cache:0").status == 200; }));
  CHECK(second->beat("cache:0", incarnation, kOther) == 403);
  CHECK(second->beat("cache:0", incarnation, "") == 403);
  CHECK(second->enroll("cache:0", kOther).status == 409);
  first.reset();
  CHECK(second->beat("cache:0", incarnation, kSession) == 200);
  CHECK(incarnation_of(second->enroll("cache:0", kSession)) == incarnation);
  // A node that starts later reads the session from the snapshot and the log.
  Node third(redis.url());
  CHECK(third.beat("cache:0", incarnation, kOther) == 403);
  CHECK(third.beat("cache:0", incarnation, kSession) == 200);
  const std::uint64_t taken = incarnation_of(third.enroll("cache:0", kOther, true));
  CHECK(taken > incarnation);
  REQUIRE(eventually([&] { return second->beat("cache:0", incarnation, kSession) == 410; }));
  CHECK(second->beat("cache:0", taken, kOther) == 200);
  for (const redis::Value& entry : redis.command({"XRANGE", "{slime}:log", "-", "+"}).items)
    for (const redis::Value& field : entry.items.at(1).items)
      CHECK(field.text.find(kSession) == std::string::npos);
}

const Proof kProof = {Proof::Kind::kSession, {std::string(64, 'a'), std::string(16, 'b')}};

TEST_CASE("an entry of the log has the right of its command, as a hash") {
  const Command commands[] = {RegisterCommand{registration("a", 1), 7, kProof},
                              HeartbeatCommand{"s", "a", 1, kProof},
                              DeregisterCommand{"s", "a", 1, kProof},
                              UpdateRegionsCommand{"s", "a", 1, true, {}, {}, kProof},
                              UpdateServicesCommand{"s", "a", 1, false, {}, {}, kProof},
                              SetLinksCommand{"s", "a", {"b"}, kProof}};
  for (const Command& command : commands) {
    const EncodedEntry entry = encode_entry({"engine", 1, command});
    const Result<LogEntry> decoded = decode_entry(entry.head, entry.body);
    REQUIRE_MESSAGE(decoded, decoded.status().to_string());
    const Proof* by = std::visit(
        [](const auto& c) -> const Proof* {
          if constexpr (requires { c.by; }) return &c.by;
          return nullptr;
        },
        decoded->command);
    REQUIRE(by != nullptr);
    CHECK(by->kind == Proof::Kind::kSession);
    CHECK(by->owner == kProof.owner);
  }
}

TEST_CASE("an entry with a session itself, or an unknown right, is refused") {
  const EncodedEntry entry = encode_entry({"engine", 1, RegisterCommand{registration("a", 1), 0, kProof}});
  const std::string with = wire::encode(wire::RegisterRequest{registration("a", 1), false, test::session()});
  CHECK(decode_entry(entry.head, with).status().code() == Code::kCorrupt);
  const auto code = [](const char* more) {
    const std::string head = str(
        R"({"engine":"e","number":1,"kind":"heartbeat","incarnation":1,"scope":"s","name":"a")", more, "}");
    return decode_entry(head, "").status().code();
  };
  CHECK(code("") == Code::kOk);  // an earlier format: trusted
  CHECK(code(R"(,"by":"token")") == Code::kOk);
  CHECK(code(R"(,"by":"king")") == Code::kCorrupt);
  CHECK(code(R"(,"by":"session","session_sha256":"ab")") == Code::kCorrupt);
  CHECK(code(R"(,"by":"token","token_id":"ABCDEFABCDEFABCD")") == Code::kCorrupt);
}

}  // namespace
}  // namespace slime::ctrl::sessions_kept_test
