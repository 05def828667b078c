#include <doctest/doctest.h>

#include "ctrl/registry/registry.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::registry_test {
namespace {

using namespace std::chrono_literals;
using test::instance;
using test::registration;

constexpr std::uint64_t kEpoch = 1000;

class Fixture {
 public:
  explicit Fixture(RegistryOptions options = {.epoch = kEpoch}) : registry(options) {}

  Outcome apply(const Command& command) { return registry.apply(command, clock.now()); }
  Outcome enroll(const std::string& name, std::uint8_t number, std::uint64_t takes_over = 0) {
    return apply(RegisterCommand{registration(name, number), takes_over, Proof::trusted()});
  }
  Outcome beat(const std::string& name, std::uint64_t incarnation) {
    return apply(HeartbeatCommand{"default", name, incarnation, Proof::trusted()});
  }
  bool present(const std::string& name) const { return registry.find("default", name).has_value(); }

  ManualClock clock;
  Registry registry;
};

TEST_CASE("a registration grants an incarnation, a lease and a third of it between heartbeats") {
  Fixture f;
  const Outcome out = f.enroll("a", 1);
  REQUIRE(out.status.ok());
  CHECK(out.lease.incarnation > kEpoch);
  CHECK(out.lease.server_epoch == kEpoch);
  CHECK(out.lease.ttl == 15s);
  CHECK(out.lease.heartbeat_interval == 5s);
  CHECK(out.lease.revision == f.registry.revision("default"));
  REQUIRE(out.events.size() == 1);
  CHECK(out.events[0].event.kind == EventKind::kRegistered);
  CHECK(out.events[0].scope == "default");
  CHECK(f.registry.find("default", "a")->incarnation == out.lease.incarnation);
}

TEST_CASE("incarnations increase and are not reused when a name comes back") {
  Fixture f;
  const std::uint64_t first = f.enroll("a", 1).lease.incarnation;
  REQUIRE(f.apply(DeregisterCommand{"default", "a", first, Proof::trusted()}).status.ok());
  const std::uint64_t second = f.enroll("a", 1).lease.incarnation;
  CHECK(second > first);
  CHECK(f.enroll("b", 2).lease.incarnation > second);
}

TEST_CASE("the same instance registers again: same incarnation, and an event only for a difference") {
  Fixture f;
  const Outcome first = f.enroll("a", 1);
  const Outcome same = f.enroll("a", 1);
  CHECK(same.lease.incarnation == first.lease.incarnation);
  CHECK(same.events.empty());
  Registration moved = registration("a", 1);
  moved.address = "127.0.0.1:7002";
  const Outcome changed = f.apply(RegisterCommand{moved, 0, Proof::trusted()});
  CHECK(changed.lease.incarnation == first.lease.incarnation);
  REQUIRE(changed.events.size() == 1);
  CHECK(changed.events[0].event.kind == EventKind::kUpdated);
  CHECK(f.registry.find("default", "a")->address == "127.0.0.1:7002");
}

TEST_CASE("registering again replaces services and regions") {
  Fixture f;
  Registration full = registration("a", 1);
  full.regions = {{"kv", 10, RegionRights::kRead}};
  full.services = {{"calc", "math", {"add"}}};
  REQUIRE(f.apply(RegisterCommand{full, 0, Proof::trusted()}).status.ok());
  REQUIRE(f.enroll("a", 1).status.ok());
  CHECK(f.registry.find("default", "a")->regions.empty());
  CHECK(f.registry.find("default", "a")->services.empty());
}

TEST_CASE("a name held by another live instance is a conflict that tells the holder and changes nothing") {
  Fixture f;
  const Outcome first = f.enroll("a", 1);
  const std::uint64_t revision = f.registry.revision("default");
  f.clock.advance(5s);
  const Outcome second = f.enroll("a", 2);
  CHECK(second.status.code() == Code::kAlreadyExists);
  REQUIRE(second.holder);
  CHECK(second.holder->instance == instance(1));
  CHECK(second.holder->incarnation == first.lease.incarnation);
  CHECK(second.holder->address == "127.0.0.1:7001");
  CHECK(second.holder->expires_in == 10s);
  CHECK(second.events.empty());
  CHECK(f.registry.revision("default") == revision);
}

TEST_CASE("a takeover expires the holder that it names, and the old incarnation is refused from then on") {
  Fixture f;
  const std::uint64_t old = f.enroll("a", 1).lease.incarnation;
  const Outcome out = f.enroll("a", 2, old);
  REQUIRE(out.status.ok());
  CHECK(out.lease.incarnation > old);
  REQUIRE(out.events.size() == 2);
  CHECK(out.events[0].event.kind == EventKind::kExpired);
  CHECK(out.events[0].event.instance == instance(1));
  CHECK(out.events[1].event.kind == EventKind::kRegistered);
  CHECK(out.events[1].event.revision == out.events[0].event.revision + 1);
  CHECK(f.beat("a", old).status.code() == Code::kAborted);
  CHECK(f.apply(DeregisterCommand{"default", "a", old, Proof::trusted()}).status.code() == Code::kAborted);
  CHECK(f.apply(UpdateRegionsCommand{"default", "a", old, false, {}, {}, Proof::trusted()}).status.code() ==
        Code::kAborted);
  CHECK(f.apply(UpdateServicesCommand{"default", "a", old, false, {}, {}, Proof::trusted()}).status.code() ==
        Code::kAborted);
  CHECK(f.present("a"));
}

TEST_CASE("a takeover of an earlier holder does not hit its successor") {
  Fixture f;
  const std::uint64_t first = f.enroll("a", 1).lease.incarnation;
  REQUIRE(f.enroll("a", 2, first).status.ok());
  const Outcome late = f.enroll("a", 3, first);
  CHECK(late.status.code() == Code::kAlreadyExists);
  CHECK(late.holder->instance == instance(2));
}

TEST_CASE("a lease ends exactly after its ttl, and heartbeats move its end") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  f.clock.advance(10s);
  REQUIRE(f.beat("a", incarnation).status.ok());
  f.clock.advance(15s - 1ns);
  CHECK(f.apply(TickCommand{}).events.empty());
  CHECK(f.present("a"));
  f.clock.advance(1ns);
  const Outcome out = f.apply(TickCommand{});
  REQUIRE(out.events.size() == 1);
  CHECK(out.events[0].event.kind == EventKind::kExpired);
  CHECK(out.events[0].event.incarnation == incarnation);
  CHECK_FALSE(f.present("a"));
}

