#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "cache/checksum.h"
#include "tests/cache/service_driver.h"

namespace slime::cache {
namespace {

using namespace std::chrono_literals;

struct Fixture {
  explicit Fixture(bool verify = false) : driver({.arena_bytes = 1 << 20}, verify, arena, clock) {}

  Result<wire::ReserveReply> reserve(std::vector<wire::ReserveItem> items, bool replace = false,
                                     std::uint64_t ttl_ns = 0) {
    return driver.call<wire::ReserveReply>(1, "reserve",
                                           wire::ReserveRequest{"ns", replace, ttl_ns, std::move(items)});
  }
  // Writes as a client would, by the extents that it was told.
  void write(const wire::Reserved& reserved, Bytes bytes) {
    const auto extents = wire::unpack_extents(reserved.extents, bytes.size(), arena.size());
    REQUIRE(extents.has_value());
    for (const Extent& extent : *extents) {
      std::copy_n(bytes.begin(), extent.length, arena.begin() + static_cast<std::ptrdiff_t>(extent.offset));
      bytes = bytes.subspan(extent.length);
    }
  }
  Result<wire::Outcomes> seal(std::vector<wire::SealItem> items) {
    return driver.call<wire::Outcomes>(1, "seal", items);
  }
  Result<wire::LookupReply> lookup(wire::Keys keys) {
    return driver.call<wire::LookupReply>(2, "lookup", std::string("ns"), keys);
  }

