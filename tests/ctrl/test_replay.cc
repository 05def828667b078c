#include <doctest/doctest.h>

#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/replay.h"
#include "tests/ctrl/random_commands.h"
#include "tests/ctrl/samples.h"
#include "tests/support/settings.h"

// The log that several nanoctrl share, without a store.
namespace slime::ctrl::replay_test {
namespace {

using namespace std::chrono_literals;
using test::registration;

constexpr Nanos kTtl = 15s;
constexpr std::uint64_t kStart = 1'700'000'000'000;
constexpr RegistryOptions kOptions{.ttl = kTtl, .epoch = 500};

// A registry that follows a log whose times the test chooses.
struct Follower {
  Outcome at(std::uint64_t ms, const Command& command) {
    return replay.apply(registry, {kStart + ms, ++sequence}, command);
  }
  // Appends ticks, as some nanoctrl would, up to that time.
  void tick_until(std::uint64_t ms) {
    for (std::uint64_t t = replay.at().ms - kStart + 1000; t < ms; t += 1000) at(t, TickCommand{});
    at(ms, TickCommand{});
  }
  [[nodiscard]] std::optional<PeerInfo> find(const std::string& name) const {
    return registry.find("default", name);
  }
  Registry registry{kOptions};
  Replay replay;
  std::uint64_t sequence = 0;
};

TEST_CASE("a lease ends by the times of the entries") {
  Follower follower;
  follower.at(0, RegisterCommand{registration("a", 1), 0, Proof::trusted()});
  follower.tick_until(14'999);
  CHECK(follower.find("a"));
  const Outcome out = follower.at(15'000, TickCommand{});
  REQUIRE(out.events.size() == 1);
  CHECK(out.events[0].event.kind == EventKind::kExpired);
  CHECK_FALSE(follower.find("a"));
}

TEST_CASE("time in which no engine could append does not shorten a lease") {
  Follower follower;
  follower.at(0, RegisterCommand{registration("a", 1), 0, Proof::trusted()});
  follower.tick_until(14'000);
  const std::uint64_t pause = 14'001 + static_cast<std::uint64_t>(idle_limit(kTtl) / 1ms);
  // Long past the lease's end. The pause does not count, and the lease has a full TTL after the
  // pause.
  const Outcome out = follower.at(pause, TickCommand{});
  CHECK(out.events.empty());
  REQUIRE(follower.find("a"));
  CHECK(follower.find("a")->expires_in == kTtl);
  follower.tick_until(pause + 14'999);
  CHECK(follower.find("a"));
  follower.tick_until(pause + 15'000);
  CHECK_FALSE(follower.find("a"));
}

TEST_CASE("a pause that is not longer than it may be counts") {
  Follower follower;
  follower.at(0, RegisterCommand{registration("a", 1), 0, Proof::trusted()});
  follower.tick_until(14'000);
  follower.at(14'000 + static_cast<std::uint64_t>(idle_limit(kTtl) / 1ms), TickCommand{});
  CHECK_FALSE(follower.find("a"));
}

TEST_CASE("an engine that can append does so well before a pause would count") {
  for (const Nanos ttl : {Nanos(100ms), Nanos(1s), Nanos(3s), kTtl, Nanos(24h)})
    CHECK(tick_interval(ttl) * 3 <= idle_limit(ttl));
}

TEST_CASE("renewals of many leases renew those that are still held, without events") {
  Follower follower;
  const Lease a = follower.at(0, RegisterCommand{registration("a", 1), 0, Proof::trusted()}).lease;
  const Lease b = follower.at(0, RegisterCommand{registration("b", 2), 0, Proof::trusted()}).lease;
  const RenewCommand renew{{{"default", "a", a.incarnation},
                            {"default", "b", b.incarnation + 7},
                            {"default", "gone", 1},
                            {"nowhere", "a", 1}}};
  follower.tick_until(9'000);
  const Outcome out = follower.at(10'000, renew);
  CHECK(out.status.ok());
  CHECK(out.events.empty());
  CHECK(out.touched.empty());
  follower.tick_until(15'000);
  CHECK(follower.find("a"));
  CHECK_FALSE(follower.find("b"));
  follower.tick_until(25'000);
  CHECK_FALSE(follower.find("a"));
}

TEST_CASE("a renewal of a peer that has a lease of its own length renews that") {
  Follower follower;
  Registration own = registration("a", 1);
  own.ttl = 60s;
  const Lease a = follower.at(0, RegisterCommand{own, 0, Proof::trusted()}).lease;
  CHECK(follower.at(10'000, RenewCommand{{{"default", "a", a.incarnation}}}).status.ok());
  follower.tick_until(69'000);
  CHECK(follower.find("a"));
  follower.tick_until(70'000);
  CHECK_FALSE(follower.find("a"));
}

TEST_CASE("a heartbeat can be judged without renewing") {
  Follower follower;
  const Lease lease = follower.at(0, RegisterCommand{registration("a", 1), 0, Proof::trusted()}).lease;
  follower.tick_until(10'000);
  const Registry& registry = follower.registry;
  const Outcome out = registry.check({"default", "a", lease.incarnation, Proof::trusted()});
  CHECK(out.status.ok());
  CHECK(out.lease.incarnation == lease.incarnation);
  CHECK(out.lease.revision == lease.revision);
  CHECK(registry.check({"default", "a", lease.incarnation - 1, Proof::trusted()}).status.code() ==
        Code::kAborted);
  CHECK(registry.check({"default", "b", lease.incarnation, Proof::trusted()}).status.code() ==
        Code::kNotFound);
  follower.tick_until(15'000);
  CHECK(registry.check({"default", "a", lease.incarnation, Proof::trusted()}).status.code() ==
        Code::kNotFound);
}

Command random_command(Rng& rng, std::uint64_t granted) {
  Registration peer = registration(std::string(1, static_cast<char>('a' + rng.below(6))),
                                   static_cast<std::uint8_t>(1 + rng.below(2)));
  peer.scope = rng.chance(1, 2) ? "one" : str("scope-", rng.below(5));
  peer.metadata = {{"key", std::string(rng.below(3), 'x')}};
  TokenRecord token;
  token.id = std::string(16, static_cast<char>('a' + rng.below(3)));
  token.role = rng.chance(1, 2) ? Role::kAdmin : Role::kJoin;
  token.scope = rng.chance(1, 2) ? "*" : "one";
  token.note = "whose \"it\" is";
  token.secret_sha256 = std::string(64, 'f');
  token.expires_unix_s = rng.below(2);
  switch (rng.below(11)) {
    case 0:
      return SetLinksCommand{
          peer.scope, peer.name,
          rng.chance(1, 3) ? std::vector<std::string>{} : std::vector<std::string>{"x", "y"},
          Proof::trusted()};
    case 1:
      return PutTokenCommand{token, rng.chance(1, 2)};
    case 2:
      return RevokeTokenCommand{token.id, rng.chance(1, 2)};
    case 3:
      return RenewCommand{{{peer.scope, peer.name, granted}, {"one", "a", granted}}};
    case 4:
      return rng.chance(1, 8) ? Command(RestartCommand{500 + rng.below(100'000)}) : Command(TickCommand{});
    default:
      return test::random_peer_command(rng, std::move(peer), granted);
  }
}

bool same_records(const Registry& a, const Registry& b) {
  const std::vector<Record> left = encode_records(a);
  const std::vector<Record> right = encode_records(b);
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const Record& x, const Record& y) { return x.key == y.key && x.value == y.value; });
}

TEST_CASE("decoding the entries, from the start or from a snapshot, gives the registry of their writer") {
  std::uint64_t base_seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&base_seed, 1)));
  MESSAGE("base seed ", base_seed);
  RegistryOptions options = kOptions;
  options.scopes_max = 3;
  const auto runs = static_cast<std::uint64_t>(slime::test::scaled(20));
  for (std::uint64_t i = 0; i < runs; ++i) {
    CAPTURE(base_seed + i);
    Rng rng(base_seed + i);
    Registry writer(options);
    Registry reader(options);
    Replay written;
    Replay read;
    std::uint64_t granted = 500;
    EntryId id{kStart, 0};
    for (int step = 0; step < 400; ++step) {
      id.ms += rng.below(rng.chance(1, 10) ? 8000 : 1500);
      ++id.sequence;
      const Command command = random_command(rng, granted);
      const EncodedEntry entry = encode_entry({"engine", 7, command});
      Result<LogEntry> decoded = decode_entry(entry.head, entry.body);
      REQUIRE(decoded);
      CHECK(decoded->engine == "engine");
      CHECK(decoded->number == 7);
      const Outcome a = written.apply(writer, id, command);
      const Outcome b = read.apply(reader, id, decoded->command);
      REQUIRE(a.status.to_string() == b.status.to_string());
      REQUIRE(a.touched == b.touched);
      REQUIRE(same_records(writer, reader));
      if (a.status.ok() && std::holds_alternative<RegisterCommand>(command)) granted = a.lease.incarnation;
      if (!rng.chance(1, 20)) continue;
      std::vector<Record> records;
      for (const std::string& chunk : encode_chunks(encode_records(reader)))
        REQUIRE(decode_chunk(chunk, records).ok());
      Result<RegistryState> state = decode_records(records);
      REQUIRE(state);
      Result<Registry> restored = Registry::restore(options, std::move(*state), read.at().time());
      REQUIRE(restored);
      reader = std::move(*restored);
    }
    CHECK(written.entries() == 400);
  }
}

Code code_of(std::string_view head, std::string_view body = "") {
  return decode_entry(head, body).status().code();
}

TEST_CASE("an entry that is not exactly as it should be is refused") {
  CHECK(code_of(R"({"engine":"e","number":1,"kind":"tick"})") == Code::kOk);
  CHECK(code_of(R"({"engine":"e","number":1,"kind":"vote"})") == Code::kUnimplemented);
  for (const char* head : {
           "",
           "[]",
           R"({"engine":"e","number":1})",
           R"({"engine":"e","number":-1,"kind":"tick"})",
           R"({"engine":"e","number":1,"kind":"tick","weight":2})",
           R"({"engine":"e","number":1,"kind":"heartbeat","scope":"s","name":"n"})",
           R"({"engine":"e","number":1,"kind":"restart","epoch":9007199254740992})",
           R"({"engine":"e","number":1,"kind":"renew"})",
       }) {
    CAPTURE(head);
    CHECK(code_of(head) == Code::kCorrupt);
  }
  const char* const tick = R"({"engine":"e","number":1,"kind":"tick"})";
  const char* const renew = R"({"engine":"e","number":1,"kind":"renew"})";
  CHECK(code_of(tick, "{}") == Code::kCorrupt);
  CHECK(code_of(renew, R"({"peers":[["s","n",1]]})") == Code::kOk);
  CHECK(code_of(renew, R"({"peers":[["s","n"]]})") == Code::kCorrupt);
  CHECK(code_of(renew, R"({"peers":[["s","n",-1]]})") == Code::kCorrupt);
  CHECK(code_of(renew, R"({"peers":[],"more":1})") == Code::kCorrupt);
  CHECK(code_of(R"({"engine":"e","number":1,"kind":"register","takes_over":0})", R"({"name":"a"})") ==
        Code::kCorrupt);
  CHECK(code_of(tick, std::string(kEntryBytes, ' ')) == Code::kCorrupt);
}

TEST_CASE("an entry's id is read exactly") {
  const std::optional<EntryId> id = EntryId::parse("1700000000000-12");
  REQUIRE(id);
  CHECK(id->ms == 1'700'000'000'000);
  CHECK(id->sequence == 12);
  CHECK(id->to_string() == "1700000000000-12");
  for (const char* text : {"", "-", "1", "1-", "-1", "a-1", "1-1x", " 1-1", "99999999999999-0"})
    CHECK_FALSE(EntryId::parse(text));
}

TEST_CASE("a large registry is in several pieces") {
  std::vector<Record> records(5);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].key = {Table::kPeer, "s", str("n", i)};
    records[i].value.assign(700'000, 'x');
  }
  const std::vector<std::string> chunks = encode_chunks(records);
  CHECK(chunks.size() == 3);
  std::vector<Record> decoded;
  for (const std::string& chunk : chunks) REQUIRE(decode_chunk(chunk, decoded).ok());
  REQUIRE(decoded.size() == records.size());
  CHECK(decoded[4].key == records[4].key);
  CHECK(decoded[4].value == records[4].value);
  for (const char* chunk : {"", "{}", R"({"records":[1]})", R"({"records":[["peer","s","n"]]})",
                            R"({"records":[["pear","s","n",""]]})", R"({"records":[["peer","s","n",1]]})"})
    CHECK(decode_chunk(chunk, decoded).code() == Code::kCorrupt);
}

TEST_CASE("numbers that went back are noticed") {
  const RegistryState before{1, 100, 50, {{"s", 70}}, {}};
  CHECK(largest_number(before) == 100);
  CHECK_FALSE(went_back(before, before));
  CHECK_FALSE(went_back(before, {1, 100, 70, {}, {}}));  // the scope was removed to make room
  CHECK(went_back(before, {1, 99, 50, {{"s", 70}}, {}}));
  CHECK(went_back(before, {1, 100, 50, {{"s", 69}}, {}}));
  CHECK(went_back(before, {1, 100, 50, {}, {}}));
  CHECK(goes_on_from({1, 100, 100, {{"s", 100}}, {}}, 100));
  CHECK_FALSE(goes_on_from({1, 100, 100, {{"s", 99}}, {}}, 100));
  CHECK_FALSE(goes_on_from({1, 100, 99, {}, {}}, 100));
}

}  // namespace
}  // namespace slime::ctrl::replay_test