TEST_CASE("a heartbeat after the end of the lease does not revive it: register again") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  f.clock.advance(15s);
  const Outcome out = f.beat("a", incarnation);
  CHECK(out.status.code() == Code::kNotFound);
  CHECK(out.events.size() == 1);
  CHECK(f.enroll("a", 1).lease.incarnation > incarnation);
}

TEST_CASE("a name whose lease ended is free for others without a takeover") {
  Fixture f;
  f.enroll("a", 1);
  f.clock.advance(15s);
  const Outcome out = f.enroll("a", 2);
  CHECK(out.status.ok());
  CHECK(out.events.size() == 2);
}

TEST_CASE("next_expiry is never later than the end of a lease") {
  Fixture f;
  CHECK(f.registry.next_expiry() == kNever);
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  CHECK(f.registry.next_expiry() == f.clock.now() + 15s);
  f.apply(DeregisterCommand{"default", "a", incarnation, Proof::trusted()});
  CHECK(f.registry.next_expiry() == kNever);
}

TEST_CASE("time that goes back counts as the latest time seen") {
  Fixture f;
  f.enroll("a", 1);
  f.clock.advance(14s);
  f.apply(TickCommand{});
  const Outcome early =
      f.registry.apply(RegisterCommand{registration("b", 2), 0, Proof::trusted()}, f.clock.now() - 10s);
  REQUIRE(early.status.ok());
  CHECK(f.registry.find("default", "b")->expires_in == 15s);
}

TEST_CASE("deregister says so, once") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  const Outcome out = f.apply(DeregisterCommand{"default", "a", incarnation, Proof::trusted()});
  REQUIRE(out.events.size() == 1);
  CHECK(out.events[0].event.kind == EventKind::kDeregistered);
  CHECK(f.apply(DeregisterCommand{"default", "a", incarnation, Proof::trusted()}).status.code() ==
        Code::kNotFound);
}