  ManualClock clock;
  ByteVector arena = ByteVector(1 << 20);
  ServiceDriver driver;
};

Code code(const wire::Outcome& outcome) { return outcome.status().code(); }

TEST_CASE("a batch answers for each object by itself") {
  Fixture f;
  const auto reserved = f.reserve({{"a", 10}, {"", 10}, {"b", 5000}, {"huge", 2 << 20}});
  REQUIRE(reserved.has_value());
  REQUIRE(reserved->items.size() == 4);
  CHECK(reserved->ttl_ns == static_cast<std::uint64_t>(Nanos(limits::kReservationTtl).count()));
  CHECK(code(reserved->items[0].outcome) == Code::kOk);
  CHECK(code(reserved->items[1].outcome) == Code::kInvalidArgument);
  CHECK(code(reserved->items[2].outcome) == Code::kOk);
  CHECK(code(reserved->items[3].outcome) == Code::kInvalidArgument);
  const auto sealed = f.seal({{reserved->items[2].version, 77}, {12345, 0}});
  REQUIRE(sealed.has_value());
  CHECK(code((*sealed)[0]) == Code::kOk);
  CHECK(code((*sealed)[1]) == Code::kNotFound);
  const auto found = f.lookup({"a", "b"});
  REQUIRE(found.has_value());
  CHECK(code(found->items[0].outcome) == Code::kNotFound);  // reserved, not sealed
  CHECK(code(found->items[1].outcome) == Code::kOk);
  CHECK(found->items[1].checksum == 77);
  CHECK(found->items[1].extents == reserved->items[2].extents);
  CHECK(found->ttl_ns == static_cast<std::uint64_t>(Nanos(limits::kLeaseTtl).count()));
  const auto aborted = f.driver.call<wire::Outcomes>(1, "abort", wire::Ids{reserved->items[0].version, 99});
  CHECK(code((*aborted)[0]) == Code::kOk);
  CHECK(code((*aborted)[1]) == Code::kNotFound);
}

TEST_CASE("a batch tells of each object how long its own lease lasts") {
  constexpr std::uint64_t kLarge = limits::kSlowestBytesPerSecond;
  ManualClock clock;
  const ByteVector arena(kLarge + (4 << 20));
  ServiceDriver driver({.arena_bytes = arena.size()}, false, arena, clock);
  const std::vector<wire::ReserveItem> items{{"small", 10}, {"large", kLarge}, {"last", 10}};
  const auto reserved =
      driver.call<wire::ReserveReply>(1, "reserve", wire::ReserveRequest{"ns", false, 0, items});
  REQUIRE(reserved.has_value());
  CHECK(reserved->ttl_ns == static_cast<std::uint64_t>(Nanos(limits::kReservationTtl).count()));
  std::vector<wire::SealItem> seals;
  for (const wire::Reserved& one : reserved->items) seals.push_back({one.version, 0});
  REQUIRE(driver.call<wire::Outcomes>(1, "seal", seals).has_value());
  const auto found =
      driver.call<wire::LookupReply>(2, "lookup", std::string("ns"), wire::Keys{"small", "large", "last"});
  REQUIRE(found.has_value());
  const Nanos small = limits::kLeaseTtl;
  const Nanos large = limits::kLeaseTtl + 1s;
  CHECK(found->items[0].ttl_ns == static_cast<std::uint64_t>(small.count()));
  CHECK(found->items[1].ttl_ns == static_cast<std::uint64_t>(large.count()));
  CHECK(found->items[2].ttl_ns == static_cast<std::uint64_t>(small.count()));
  CHECK(found->ttl_ns == found->items[0].ttl_ns);
  clock.advance(small);
  CHECK(driver.cache->stats().leases == 1);
  CHECK_FALSE(wire::lease_holds(found->items[0], found->ttl_ns, small));
  CHECK(wire::lease_holds(found->items[1], found->ttl_ns, small));
  CHECK_FALSE(wire::lease_holds(found->items[1], found->ttl_ns, large));
}

// A lookup result of an older server, which sends no time to live per lease.
struct FoundBefore {
  wire::Outcome outcome;
  std::uint64_t version = 1;
  std::uint64_t length = 2;
  std::uint64_t checksum = 3;
  bool pinned = false;
  std::uint64_t lease = 4;
  ByteVector extents;
  MSGPACK_DEFINE(outcome, version, length, checksum, pinned, lease, extents)
};

TEST_CASE("a server that tells one time for a whole batch is understood, and understands") {
  const auto now = rpc::decode_value<wire::Found>(rpc::encode_value(FoundBefore()));
  REQUIRE_MESSAGE(now.has_value(), now.status().to_string());
  CHECK(now->lease == 4);
  CHECK(wire::lease_holds(*now, 100, Nanos(98)));
  CHECK_FALSE(wire::lease_holds(*now, 100, Nanos(99)));
  wire::Found told;
  told.lease = 5;
  told.ttl_ns = 100;
  const auto before = rpc::decode_value<FoundBefore>(rpc::encode_value(told));
  REQUIRE_MESSAGE(before.has_value(), before.status().to_string());
  CHECK(before->lease == 5);
}

TEST_CASE("a call belongs to the connection it came over") {
  Fixture f;
  const auto reserved = f.reserve({{"a", 10}});
  REQUIRE(reserved.has_value());
  const wire::SealItem item{reserved->items[0].version, 0};
  const auto stranger = f.driver.call<wire::Outcomes>(3, "seal", std::vector{item});
  CHECK(code(stranger->front()) == Code::kNotFound);
  REQUIRE(code(f.seal({item})->front()) == Code::kOk);
  const auto found = f.lookup({"a"});
  const wire::Ids leases{found->items[0].lease};
  CHECK(code(f.driver.call<wire::Outcomes>(3, "release", leases)->front()) == Code::kNotFound);
  f.driver.cache->client_gone(2);
  CHECK(code(f.driver.call<wire::Outcomes>(2, "release", leases)->front()) == Code::kNotFound);
  CHECK(f.driver.cache->stats().clients == 0);
}

TEST_CASE("objects are looked at, pinned and removed by name") {
  Fixture f;
  const auto reserved = f.reserve({{"a", 10}}, false, Nanos(5s).count());
  REQUIRE(code(f.seal({{reserved->items[0].version, 3}})->front()) == Code::kOk);
  const std::string space = "ns";
  const wire::Keys keys{"a", "b"};
  const auto pinned = f.driver.call<wire::Outcomes>(5, "pin", space, keys);
  CHECK(code((*pinned)[0]) == Code::kOk);
  CHECK(code((*pinned)[1]) == Code::kNotFound);
  const auto seen = f.driver.call<std::vector<wire::Found>>(5, "peek", space, keys);
  CHECK((*seen)[0].pinned);
  CHECK((*seen)[0].length == 10);
  CHECK((*seen)[0].lease == 0);
  CHECK(code((*seen)[1].outcome) == Code::kNotFound);
  CHECK(code(f.driver.call<wire::Outcomes>(5, "unpin", space, keys)->front()) == Code::kOk);
  CHECK_FALSE(f.driver.call<std::vector<wire::Found>>(5, "peek", space, keys)->front().pinned);
  CHECK(code(f.driver.call<wire::Outcomes>(5, "remove", space, keys)->front()) == Code::kOk);
  CHECK(code(f.driver.call<wire::Outcomes>(5, "remove", space, keys)->front()) == Code::kNotFound);
}

TEST_CASE("too many objects in one call, and times beyond reason, are refused") {
  Fixture f;
  CHECK(f.lookup(wire::Keys(limits::kBatchObjects + 1, "k")).status().code() == Code::kInvalidArgument);
  CHECK(f.lookup(wire::Keys(limits::kBatchObjects, "k")).has_value());
  CHECK(f.seal(std::vector<wire::SealItem>(limits::kBatchObjects + 1)).status().code() ==
        Code::kInvalidArgument);
  CHECK(f.reserve({{"a", 1}}, false, UINT64_MAX).status().code() == Code::kInvalidArgument);
  CHECK(f.driver.call_raw("lookup", ByteVector(3, std::byte{0xc1}), 1).status().code() ==
        Code::kInvalidArgument);
}

TEST_CASE("a verifying cache refuses bytes that are not those of the checksum") {
  ByteVector bytes(300'000);
  Rng(1).fill(bytes);
  for (const bool verify : {true, false}) {
    CAPTURE(verify);
    Fixture f(verify);
    const auto reserved = f.reserve({{"good", bytes.size()}, {"bad", bytes.size()}});
    REQUIRE(reserved.has_value());
    const auto& [good, bad] = std::tie(reserved->items[0], reserved->items[1]);
    f.write(good, bytes);
    f.write(bad, bytes);
    const std::uint64_t wrong = checksum("ns", "other", bad.version, bytes);
    const auto sealed =
        f.seal({{good.version, checksum("ns", "good", good.version, bytes)}, {bad.version, wrong}});
    REQUIRE(sealed.has_value());
    CHECK(code((*sealed)[0]) == Code::kOk);
    CHECK(code((*sealed)[1]) == (verify ? Code::kCorrupt : Code::kOk));
    CHECK(f.driver.cache->stats().objects == (verify ? 1 : 2));
    CHECK(f.driver.cache->stats().reservations == 0);
  }
}

TEST_CASE("a closed cache answers that it is not available") {
  Fixture f;
  f.driver.cache->close();
  f.driver.cache->close();
  CHECK(f.lookup({"a"}).status().code() == Code::kUnavailable);
  CHECK(f.reserve({{"a", 1}}).status().code() == Code::kUnavailable);
  CHECK(f.seal({{1, 1}}).status().code() == Code::kUnavailable);
}

TEST_CASE("statistics travel by name, and as JSON") {
  Fixture f;
  const auto reserved = f.reserve({{"a", 10}});
  REQUIRE(code(f.seal({{reserved->items[0].version, 3}})->front()) == Code::kOk);
  const auto body = f.driver.call<wire::Stats>(1, "stats");
  REQUIRE(body.has_value());
  const StoreStats stats = body->stats();
  CHECK(stats.objects == 1);
  CHECK(stats.object_bytes == 10);
  CHECK(stats.sealed == 1);
  REQUIRE(stats.classes.size() == 7);
  CHECK(stats.classes[0].slab_bytes == 4096);
  CHECK(stats.classes[0].used == 1);
  CHECK(to_json(stats) == to_json(f.driver.cache->stats()));
  CHECK(to_json(stats).find("\"objects\": 1, \"object_bytes\": 10,") != std::string::npos);
  CHECK(to_json(stats).find("\"classes\": [{\"slab_bytes\": 4096, \"used\": 1, ") != std::string::npos);
}

TEST_CASE("extents that do not make up the object or leave the arena are not believed") {
  const auto unpack = [](std::vector<Extent> extents, std::uint64_t length) {
    return wire::unpack_extents(wire::pack_extents(extents), length, 1000).has_value();
  };
  CHECK(unpack({}, 0));
  CHECK(unpack({{0, 600}, {900, 100}}, 700));
  CHECK_FALSE(unpack({{0, 600}, {900, 100}}, 701));
  CHECK_FALSE(unpack({{0, 600}, {900, 100}}, 699));
  CHECK_FALSE(unpack({{900, 101}}, 101));
  CHECK_FALSE(unpack({{UINT64_MAX, 2}}, 2));
  CHECK_FALSE(unpack({{2, UINT64_MAX}, {0, 3}}, 2));
  CHECK_FALSE(unpack({{0, 0}}, 0));
  CHECK_FALSE(wire::unpack_extents(ByteVector(17), 0, 1000).has_value());
}

}  // namespace
}  // namespace slime::cache
