// Which server is next, and what is known of them: no agents, and time that the test says.

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "agent/limits.h"
#include "agent/services/server_pool.h"
#include "base/str.h"

namespace slime::agent {
namespace {

const TimePoint kStart = TimePoint{} + std::chrono::hours(1);
constexpr Nanos kLater = std::chrono::nanoseconds(1);

InstanceId instance(std::uint8_t number) {
  InstanceId out;
  out.bytes[0] = std::byte{number};
  return out;
}

ctrl::ServiceEntry entry(std::string name, std::uint8_t number, std::uint64_t incarnation = 1) {
  return {.peer = std::move(name),
          .address = "127.0.0.1:1",
          .instance = instance(number),
          .incarnation = incarnation,
          .service = {.name = "calc", .kind = "", .methods = {"sub", "add"}}};
}

void tell(ServerPool& servers, std::vector<ctrl::ServiceEntry> entries, TimePoint now = kStart,
          std::uint64_t epoch = 1) {
  servers.want();
  ctrl::ServiceList list;
  list.server_epoch = epoch;
  list.services = std::move(entries);
  servers.answer(std::move(list), now);
}

std::set<std::string> names(const ServerPool& servers) {
  std::set<std::string> out;
  for (const PooledServer& server : servers.view()) out.insert(server.name);
  return out;
}

std::string pick_and_release(ServerPool& servers, const ServerPool::Wish& wish, TimePoint now = kStart) {
  const auto server = servers.pick(wish, now);
  if (!server) return "";
  servers.release(*server, now, true, now);
  return server->name;
}

const Status kTimedOut(Code::kDeadlineExceeded, "no answer");

// Ends a call of `server` that began at `began` with a timeout.
void time_out(ServerPool& servers, PooledServer& server, TimePoint began, TimePoint now) {
  servers.release(server, began, false, now);
  servers.eject(server, kTimedOut, began, now);
}

// Returns how much longer the server is avoided.
Nanos ejected_for(ServerPool& servers, const std::string& name, TimePoint now) {
  for (const PooledServer& server : servers.view()) {
    if (server.name == name) return server.avoided_until - now;
  }
  return {};
}

TEST_CASE("round robin gives everybody the same, in turn") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  std::string order;
  for (int i = 0; i < 6; ++i) order += pick_and_release(servers, {});
  CHECK(order.substr(0, 3) == order.substr(3));
  CHECK(std::set<char>(order.begin(), order.end()).size() == 3);
}

TEST_CASE("least in flight goes to who has the fewest, and to all who have equally many") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  const ServerPool::Wish wish{.policy = Balance::kLeastInFlight};
  std::vector<std::shared_ptr<PooledServer>> busy;
  for (int i = 0; i < 3; ++i) busy.push_back(servers.pick(wish, kStart));
  CHECK(std::set<std::string>{busy[0]->name, busy[1]->name, busy[2]->name}.size() == 3);
  servers.release(*busy[1], kStart, true, kStart);
  CHECK(pick_and_release(servers, wish) == busy[1]->name);
  CHECK(pick_and_release(servers, wish) == busy[1]->name);
}

TEST_CASE("sticky without a key stays until that one is avoided, and then with the next one") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  Favorite favorite;
  const ServerPool::Wish wish{.policy = Balance::kSticky, .favorite = &favorite};
  const std::string first = pick_and_release(servers, wish);
  for (int i = 0; i < 5; ++i) CHECK(pick_and_release(servers, wish) == first);
  const auto held = servers.pick(wish, kStart);
  servers.avoid(*held, Status(Code::kUnavailable, "gone"), kStart + kLater);
  const std::string second = pick_and_release(servers, wish);
  CHECK(second != first);
  CHECK(pick_and_release(servers, wish, kStart + std::chrono::hours(1)) == second);
}

