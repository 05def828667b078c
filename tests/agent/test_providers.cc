// Which provider is next, and what is known of them: no agents, and time that the test says.

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "agent/limits.h"
#include "agent/services/providers.h"
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

void tell(Providers& providers, std::vector<ctrl::ServiceEntry> entries, TimePoint now = kStart,
          std::uint64_t epoch = 1) {
  providers.want();
  ctrl::ServiceList list;
  list.server_epoch = epoch;
  list.services = std::move(entries);
  providers.answer(std::move(list), now);
}

std::set<std::string> names(const Providers& providers) {
  std::set<std::string> out;
  for (const Provider& provider : providers.view()) out.insert(provider.name);
  return out;
}

std::string pick_and_release(Providers& providers, const Providers::Wish& wish, TimePoint now = kStart) {
  const auto provider = providers.pick(wish, now);
  if (!provider) return "";
  providers.release(*provider, now, true, now);
  return provider->name;
}

const Status kTimedOut(Code::kDeadlineExceeded, "no answer");

// Ends a call of `provider` that began at `began` with a timeout.
void time_out(Providers& providers, Provider& provider, TimePoint began, TimePoint now) {
  providers.release(provider, began, false, now);
  providers.eject(provider, kTimedOut, began, now);
}

// Returns how much longer the provider is avoided.
Nanos ejected_for(Providers& providers, const std::string& name, TimePoint now) {
  for (const Provider& provider : providers.view()) {
    if (provider.name == name) return provider.avoided_until - now;
  }
  return {};
}

TEST_CASE("round robin gives everybody the same, in turn") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  std::string order;
  for (int i = 0; i < 6; ++i) order += pick_and_release(providers, {});
  CHECK(order.substr(0, 3) == order.substr(3));
  CHECK(std::set<char>(order.begin(), order.end()).size() == 3);
}

TEST_CASE("least in flight goes to who has the fewest, and to all who have equally many") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  const Providers::Wish wish{.policy = Balance::kLeastInFlight};
  std::vector<std::shared_ptr<Provider>> busy;
  for (int i = 0; i < 3; ++i) busy.push_back(providers.pick(wish, kStart));
  CHECK(std::set<std::string>{busy[0]->name, busy[1]->name, busy[2]->name}.size() == 3);
  providers.release(*busy[1], kStart, true, kStart);
  CHECK(pick_and_release(providers, wish) == busy[1]->name);
  CHECK(pick_and_release(providers, wish) == busy[1]->name);
}

TEST_CASE("sticky without a key stays until that one is avoided, and then with the next one") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  Favorite favorite;
  const Providers::Wish wish{.policy = Balance::kSticky, .favorite = &favorite};
  const std::string first = pick_and_release(providers, wish);
  for (int i = 0; i < 5; ++i) CHECK(pick_and_release(providers, wish) == first);
  const auto held = providers.pick(wish, kStart);
  providers.avoid(*held, Status(Code::kUnavailable, "gone"), kStart + kLater);
  const std::string second = pick_and_release(providers, wish);
  CHECK(second != first);
  CHECK(pick_and_release(providers, wish, kStart + std::chrono::hours(1)) == second);
}

TEST_CASE("a key goes to one provider, from every caller; one that leaves moves only its own keys") {
  Providers one("calc", 1);
  Providers other("calc", 2);
  tell(one, {entry("a", 1), entry("b", 2), entry("c", 3)});
  tell(other, {entry("c", 3), entry("a", 1), entry("b", 2)});
  Providers fewer("calc", 3);
  tell(fewer, {entry("a", 1), entry("c", 3)});
  std::map<std::string, int> share;
  for (int i = 0; i < 300; ++i) {
    const std::string key = str("user-", i);
    const Providers::Wish wish{.policy = Balance::kSticky, .key = key};
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
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2)});
  const auto failed = providers.pick({}, kStart);
  providers.avoid(*failed, Status(Code::kUnavailable, "gone"), kStart + kLater);
  for (int i = 0; i < 4; ++i) CHECK(pick_and_release(providers, {}) != failed->name);
  Providers::List tried;
  for (const char* left : {"other", "failed"}) {
    const auto next = providers.pick({.tried = &tried}, kStart);
    REQUIRE(next);
    CHECK((next == failed) == (std::string_view(left) == "failed"));
    tried.push_back(next);
  }
  CHECK(providers.pick({.tried = &tried}, kStart) == nullptr);
}

TEST_CASE("one that lets a call time out is ejected as long as that waited, and twice as long each time") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2)});
  TimePoint now = kStart;
  Nanos expected = std::chrono::seconds(3);
  std::shared_ptr<Provider> stuck = providers.pick({}, now);
  const TimePoint began = now;
  now += std::chrono::seconds(3);
  time_out(providers, *stuck, began, now);
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(ejected_for(providers, stuck->name, now) == expected);
    for (int k = 0; k < 4; ++k) CHECK(pick_and_release(providers, {}, now) != stuck->name);
    now += expected;
    // Then one trial call goes to the provider, and no other call does meanwhile.
    std::shared_ptr<Provider> trial;
    while (trial != stuck) trial = providers.pick({}, now);
    for (int k = 0; k < 4; ++k) CHECK(pick_and_release(providers, {}, now) != stuck->name);
    const TimePoint tried = now;
    now += std::chrono::seconds(3);
    time_out(providers, *trial, tried, now);
    expected = std::min<Nanos>(2 * expected, limits::kEjectProviderMost);
  }
}

TEST_CASE("calls that were under way when their provider was ejected do not make that longer") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1)});
  for (int i = 0; i < 5; ++i) REQUIRE(providers.pick({}, kStart));
  const auto provider = providers.pick({}, kStart);
  for (int i = 0; i < 5; ++i)
    time_out(providers, *provider, kStart, kStart + std::chrono::seconds(2) + i * kLater);
  CHECK(ejected_for(providers, "a", kStart + std::chrono::seconds(2)) == std::chrono::seconds(2));
}