TEST_CASE("scopes do not see each other: names, revisions, events") {
  Fixture f;
  Registration other = registration("a", 2);
  other.scope = "other";
  REQUIRE(f.enroll("a", 1).status.ok());
  const std::uint64_t before = f.registry.revision("default");
  REQUIRE(f.apply(RegisterCommand{other, 0, Proof::trusted()}).status.ok());
  CHECK(f.registry.find("default", "a")->instance == instance(1));
  CHECK(f.registry.find("other", "a")->instance == instance(2));
  CHECK(f.registry.revision("default") == before);
  CHECK(f.registry.changes("other", kEpoch).events.size() == 1);
}

TEST_CASE("regions are published, replaced by name, and removed in bulk") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  UpdateRegionsCommand publish{"default",       "a", incarnation, false, {{"x", 1}, {"y", 2}}, {},
                               Proof::trusted()};
  REQUIRE(f.apply(publish).status.ok());
  UpdateRegionsCommand change{"default",       "a", incarnation, false, {{"y", 3}, {"z", 4}}, {"x", "absent"},
                              Proof::trusted()};
  const Outcome out = f.apply(change);
  REQUIRE(out.status.ok());
  CHECK(out.events.size() == 1);
  CHECK(f.registry.find("default", "a")->regions == std::vector<RegionInfo>{{"y", 3}, {"z", 4}});
  UpdateRegionsCommand replace{"default", "a", incarnation, true, {{"w", 5}}, {}, Proof::trusted()};
  REQUIRE(f.apply(replace).status.ok());
  CHECK(f.registry.find("default", "a")->regions == std::vector<RegionInfo>{{"w", 5}});
  CHECK(f.apply(replace).events.empty());
}

TEST_CASE("a refused bulk update changes nothing") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  UpdateRegionsCommand bad{"default",       "a", incarnation, false, {{"good", 1}, {"bad name", 2}}, {},
                           Proof::trusted()};
  CHECK(f.apply(bad).status.code() == Code::kInvalidArgument);
  CHECK(f.registry.find("default", "a")->regions.empty());
  UpdateServicesCommand twice{"default",       "a", incarnation, false, {{"s", "", {}}, {"s", "", {}}}, {},
                              Proof::trusted()};
  CHECK(f.apply(twice).status.code() == Code::kInvalidArgument);
  CHECK(f.registry.find("default", "a")->services.empty());
}

TEST_CASE("a peer has at most so many regions, also over several updates") {
  Fixture f;
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  UpdateRegionsCommand full{"default", "a", incarnation, false, {}, {}, Proof::trusted()};
  for (std::size_t i = 0; i < limits::kRegionsPerPeer; ++i)
    full.publish.push_back({"r" + std::to_string(i), 1});
  REQUIRE(f.apply(full).status.ok());
  UpdateRegionsCommand more{"default", "a", incarnation, false, {{"one-more", 1}}, {}, Proof::trusted()};
  CHECK(f.apply(more).status.code() == Code::kInvalidArgument);
  more.unpublish = {"r0"};
  CHECK(f.apply(more).status.ok());
}

TEST_CASE("changes are the events after a revision, in pages") {
  Fixture f;
  for (std::uint8_t i = 1; i <= 5; ++i) f.enroll("p" + std::to_string(i), i);
  const Changes first = f.registry.changes("default", kEpoch, 2);
  REQUIRE(first.events.size() == 2);
  CHECK(first.more);
  CHECK(first.events[0].name == "p1");
  CHECK(first.revision == first.events[1].revision);
  const Changes rest = f.registry.changes("default", first.revision, 10);
  CHECK(rest.events.size() == 3);
  CHECK_FALSE(rest.more);
  CHECK(rest.revision == f.registry.revision("default"));
  CHECK(f.registry.changes("default", rest.revision).events.empty());
}

TEST_CASE("a revision that the log no longer reaches, or never was, asks for a resync") {
  Fixture f({.epoch = kEpoch, .events_per_scope_max = 3});
  for (std::uint8_t i = 1; i <= 5; ++i) f.enroll("p" + std::to_string(i), i);
  CHECK(f.registry.changes("default", kEpoch + 1).resync);
  const Changes kept = f.registry.changes("default", kEpoch + 2);
  CHECK_FALSE(kept.resync);
  CHECK(kept.events.size() == 3);
  const Changes future = f.registry.changes("default", kEpoch + 6);
  CHECK(future.resync);
  CHECK(future.revision == kEpoch + 5);
}