TEST_CASE("a key goes to one server, from every caller; one that leaves moves only its own keys") {
  ServerPool one("calc", 1);
  ServerPool other("calc", 2);
  tell(one, {entry("a", 1), entry("b", 2), entry("c", 3)});
  tell(other, {entry("c", 3), entry("a", 1), entry("b", 2)});
  ServerPool fewer("calc", 3);
  tell(fewer, {entry("a", 1), entry("c", 3)});
  std::map<std::string, int> share;
  for (int i = 0; i < 300; ++i) {
    const std::string key = str("user-", i);
    const ServerPool::Wish wish{.policy = Balance::kSticky, .key = key};
    const std::string chosen = pick_and_release(one, wish);
    CHECK(pick_and_release(other, wish) == chosen);
    if (chosen != "b") CHECK(pick_and_release(fewer, wish) == chosen);
    ++share[chosen];
  }
  for (const auto& each : share) {
    CAPTURE(each.first);
    CHECK(each.second > 50);
  }
  CHECK(share.size() == 3);
}

TEST_CASE("who is avoided is taken only where nobody else is, and not twice for one call") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2)});
  const auto failed = servers.pick({}, kStart);
  servers.avoid(*failed, Status(Code::kUnavailable, "gone"), kStart + kLater);
  for (int i = 0; i < 4; ++i) CHECK(pick_and_release(servers, {}) != failed->name);
  ServerPool::List tried;
  for (const char* left : {"other", "failed"}) {
    const auto next = servers.pick({.tried = &tried}, kStart);
    REQUIRE(next);
    CHECK((next == failed) == (std::string_view(left) == "failed"));
    tried.push_back(next);
  }
  CHECK(servers.pick({.tried = &tried}, kStart) == nullptr);
}

TEST_CASE("one that lets a call time out is ejected as long as that waited, and twice as long each time") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2)});
  TimePoint now = kStart;
  Nanos expected = std::chrono::seconds(3);
  std::shared_ptr<PooledServer> stuck = servers.pick({}, now);
  const TimePoint began = now;
  now += std::chrono::seconds(3);
  time_out(servers, *stuck, began, now);
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(ejected_for(servers, stuck->name, now) == expected);
    for (int k = 0; k < 4; ++k) CHECK(pick_and_release(servers, {}, now) != stuck->name);
    now += expected;
    // Then one trial call goes to the server, and no other call does meanwhile.
    std::shared_ptr<PooledServer> trial;
    while (trial != stuck) trial = servers.pick({}, now);
    for (int k = 0; k < 4; ++k) CHECK(pick_and_release(servers, {}, now) != stuck->name);
    const TimePoint tried = now;
    now += std::chrono::seconds(3);
    time_out(servers, *trial, tried, now);
    expected = std::min<Nanos>(2 * expected, limits::kEjectServerMost);
  }
}

TEST_CASE("calls that were under way when their server was ejected do not make that longer") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1)});
  for (int i = 0; i < 5; ++i) REQUIRE(servers.pick({}, kStart));
  const auto server = servers.pick({}, kStart);
  for (int i = 0; i < 5; ++i)
    time_out(servers, *server, kStart, kStart + std::chrono::seconds(2) + i * kLater);
  CHECK(ejected_for(servers, "a", kStart + std::chrono::seconds(2)) == std::chrono::seconds(2));
}

TEST_CASE("an answer ends an ejection at once") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2)});
  const auto stuck = servers.pick({}, kStart);
  std::shared_ptr<PooledServer> slow;
  while (slow != stuck) slow = servers.pick({}, kStart + kLater);
  const TimePoint now = kStart + std::chrono::seconds(2);
  time_out(servers, *stuck, kStart, now);
  CHECK(pick_and_release(servers, {}, now) != stuck->name);
  servers.release(*slow, kStart + kLater, true, now);
  std::set<std::string> taken;
  for (int i = 0; i < 2; ++i) taken.insert(pick_and_release(servers, {}, now));
  CHECK(taken.size() == 2);
}

TEST_CASE("one that answers other calls is not ejected for one that is slow") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1)});
  const auto slow = servers.pick({}, kStart);
  const TimePoint now = kStart + std::chrono::seconds(2);
  CHECK(pick_and_release(servers, {}, now) == "a");
  time_out(servers, *slow, kStart, now);
  CHECK(ejected_for(servers, "a", now) < Nanos::zero());
}

TEST_CASE("where all are ejected calls still go to them") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1)});
  const auto stuck = servers.pick({}, kStart);
  const TimePoint now = kStart + std::chrono::seconds(2);
  time_out(servers, *stuck, kStart, now);
  CHECK(pick_and_release(servers, {}, now) == "a");
}

