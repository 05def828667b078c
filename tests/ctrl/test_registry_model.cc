#include <doctest/doctest.h>

#include <map>
#include <optional>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/records.h"
#include "tests/ctrl/random_commands.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::registry_model_test {
namespace {

using namespace std::chrono_literals;
using test::registration;

constexpr Nanos kTtl = 10s;

// The rules of a name, in the simplest form.
struct Model {
  struct Holder {
    std::uint8_t instance;
    std::uint64_t incarnation;
    TimePoint expires_at;
    char session;
  };
  std::map<std::string, Holder> held;

  void expire(TimePoint now) {
    std::erase_if(held, [now](const auto& entry) { return entry.second.expires_at <= now; });
  }
};

void check_same(const Model& model, const Registry& registry) {
  REQUIRE(registry.peer_count() == model.held.size());
  for (const auto& [name, holder] : model.held) {
    const std::optional<PeerInfo> peer = registry.find("default", name);
    REQUIRE(peer);
    REQUIRE(peer->incarnation == holder.incarnation);
    REQUIRE(peer->instance == test::instance(holder.instance));
  }
}

// Applies events to a set of names, as a watcher does, and compares the set.
class Watcher {
 public:
  explicit Watcher(std::uint64_t since) : since_(since) {}
  void follow(const Registry& registry, const Model& model) {
    while (true) {
      const Changes changes = registry.changes("default", since_, 3);
      REQUIRE_FALSE(changes.resync);
      for (const Event& event : changes.events) {
        REQUIRE(event.revision == ++since_);
        if (event.kind == EventKind::kRegistered) {
          REQUIRE(names_.emplace(event.name, event.incarnation).second);
        } else if (event.kind != EventKind::kUpdated) {
          REQUIRE(names_.at(event.name) == event.incarnation);
          names_.erase(event.name);
        }
      }
      REQUIRE(changes.revision == since_);
      if (!changes.more) break;
    }
    REQUIRE(names_.size() == model.held.size());
  }

 private:
  std::uint64_t since_;
  std::map<std::string, std::uint64_t> names_;
};

class Run {
 public:
  explicit Run(std::uint64_t seed) : rng_(seed), registry_({.ttl = kTtl, .epoch = 500}), watcher_(500) {}

  void step() {
    clock_.advance(std::chrono::milliseconds(rng_.below(1500)));
    model_.expire(clock_.now());
    const std::string name(1, static_cast<char>('a' + rng_.below(4)));
    switch (rng_.below(5)) {
      case 0:
      case 1:
        enroll(name);
        break;
      case 2:
        beat(name);
        break;
      case 3:
        deregister(name);
        break;
      default:
        registry_.apply(TickCommand{}, clock_.now());
    }
    check_same(model_, registry_);
    REQUIRE(registry_.next_expiry() > clock_.now());
    if (rng_.chance(1, 8)) watcher_.follow(registry_, model_);
  }

