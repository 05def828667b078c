// Agents that authenticate each other with the keys that nanoctrl hands to the members of their
// scope.

#include <atomic>
#include <optional>
#include <thread>

#include "tests/agent/members.h"

namespace slime {
namespace {

using namespace test;

TEST_CASE("members of a scope connect, by name and by address, without a token of their own") {
  Members members;
  const auto a = members.start("a");
  const auto b = members.start("b");
  CHECK(newest_key(*a) > 0);
  CHECK(newest_key(*a) == newest_key(*b));
  check_adds(*a, "b");
  check_adds(*b, "a");
  const auto c = members.start("c");
  check_adds(*c, a->address());
  check_adds(*c, "c");  // itself
}

TEST_CASE("a peer without a key is refused, with a text that says what would help") {
  Members members;
  const auto member = members.start("member");
  const auto stranger = test::start("stranger");
  const auto refused = add(*stranger, member->address());
  CHECK(code_of(refused) == Code::kUnauthenticated);
  CHECK(refused.status().text().find("ctrl_token of role join") != std::string::npos);
  PeerAgentOptions options;
  options.token = "a guess";
  const auto guesser = test::start(options);
  CHECK(code_of(add(*guesser, member->address())) == Code::kUnauthenticated);
  // Nor does a member connect to a peer without a key.
  CHECK(code_of(add(*member, stranger->address())) == Code::kUnauthenticated);
  CHECK(code_of(add(*member, guesser->address())) == Code::kUnauthenticated);
  CHECK(to_json(member->info()).find("\"stranger\"") == std::string::npos);
}

TEST_CASE("members of different scopes do not come together") {
  Members members;
  const auto a = members.start("a");
  PeerAgentOptions options = members.options("a", members.token(ctrl::Role::kJoin, "other"));
  options.scope = "other";
  const auto other = test::start(options);
  CHECK(code_of(add(*other, a->address())) == Code::kUnauthenticated);
}

TEST_CASE("an agent's own token goes before the scope's keys") {
  Members members;
  PeerAgentOptions options = members.options("own:0", members.token());
  options.token = "our own";
  const auto first = Members::start(options);
  options.name = "own:1";
  const auto second = Members::start(options);
  CHECK(newest_key(*first) == 0);
  check_adds(*second, "own:0");
  const auto member = members.start("member");
  CHECK(code_of(add(*member, "own:0")) == Code::kUnauthenticated);
}

TEST_CASE("a nanoctrl without tokens has no keys, and agents are as before") {
  Registry registry;
  PeerAgentOptions options = options_for(registry, "worker:0");
  options.ctrl_token = kAdmin;  // which is not required here
  const auto worker = Members::start(options);
  CHECK(newest_key(*worker) == 0);
  const auto stranger = test::start("stranger");
  check_adds(*stranger, worker->address());
  // Where others can reach it that is not enough.
  options.name = "worker:1";
  options.listen = "0.0.0.0:0";
  options.advertise = "127.0.0.1:0";
  const auto exposed = PeerAgent::start(options);
  CHECK(code_of(exposed) == Code::kPermissionDenied);
  options.insecure = true;
  CHECK(PeerAgent::start(options).has_value());
}

TEST_CASE("an agent that others can reach needs no token of its own where it gets keys") {
  Members members;
  PeerAgentOptions options = members.options("worker:0", members.token());
  options.listen = "0.0.0.0:0";
  options.advertise = "127.0.0.1:0";
  const auto worker = Members::start(options);
  const auto client = members.start("client");
  check_adds(*client, "worker:0");
  const auto stranger = test::start("stranger");
  CHECK(code_of(add(*stranger, worker->address())) == Code::kUnauthenticated);
}

TEST_CASE("after its token was revoked a process makes no new connection, and others go on") {
  Members members;
  const auto a = members.start("a");
  const auto b = members.start("b");
  const auto gone = members.start(members.options("gone", members.token()));
  const std::string id = members.last_id;
  check_adds(*gone, "a");
  const std::int64_t before = newest_key(*a);
  REQUIRE(members.admin->revoke_token(id).ok());
  REQUIRE(eventually([&] { return newest_key(*a) > before && newest_key(*b) > before; }));
  CHECK(newest_key(*gone) == before);
  CHECK(code_of(add(*gone, b->address())) == Code::kUnauthenticated);
  CHECK(code_of(add(*b, gone->address())) == Code::kUnauthenticated);
  check_adds(*a, "b");
  const auto late = members.start("late");
  check_adds(*late, "a");
  REQUIRE(gone->peer("a").disconnect().ok());
  CHECK(code_of(add(*gone, a->address())) == Code::kUnauthenticated);
}

// So long that none comes during a test.
PeerAgentOptions quiet(const Members& members, std::string name, std::string token) {
  PeerAgentOptions out = members.options(std::move(name), std::move(token));
  out.heartbeat = seconds(14);
  return out;
}

TEST_CASE("an agent without the newer keys asks for them when a handshake fails, and calls do not fail") {
  for (const bool stale_dials : {true, false}) {
    CAPTURE(stale_dials);
    Members members;
    const auto stale = Members::start(quiet(members, "stale", members.token()));
    members.token();
    REQUIRE(members.admin->revoke_token(members.last_id).ok());
    const auto fresh = Members::start(quiet(members, "fresh", members.token()));
    REQUIRE(newest_key(*fresh) > newest_key(*stale));
    stale_dials ? check_adds(*stale, "fresh") : check_adds(*fresh, "stale");
    CHECK(newest_key(*fresh) == newest_key(*stale));
  }
}

TEST_CASE("keys that rotate all the time break no call and no new connection") {
  Members members;
  const auto server = members.start("server");
  const auto steady = members.start("steady");
  const auto client = members.start("client");
  std::atomic<bool> stop{false};
  std::optional<Status> broken;
  std::thread traffic([&] {
    while (!stop) {
      if (const auto sum = add(*steady, "server"); !sum) {
        broken = sum.status();
        return;
      }
    }
  });
  const std::int64_t first = newest_key(*client);
  const int rounds = scaled(40);
  for (int i = 0; i < rounds; ++i) {
    members.rotate();
    // It has the newest keys, and those that were there before it may be several behind: both ways.
    const std::string name = "late:" + std::to_string(i);
    const auto late = members.start(name);
    check_adds(*late, "server");
    check_adds(*client, name);
  }
  stop = true;
  traffic.join();
  CHECK_MESSAGE(!broken, broken->to_string());
  CHECK(eventually([&] { return newest_key(*client) > first; }));
}

TEST_CASE("connections are made with the keys that are known while nanoctrl is away") {
  Members members;
  const auto a = members.start("a");
  const auto b = members.start("b");
  check_adds(*a, "b");
  members.registry.stop();
  REQUIRE(a->peer("b").disconnect().ok());
  check_adds(*a, "b");
  const auto stranger = test::start("stranger");
  CHECK(code_of(add(*stranger, b->address())) == Code::kUnauthenticated);
}

}  // namespace
}  // namespace slime