TEST_CASE("a server that came back as another process is not avoided any more") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2)});
  for (int i = 0; i < 2; ++i) {
    const auto server = servers.pick({}, kStart);
    servers.avoid(*server, Status(Code::kUnavailable, "gone"), kStart + std::chrono::hours(1));
  }
  tell(servers, {entry("a", 7, 2), entry("b", 2)});
  for (int i = 0; i < 3; ++i) CHECK(pick_and_release(servers, {}) == "a");
}

TEST_CASE("only who says that it has a method is taken where that is asked") {
  ServerPool servers("calc", 1);
  ctrl::ServiceEntry silent = entry("a", 1);
  silent.service.methods.clear();
  tell(servers, {silent, entry("b", 2)});
  for (int i = 0; i < 3; ++i) CHECK(pick_and_release(servers, {.must_have = "add"}) == "b");
  CHECK(pick_and_release(servers, {.must_have = "mul"}).empty());
}

TEST_CASE("a question that is under way answers nobody who asks later") {
  ServerPool servers("calc", 1);
  const auto first = servers.want();
  CHECK(first.to_send);
  const auto second = servers.want();
  CHECK_FALSE(second.to_send);
  CHECK(second.number > first.number);
  CHECK(servers.want().number == second.number);
  CHECK(servers.answer(ctrl::ServiceList{}, kStart));
  CHECK(servers.answered() == first.number);
  CHECK_FALSE(servers.answer(ctrl::ServiceList{}, kStart));
  CHECK(servers.answered() == second.number);
}

TEST_CASE("a list is old until it was answered, fresh while it is confirmed, due after a change") {
  ServerPool servers("calc", 1);
  CHECK(servers.old(kStart));
  tell(servers, {entry("a", 1)});
  TimePoint now = kStart;
  for (int i = 0; i < 10; ++i) {
    now += limits::kServersFresh / 2;
    CHECK_FALSE(servers.due(now));
    servers.on_news(true, now);
  }
  servers.note_change();
  CHECK(servers.due(now));
  servers.on_news(true, now + limits::kServersOld);  // of a list that has changed it confirms nothing
  CHECK(servers.old(now + limits::kServersOld));
  tell(servers, {entry("a", 1)}, now);
  CHECK_FALSE(servers.due(now));
  servers.note_change();
  CHECK_FALSE(servers.due(now + limits::kServersPause - kLater));
  CHECK(servers.due(now + limits::kServersPause));
}

TEST_CASE("an error leaves the list as it was, and says so") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1)});
  servers.want();
  servers.answer(Status(Code::kUnavailable, "nobody answers"), kStart);
  CHECK(names(servers) == std::set<std::string>{"a"});
  CHECK(servers.knowledge().find("nobody answers") != std::string::npos);
  CHECK_FALSE(servers.due(kStart));
}

TEST_CASE("who says goodbye or expires is gone at once, unless it is back already") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1, 5), entry("b", 2, 6), entry("c", 3, 7)});
  ctrl::Event gone;
  gone.kind = ctrl::EventKind::kExpired;
  gone.name = "a";
  gone.incarnation = 5;
  servers.on_event(gone);
  gone.kind = ctrl::EventKind::kDeregistered;
  gone.name = "b";
  servers.on_event(gone);  // an earlier owner of the name
  CHECK(names(servers) == std::set<std::string>{"b", "c"});
}

TEST_CASE("a registry that comes back empty does not take the servers with it") {
  ServerPool servers("calc", 1);
  tell(servers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  tell(servers, {entry("b", 2, 9), entry("c", 8, 9)}, kStart, 2);
  CHECK(names(servers) == std::set<std::string>{"a", "b", "c"});
  CHECK(servers.view().size() == 3);  // not both processes named c
  tell(servers, {entry("b", 2, 9)}, kStart + limits::kKeepUnlisted - kLater, 2);
  CHECK(names(servers) == std::set<std::string>{"a", "b"});
  tell(servers, {entry("b", 2, 9)}, kStart + limits::kKeepUnlisted, 2);
  CHECK(names(servers) == std::set<std::string>{"b"});
}

}  // namespace
}  // namespace slime::agent