 private:
  // Returns sometimes an incarnation of an earlier owner.
  std::uint64_t guess(const std::string& name) {
    const auto it = model_.held.find(name);
    if (it != model_.held.end() && !rng_.chance(1, 4)) return it->second.incarnation;
    return 501 + rng_.below(last_ - 499);
  }
  // Returns mostly the holder's session.
  char guess_session(const std::string& name) {
    const auto it = model_.held.find(name);
    if (it != model_.held.end() && !rng_.chance(1, 4)) return it->second.session;
    return static_cast<char>('a' + rng_.below(2));
  }
  static Proof proof(char session) {
    return {Proof::Kind::kSession, {std::string(2 * limits::kSessionBytes, session), {}}};
  }
  Code expected(const std::string& name, std::uint64_t incarnation, char session) const {
    const auto it = model_.held.find(name);
    if (it == model_.held.end()) return Code::kNotFound;
    if (it->second.incarnation != incarnation) return Code::kAborted;
    return it->second.session == session ? Code::kOk : Code::kPermissionDenied;
  }
  void enroll(const std::string& name) {
    const auto number = static_cast<std::uint8_t>(1 + rng_.below(3));
    const std::uint64_t takes_over = rng_.chance(1, 3) ? guess(name) : 0;
    const char session = guess_session(name);
    const Outcome out = registry_.apply(
        RegisterCommand{registration(name, number), takes_over, proof(session)}, clock_.now());
    const auto it = model_.held.find(name);
    if (it != model_.held.end() && it->second.instance == number && it->second.session == session) {
      REQUIRE(out.status.ok());
      REQUIRE(out.lease.incarnation == it->second.incarnation);
      it->second.expires_at = clock_.now() + kTtl;
    } else if (it != model_.held.end() && it->second.incarnation != takes_over) {
      REQUIRE(out.status.code() == Code::kAlreadyExists);
      REQUIRE(out.holder->incarnation == it->second.incarnation);
    } else {
      REQUIRE(out.status.ok());
      REQUIRE(out.lease.incarnation > last_);
      last_ = out.lease.incarnation;
      model_.held[name] = {number, last_, clock_.now() + kTtl, session};
    }
  }
  void beat(const std::string& name) {
    const std::uint64_t incarnation = guess(name);
    const char session = guess_session(name);
    const Outcome out =
        registry_.apply(HeartbeatCommand{"default", name, incarnation, proof(session)}, clock_.now());
    REQUIRE(out.status.code() == expected(name, incarnation, session));
    if (out.status.ok()) model_.held[name].expires_at = clock_.now() + kTtl;
  }
  void deregister(const std::string& name) {
    const std::uint64_t incarnation = guess(name);
    const char session = guess_session(name);
    const Outcome out =
        registry_.apply(DeregisterCommand{"default", name, incarnation, proof(session)}, clock_.now());
    REQUIRE(out.status.code() == expected(name, incarnation, session));
    if (out.status.ok()) model_.held.erase(name);
  }

  Rng rng_;
  ManualClock clock_;
  Registry registry_;
  Model model_;
  Watcher watcher_;
  std::uint64_t last_ = 500;
};

TEST_CASE("random commands at random times do what the plain model does") {
  std::uint64_t base_seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&base_seed, 1)));
  MESSAGE("base seed ", base_seed);
  for (std::uint64_t i = 0; i < 30; ++i) {
    CAPTURE(base_seed + i);
    Run run(base_seed + i);
    for (int step = 0; step < 400; ++step) run.step();
  }
}

// Runs the same random commands on two registries, one of which is restored from its own records
// now and then.
class Twins {
 public:
  explicit Twins(std::uint64_t seed) : rng_(seed) {}

  void step() {
    clock_.advance(std::chrono::milliseconds(rng_.below(1500)));
    if (rng_.chance(1, 10)) restore();
    const Command command = random_command();
    const Outcome a = original_.apply(command, clock_.now());
    const Outcome b = restored_.apply(command, clock_.now());
    REQUIRE(a.status.to_string() == b.status.to_string());
    REQUIRE(a.touched == b.touched);
    REQUIRE(a.events.size() == b.events.size());
    for (std::size_t i = 0; i < a.events.size(); ++i) {
      REQUIRE(a.events[i].event == b.events[i].event);
      REQUIRE(a.events[i].token_id == b.events[i].token_id);
    }
    REQUIRE(a.lease.incarnation == b.lease.incarnation);
    REQUIRE(a.lease.revision == b.lease.revision);
    if (a.status.ok() && std::holds_alternative<RegisterCommand>(command)) granted_ = a.lease.incarnation;
    const std::vector<Record> records = encode_records(original_);
    const std::vector<Record> twin = encode_records(restored_);
    REQUIRE(records.size() == twin.size());
    for (std::size_t i = 0; i < records.size(); ++i) REQUIRE(records[i].value == twin[i].value);
  }