TEST_CASE("an answer ends an ejection at once") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2)});
  const auto stuck = providers.pick({}, kStart);
  std::shared_ptr<Provider> slow;
  while (slow != stuck) slow = providers.pick({}, kStart + kLater);
  const TimePoint now = kStart + std::chrono::seconds(2);
  time_out(providers, *stuck, kStart, now);
  CHECK(pick_and_release(providers, {}, now) != stuck->name);
  providers.release(*slow, kStart + kLater, true, now);
  std::set<std::string> taken;
  for (int i = 0; i < 2; ++i) taken.insert(pick_and_release(providers, {}, now));
  CHECK(taken.size() == 2);
}

TEST_CASE("one that answers other calls is not ejected for one that is slow") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1)});
  const auto slow = providers.pick({}, kStart);
  const TimePoint now = kStart + std::chrono::seconds(2);
  CHECK(pick_and_release(providers, {}, now) == "a");
  time_out(providers, *slow, kStart, now);
  CHECK(ejected_for(providers, "a", now) < Nanos::zero());
}

TEST_CASE("where all are ejected calls still go to them") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1)});
  const auto stuck = providers.pick({}, kStart);
  const TimePoint now = kStart + std::chrono::seconds(2);
  time_out(providers, *stuck, kStart, now);
  CHECK(pick_and_release(providers, {}, now) == "a");
}

TEST_CASE("a provider that came back as another process is not avoided any more") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2)});
  for (int i = 0; i < 2; ++i) {
    const auto provider = providers.pick({}, kStart);
    providers.avoid(*provider, Status(Code::kUnavailable, "gone"), kStart + std::chrono::hours(1));
  }
  tell(providers, {entry("a", 7, 2), entry("b", 2)});
  for (int i = 0; i < 3; ++i) CHECK(pick_and_release(providers, {}) == "a");
}

TEST_CASE("only who says that it has a method is taken where that is asked") {
  Providers providers("calc", 1);
  ctrl::ServiceEntry silent = entry("a", 1);
  silent.service.methods.clear();
  tell(providers, {silent, entry("b", 2)});
  for (int i = 0; i < 3; ++i) CHECK(pick_and_release(providers, {.must_have = "add"}) == "b");
  CHECK(pick_and_release(providers, {.must_have = "mul"}).empty());
}

TEST_CASE("a question that is under way answers nobody who asks later") {
  Providers providers("calc", 1);
  const auto first = providers.want();
  CHECK(first.to_send);
  const auto second = providers.want();
  CHECK_FALSE(second.to_send);
  CHECK(second.number > first.number);
  CHECK(providers.want().number == second.number);
  CHECK(providers.answer(ctrl::ServiceList{}, kStart));
  CHECK(providers.answered() == first.number);
  CHECK_FALSE(providers.answer(ctrl::ServiceList{}, kStart));
  CHECK(providers.answered() == second.number);
}

TEST_CASE("a list is old until it was answered, fresh while it is confirmed, due after a change") {
  Providers providers("calc", 1);
  CHECK(providers.old(kStart));
  tell(providers, {entry("a", 1)});
  TimePoint now = kStart;
  for (int i = 0; i < 10; ++i) {
    now += limits::kProvidersFresh / 2;
    CHECK_FALSE(providers.due(now));
    providers.on_news(true, now);
  }
  providers.note_change();
  CHECK(providers.due(now));
  providers.on_news(true, now + limits::kProvidersOld);  // of a list that has changed it confirms nothing
  CHECK(providers.old(now + limits::kProvidersOld));
  tell(providers, {entry("a", 1)}, now);
  CHECK_FALSE(providers.due(now));
  providers.note_change();
  CHECK_FALSE(providers.due(now + limits::kProvidersPause - kLater));
  CHECK(providers.due(now + limits::kProvidersPause));
}

TEST_CASE("an error leaves the list as it was, and says so") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1)});
  providers.want();
  providers.answer(Status(Code::kUnavailable, "nobody answers"), kStart);
  CHECK(names(providers) == std::set<std::string>{"a"});
  CHECK(providers.knowledge().find("nobody answers") != std::string::npos);
  CHECK_FALSE(providers.due(kStart));
}

TEST_CASE("who says goodbye or expires is gone at once, unless it is back already") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1, 5), entry("b", 2, 6), entry("c", 3, 7)});
  ctrl::Event gone;
  gone.kind = ctrl::EventKind::kExpired;
  gone.name = "a";
  gone.incarnation = 5;
  providers.on_event(gone);
  gone.kind = ctrl::EventKind::kDeregistered;
  gone.name = "b";
  providers.on_event(gone);  // an earlier owner of the name
  CHECK(names(providers) == std::set<std::string>{"b", "c"});
}

TEST_CASE("a registry that comes back empty does not take the providers with it") {
  Providers providers("calc", 1);
  tell(providers, {entry("a", 1), entry("b", 2), entry("c", 3)});
  tell(providers, {entry("b", 2, 9), entry("c", 8, 9)}, kStart, 2);
  CHECK(names(providers) == std::set<std::string>{"a", "b", "c"});
  CHECK(providers.view().size() == 3);  // not both processes named c
  tell(providers, {entry("b", 2, 9)}, kStart + limits::kKeepUnlisted - kLater, 2);
  CHECK(names(providers) == std::set<std::string>{"a", "b"});
  tell(providers, {entry("b", 2, 9)}, kStart + limits::kKeepUnlisted, 2);
  CHECK(names(providers) == std::set<std::string>{"b"});
}

}  // namespace
}  // namespace slime::agent