TEST_CASE("revisions of an earlier server ask for a resync, and incarnations go on increasing") {
  Fixture before({.epoch = 1000});
  const Outcome old = before.enroll("a", 1);
  Fixture after({.epoch = 2000});
  CHECK(after.registry.changes("default", old.lease.revision).resync);
  CHECK(after.beat("a", old.lease.incarnation).status.code() == Code::kNotFound);
  const Outcome again = after.enroll("a", 1);
  CHECK(again.lease.incarnation > old.lease.incarnation);
  CHECK(again.lease.revision > old.lease.revision);
  CHECK(again.lease.server_epoch != old.lease.server_epoch);
}

TEST_CASE("a full scope and a full registry refuse, and room that comes free is used") {
  Fixture f({.epoch = kEpoch, .peers_per_scope_max = 2});
  const std::uint64_t incarnation = f.enroll("a", 1).lease.incarnation;
  f.enroll("b", 2);
  CHECK(f.enroll("c", 3).status.code() == Code::kResourceExhausted);
  CHECK(f.enroll("a", 1).status.ok());
  f.apply(DeregisterCommand{"default", "a", incarnation, Proof::trusted()});
  CHECK(f.enroll("c", 3).status.ok());

  Fixture small({.epoch = kEpoch, .record_bytes_max = 2000});
  const std::uint64_t holder = small.enroll("a", 1).lease.incarnation;
  UpdateRegionsCommand big{"default", "a", holder, false, {}, {}, Proof::trusted()};
  for (int i = 0; i < 100; ++i) big.publish.push_back({"region" + std::to_string(i), 1});
  CHECK(small.apply(big).status.code() == Code::kResourceExhausted);
  small.apply(DeregisterCommand{"default", "a", holder, Proof::trusted()});
  CHECK(small.registry.record_bytes() == 0);
}

TEST_CASE("an empty scope makes room for a new one, and comes back with a later revision") {
  Fixture f({.epoch = kEpoch, .scopes_max = 1});
  const Outcome first = f.enroll("a", 1);
  Registration other = registration("a", 2);
  other.scope = "other";
  CHECK(f.apply(RegisterCommand{other, 0, Proof::trusted()}).status.code() == Code::kResourceExhausted);
  f.apply(DeregisterCommand{"default", "a", first.lease.incarnation, Proof::trusted()});
  const std::uint64_t left_at = f.registry.revision("default");
  const Outcome moved = f.apply(RegisterCommand{other, 0, Proof::trusted()});
  REQUIRE(moved.status.ok());
  f.apply(DeregisterCommand{"other", "a", moved.lease.incarnation, Proof::trusted()});
  const Outcome back = f.enroll("a", 1);
  REQUIRE(back.status.ok());
  CHECK(back.lease.revision > left_at);
  CHECK(f.registry.changes("default", first.lease.revision).resync);
}

TEST_CASE("slices have the names in order and go on where the one before ended") {
  Fixture f;
  for (const char* name : {"c", "a", "b", "d"}) f.enroll(name, 1);
  const auto names = [](const PeerSlice& slice) {
    std::string out;
    for (const PeerView& peer : slice.peers) {
      CHECK(peer.expires_in == 15s);
      out += peer.info->name;
    }
    return out;
  };
  const PeerSlice first = f.registry.slice("default", "", 2);
  CHECK(names(first) == "ab");
  REQUIRE(first.next == "b");
  const PeerSlice second = f.registry.slice("default", *first.next, 2);
  CHECK(names(second) == "cd");
  CHECK_FALSE(second.next);
  CHECK(f.registry.slice("default", "d", 2).peers.empty());
  CHECK(f.registry.slice("other", "", 2).peers.empty());
}

TEST_CASE("slices of wanted links have the names in order and go on where the one before ended") {
  Fixture f;
  for (const char* name : {"c", "a", "b"}) f.apply(SetLinksCommand{"default", name, {"x"}, Proof::trusted()});
  const LinkSlice first = f.registry.link_slice("default", "", 2);
  REQUIRE(first.peers.size() == 2);
  CHECK(first.peers[1].name == "b");
  CHECK(*first.peers[1].targets == std::vector<std::string>{"x"});
  REQUIRE(first.next == "b");
  const LinkSlice second = f.registry.link_slice("default", *first.next, 2);
  REQUIRE(second.peers.size() == 1);
  CHECK(second.peers[0].name == "c");
  CHECK_FALSE(second.next);
}

}  // namespace
}  // namespace slime::ctrl::registry_test