 private:
  void restore() {
    // Registries keep the time of their last command; times left of leases are relative to it.
    original_.apply(TickCommand{}, clock_.now());
    restored_.apply(TickCommand{}, clock_.now());
    Result<RegistryState> state = decode_records(encode_records(restored_));
    REQUIRE(state);
    Result<Registry> made = Registry::restore(restored_.options(), std::move(*state), clock_.now());
    REQUIRE(made);
    restored_ = std::move(*made);
  }
  Command random_command() {
    Registration peer = registration(std::string(1, static_cast<char>('a' + rng_.below(4))),
                                     static_cast<std::uint8_t>(1 + rng_.below(2)));
    peer.scope = rng_.chance(1, 2) ? "one" : str("scope-", rng_.below(5));
    switch (rng_.below(7)) {
      case 6:
        return SetLinksCommand{
            peer.scope, peer.name,
            rng_.chance(1, 2) ? std::vector<std::string>{"x", "y"} : std::vector<std::string>{},
            test::random_proof(rng_)};
      case 0:
        return HeartbeatCommand{peer.scope, peer.name, granted_, test::random_proof(rng_)};
      case 1:
        return DeregisterCommand{peer.scope, peer.name, granted_, test::random_proof(rng_)};
      case 2:
        return UpdateServicesCommand{peer.scope,
                                     peer.name,
                                     granted_,
                                     false,
                                     {{"calc", "math", {"add"}}},
                                     {},
                                     test::random_proof(rng_)};
      case 3:
        return rng_.chance(1, 8) ? Command(RestartCommand{500 + rng_.below(100'000)})
                                 : Command(TickCommand{});
      default:
        return RegisterCommand{std::move(peer), rng_.chance(1, 4) ? granted_ : 0, test::random_proof(rng_)};
    }
  }

  static constexpr RegistryOptions kOptions{.ttl = kTtl, .epoch = 500, .scopes_max = 3};
  Rng rng_;
  ManualClock clock_;
  Registry original_{kOptions};
  Registry restored_{kOptions};
  std::uint64_t granted_ = 500;
};

TEST_CASE("a registry that is made from its records goes on as the one that they are of") {
  std::uint64_t base_seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&base_seed, 1)));
  MESSAGE("base seed ", base_seed);
  for (std::uint64_t i = 0; i < 20; ++i) {
    CAPTURE(base_seed + i);
    Twins twins(base_seed + i);
    for (int step = 0; step < 400; ++step) twins.step();
  }
}

// Two instances and one name: every sequence of six of these commands keeps the rules.
TEST_CASE("all short sequences on one name") {
  constexpr int kCommands = 7;
  constexpr int kLength = 6;
  int total = 1;
  for (int i = 0; i < kLength; ++i) total *= kCommands;
  for (int sequence = 0; sequence < total; ++sequence) {
    Registry registry({.ttl = kTtl, .epoch = 1});
    ManualClock clock;
    std::uint64_t granted[2] = {0, 0};  // the newest incarnation of each instance
    std::uint64_t newest = 1;
    int rest = sequence;
    for (int i = 0; i < kLength; ++i, rest /= kCommands) {
      const int command = rest % kCommands;
      const auto index = static_cast<std::uint8_t>(command % 2);
      Outcome out;
      if (command < 2) {
        out = registry.apply(
            RegisterCommand{registration("a", static_cast<std::uint8_t>(index + 1)), 0, Proof::trusted()},
            clock.now());
        if (out.status.ok() && out.lease.incarnation != granted[index]) {
          REQUIRE(out.lease.incarnation > newest);
          newest = granted[index] = out.lease.incarnation;
        }
      } else if (command < 4) {
        out = registry.apply(HeartbeatCommand{"default", "a", granted[index], Proof::trusted()}, clock.now());
      } else if (command < 6) {
        out =
            registry.apply(DeregisterCommand{"default", "a", granted[index], Proof::trusted()}, clock.now());
      } else {
        clock.advance(kTtl / 2);
        out = registry.apply(TickCommand{}, clock.now());
      }
      const std::optional<PeerInfo> peer = registry.find("default", "a");
      // The holder of the name has the newest incarnation: an older one never gets the name back.
      if (peer) REQUIRE(peer->incarnation == newest);
      if (out.status.code() == Code::kAborted) REQUIRE(peer);
      if (out.status.code() == Code::kNotFound) REQUIRE_FALSE(peer);
    }
  }
}

}  // namespace
}  // namespace slime::ctrl::registry_model_test
