#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/store.h"

namespace slime::cache::store_test {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kKib = 1024;
constexpr ClientId kWriter{1};
constexpr ClientId kReader{2};

// A store of 1 MiB without watermarks, its clock, and the calls of the tests in short.
struct Fixture {
  explicit Fixture(StoreOptions changed = {}) : options(with_defaults(changed)), store(options) {}
  static StoreOptions with_defaults(StoreOptions options) {
    if (options.arena_bytes == 0) options.arena_bytes = 1024 * kKib;
    if (options.high_percent == limits::kHighPercent) options.high_percent = options.low_percent = 100;
    return options;
  }
  Result<Reservation> reserve(const std::string& key, std::uint64_t length, ReserveOptions how = {},
                              ClientId client = kWriter) {
    return store.reserve("ns", key, length, how, client, clock.now());
  }
  Status seal(std::uint64_t version, ClientId client = kWriter) {
    return store.seal(version, version * 3, client, clock.now());
  }
  std::uint64_t put(const std::string& key, std::uint64_t length, ReserveOptions how = {}) {
    const auto reservation = reserve(key, length, how);
    REQUIRE(reservation.has_value());
    REQUIRE(seal(reservation->version).ok());
    return reservation->version;
  }
  Result<Manifest> lookup(const std::string& key, ClientId client = kReader) {
    return store.lookup("ns", key, client, clock.now());
  }
  Status release(std::uint64_t lease, ClientId client = kReader) {
    return store.release(lease, client, clock.now());
  }
  bool has(const std::string& key) { return store.peek("ns", key, clock.now()).has_value(); }
  StoreStats stats() { return store.stats(clock.now()); }

  ManualClock clock;
  StoreOptions options;
  Store store;
};

TEST_CASE("an object is seen from its seal on, with what the writer said of it") {
  Fixture f;
  const auto reservation = f.reserve("a", 300 * kKib);
  REQUIRE(reservation.has_value());
  CHECK(f.lookup("a").status().code() == Code::kNotFound);
  CHECK(f.stats().reservations == 1);
  CHECK(f.seal(reservation->version).ok());

  const auto manifest = f.lookup("a");
  REQUIRE(manifest.has_value());
  CHECK(manifest->object.version == reservation->version);
  CHECK(manifest->object.length == 300 * kKib);
  CHECK(manifest->object.checksum == reservation->version * 3);
  CHECK(manifest->extents == reservation->extents);
  CHECK(manifest->lease_ttl == f.options.lease_ttl);
  const StoreStats stats = f.stats();
  CHECK(stats.objects == 1);
  CHECK(stats.object_bytes == 300 * kKib);
  CHECK(stats.hits == 1);
  CHECK(stats.misses == 1);
  CHECK(stats.leases == 1);
  CHECK(f.release(manifest->lease).ok());
  CHECK(f.stats().leases == 0);
}

TEST_CASE("extents add up to the object, and neighbours are one") {
  Fixture f;
  const auto large = f.reserve("large", 700 * kKib + 5);
  REQUIRE(large.has_value());
  CHECK(large->extents == std::vector<Extent>{{0, 700 * kKib + 5}});
  const auto empty = f.reserve("empty", 0);
  REQUIRE(empty.has_value());
  CHECK(empty->extents.empty());
  CHECK(f.seal(empty->version).ok());
  CHECK(f.lookup("empty")->object.length == 0);
}

TEST_CASE("namespace and key are two things") {
  Fixture f;
  const auto reservation = f.store.reserve("a", "bc", 10, {}, kWriter, f.clock.now());
  REQUIRE(f.seal(reservation->version).ok());
  CHECK(f.store.peek("a", "bc", f.clock.now()).has_value());
  CHECK(f.store.peek("ab", "c", f.clock.now()).status().code() == Code::kNotFound);
  CHECK(f.store.peek("", "abc", f.clock.now()).status().code() == Code::kNotFound);
}

TEST_CASE("bad names and lengths are refused") {
  Fixture f;
  CHECK(f.reserve("", 1).status().code() == Code::kInvalidArgument);
  CHECK(f.reserve(std::string(limits::kKeyBytes + 1, 'k'), 1).status().code() == Code::kInvalidArgument);
  CHECK(f.reserve(std::string(limits::kKeyBytes, 'k'), 1).has_value());
  CHECK(f.store.reserve(std::string(256, 'n'), "k", 1, {}, kWriter, f.clock.now()).status().code() ==
        Code::kInvalidArgument);
  CHECK(f.reserve("k", 1024 * kKib + 1).status().code() == Code::kInvalidArgument);
  CHECK(f.reserve("k", UINT64_MAX).status().code() == Code::kInvalidArgument);
  CHECK(f.reserve("k", 1, {.ttl = -1s}).status().code() == Code::kInvalidArgument);
  CHECK(f.stats().refused == 0);
}

TEST_CASE("options that make no sense are refused") {
  StoreOptions good{.arena_bytes = 1 << 20};
  CHECK(good.validate().ok());
  const auto refused = [&](auto change) {
    StoreOptions options = good;
    change(options);
    return options.validate().code() == Code::kInvalidArgument;
  };
  CHECK(refused([](StoreOptions& o) { o.arena_bytes = 4096; }));
  CHECK(refused([](StoreOptions& o) { o.slab_bytes = 3 << 12; }));
  CHECK(refused([](StoreOptions& o) { o.slab_bytes = 2048; }));
  CHECK(refused([](StoreOptions& o) { o.lease_ttl = 0s; }));
  CHECK(refused([](StoreOptions& o) { o.reservation_ttl = -1s; }));
  CHECK(refused([](StoreOptions& o) { o.low_percent = 99; }));
  CHECK(refused([](StoreOptions& o) { o.high_percent = 101; }));
  CHECK(refused([](StoreOptions& o) { o.leases_per_client = 0; }));
}

TEST_CASE("an existing object is replaced only when asked, and stays readable until the new one is sealed") {
  Fixture f;
  const std::uint64_t first = f.put("a", 10);
  CHECK(f.reserve("a", 20).status().code() == Code::kAlreadyExists);
  const auto second = f.reserve("a", 20, {.replace = true});
  REQUIRE(second.has_value());
  CHECK(f.lookup("a")->object.version == first);
  CHECK(f.seal(second->version).ok());
  CHECK(f.lookup("a")->object.version == second->version);
  CHECK(f.stats().replaced == 1);
  CHECK(f.stats().objects == 1);
}

TEST_CASE("of two writers of one new object the first to seal wins, unless replace was asked") {
  Fixture f;
  const auto slow = f.reserve("a", 10);
  const auto fast = f.reserve("a", 10, {}, kReader);
  const auto replacing = f.reserve("a", 10, {.replace = true});
  CHECK(f.seal(fast->version, kReader).ok());
  CHECK(f.seal(slow->version).code() == Code::kAlreadyExists);
  CHECK(f.lookup("a")->object.version == fast->version);
  CHECK(f.seal(replacing->version).ok());
  CHECK(f.lookup("a")->object.version == replacing->version);
  CHECK(f.stats().reservations == 0);
}

TEST_CASE("a reservation belongs to the client that made it") {
  Fixture f;
  const auto reservation = f.reserve("a", 10);
  CHECK(f.seal(reservation->version, kReader).code() == Code::kNotFound);
  CHECK(f.store.abort(reservation->version, kReader, f.clock.now()).code() == Code::kNotFound);
  CHECK(f.store.reserved(reservation->version, kReader, f.clock.now()).status().code() == Code::kNotFound);
  CHECK(f.store.abort(reservation->version, kWriter, f.clock.now()).ok());
  CHECK(f.seal(reservation->version).code() == Code::kNotFound);
  CHECK(f.stats().free_bytes == f.stats().arena_bytes);
}

TEST_CASE("a lease belongs to the client that it was granted to") {
  Fixture f;
  f.put("a", 10);
  const auto manifest = f.lookup("a");
  CHECK(f.release(manifest->lease, kWriter).code() == Code::kNotFound);
  CHECK(f.release(manifest->lease).ok());
  CHECK(f.release(manifest->lease).code() == Code::kNotFound);
}

TEST_CASE("an expired reservation is quarantined until its writer says that it is over") {
  Fixture f;
  const auto reservation = f.reserve("a", 900 * kKib);
  f.clock.advance(f.options.reservation_ttl);
  const StoreStats stats = f.stats();
  CHECK(stats.expired_reservations == 1);
  CHECK(stats.reservations == 0);
  CHECK(stats.reserved_bytes == 0);
  CHECK(stats.quarantined_bytes >= 900 * kKib);
  CHECK(f.reserve("b", 900 * kKib).status().code() == Code::kResourceExhausted);

  SUBCASE("by a late seal, which fails") {
    CHECK(f.seal(reservation->version).code() == Code::kAborted);
    CHECK_FALSE(f.has("a"));
  }
  SUBCASE("by an abort") { CHECK(f.store.abort(reservation->version, kWriter, f.clock.now()).ok()); }
  SUBCASE("by the end of its connection") { f.store.client_gone(kWriter, f.clock.now()); }
  CHECK(f.stats().quarantined_bytes == 0);
  CHECK(f.stats().free_bytes == f.stats().arena_bytes);
  CHECK(f.reserve("b", 900 * kKib).has_value());
}

TEST_CASE("a reservation can be sealed until the last moment before it expires") {
  Fixture f;
  const auto reservation = f.reserve("a", 10);
  f.clock.advance(f.options.reservation_ttl - 1ns);
  CHECK(f.seal(reservation->version).ok());
}

TEST_CASE("a removed object is readable under its leases, then freed") {
  Fixture f;
  const std::uint64_t first = f.put("a", 900 * kKib);
  const auto manifest = f.lookup("a");
  const auto second_lease = f.lookup("a", kWriter);
  CHECK(f.store.remove("ns", "a", f.clock.now()).ok());
  CHECK(f.lookup("a").status().code() == Code::kNotFound);
  CHECK(f.store.remove("ns", "a", f.clock.now()).code() == Code::kNotFound);
  CHECK(f.reserve("b", 900 * kKib).status().code() == Code::kResourceExhausted);
  CHECK(manifest->object.version == first);
  CHECK(f.release(manifest->lease).ok());
  CHECK(f.reserve("b", 900 * kKib).status().code() == Code::kResourceExhausted);
  CHECK(f.release(second_lease->lease, kWriter).ok());
  CHECK(f.reserve("b", 900 * kKib).has_value());
}

TEST_CASE("a replaced object that is leased keeps its slabs until the lease is over") {
  Fixture f;
  f.put("a", 400 * kKib);
  const auto manifest = f.lookup("a");
  f.put("a", 400 * kKib, {.replace = true});
  CHECK(f.lookup("a")->object.version != manifest->object.version);
  CHECK(f.lookup("a")->extents != manifest->extents);
  const std::uint64_t before = f.stats().free_bytes;
  CHECK(f.release(manifest->lease).ok());
  CHECK(f.stats().free_bytes == before + 512 * kKib);
}

TEST_CASE("slabs of an expired lease are quarantined once the object is gone") {
  Fixture f;
  f.put("a", 900 * kKib);
  const auto manifest = f.lookup("a");
  f.clock.advance(f.options.lease_ttl);
  CHECK(f.stats().expired_leases == 1);
  CHECK(f.stats().expired_leases_held == 1);
  CHECK(f.stats().quarantined_bytes == 0);  // it still is an object that others may read
  CHECK(f.reserve("b", 900 * kKib).status().code() == Code::kResourceExhausted);
  CHECK(f.store.remove("ns", "a", f.clock.now()).ok());
  CHECK(f.stats().quarantined_bytes >= 900 * kKib);
  CHECK(f.reserve("b", 900 * kKib).status().code() == Code::kResourceExhausted);

  SUBCASE("until its reader releases it, late") { CHECK(f.release(manifest->lease).ok()); }
  SUBCASE("until its reader's connection is over") { f.store.client_gone(kReader, f.clock.now()); }
  CHECK(f.stats().quarantined_bytes == 0);
  CHECK(f.stats().expired_leases_held == 0);
  CHECK(f.reserve("b", 900 * kKib).has_value());
}

TEST_CASE("the end of a client frees what it held and nothing else") {
  Fixture f;
  f.put("a", 10);
  const auto mine = f.reserve("b", 10, {}, kReader);
  const auto lease = f.lookup("a");
  const auto other = f.lookup("a", kWriter);
  f.store.client_gone(kReader, f.clock.now());
  CHECK(f.seal(mine->version, kReader).code() == Code::kNotFound);
  CHECK(f.release(lease->lease).code() == Code::kNotFound);
  CHECK(f.release(other->lease, kWriter).ok());
  CHECK(f.has("a"));
  CHECK(f.stats().clients == 0);
}

TEST_CASE("a full cache evicts what was unused the longest") {
  Fixture f;
  for (const char* key : {"a", "b", "c", "d"}) f.put(key, 256 * kKib);
  REQUIRE(f.stats().free_bytes == 0);
  REQUIRE(f.release(f.lookup("a")->lease).ok());
  f.put("e", 256 * kKib);
  CHECK(f.has("a"));
  CHECK_FALSE(f.has("b"));
  f.put("f", 300 * kKib);  // one slab of 256 KiB and one of 64 KiB
  CHECK_FALSE(f.has("c"));
  CHECK_FALSE(f.has("d"));
  CHECK(f.has("a"));
  CHECK(f.stats().evicted == 3);
}

TEST_CASE("small objects make room for a large one wherever they lie") {
  Fixture f;
  for (int i = 0; i < 256; ++i) f.put("small" + std::to_string(i), 4 * kKib);
  for (int i = 0; i < 256; i += 2) REQUIRE(f.release(f.lookup("small" + std::to_string(i))->lease).ok());
  const auto large = f.reserve("large", 256 * kKib);
  REQUIRE(large.has_value());
  CHECK(large->extents.size() == 64);
  CHECK(f.stats().evicted == 64);
  CHECK(f.has("small0"));
  CHECK_FALSE(f.has("small1"));
}

TEST_CASE("pinned, leased and reserved objects are never evicted") {
  Fixture f;
  f.put("pinned", 256 * kKib);
  REQUIRE(f.store.pin("ns", "pinned", true, f.clock.now()).ok());
  f.put("leased", 256 * kKib);
  const auto lease = f.lookup("leased");
  const auto reserved = f.reserve("reserved", 256 * kKib);
  f.put("idle", 256 * kKib);
  // Not even the idle one goes for something that can't be had.
  CHECK(f.reserve("large", 512 * kKib).status().code() == Code::kResourceExhausted);
  CHECK(f.has("idle"));
  CHECK(f.stats().refused == 1);
  f.put("next", 256 * kKib);
  CHECK_FALSE(f.has("idle"));
  CHECK(f.has("pinned"));
  CHECK(f.has("leased"));
  CHECK(f.seal(reserved->version).ok());
  CHECK(f.stats().pinned_objects == 1);
  CHECK(f.store.pin("ns", "pinned", false, f.clock.now()).ok());
  CHECK(f.release(lease->lease).ok());
  CHECK(f.reserve("large", 1024 * kKib).has_value());
  CHECK(f.stats().objects == 0);
  CHECK(f.store.pin("ns", "pinned", true, f.clock.now()).code() == Code::kNotFound);
}

TEST_CASE("what replaces a pinned object is pinned") {
  Fixture f;
  f.put("a", 10);
  REQUIRE(f.store.pin("ns", "a", true, f.clock.now()).ok());
  f.put("a", 20, {.replace = true});
  CHECK(f.store.peek("ns", "a", f.clock.now())->pinned);
  CHECK(f.stats().pinned_objects == 1);
  CHECK(f.store.remove("ns", "a", f.clock.now()).ok());
  CHECK(f.stats().pinned_objects == 0);
}

TEST_CASE("above the high watermark the oldest objects go until the low one is reached") {
  Fixture f({.high_percent = 75, .low_percent = 50});
  for (const char* key : {"a", "b", "c"}) f.put(key, 256 * kKib);
  CHECK(f.stats().evicted == 0);
  f.put("d", 256 * kKib);
  CHECK(f.stats().evicted == 2);
  CHECK_FALSE(f.has("b"));
  CHECK(f.has("c"));
  f.put("e", 256 * kKib);
  CHECK(f.stats().evicted == 2);
}

TEST_CASE("an object lives as long as its writer said, from its seal on") {
  Fixture f;
  const auto reservation = f.reserve("a", 10, {.ttl = 5s});
  f.clock.advance(4s);
  REQUIRE(f.seal(reservation->version).ok());
  f.put("forever", 10);
  f.clock.advance(5s - 1ns);
  CHECK(f.has("a"));
  const auto lease = f.lookup("a");
  f.clock.advance(1ns);
  CHECK(f.lookup("a").status().code() == Code::kNotFound);
  CHECK(f.has("forever"));
  CHECK(f.stats().expired_objects == 1);
  CHECK(f.stats().objects == 1);
  CHECK(f.release(lease->lease).ok());
  CHECK(f.put("a", 20) != 0);  // needs no replace
}

TEST_CASE("a mass expiry is spread over calls, and no call sees an expired object meanwhile") {
  Fixture f;
  constexpr int kObjects = 2 * static_cast<int>(limits::kExpiriesPerTurn) - 257;  // 255 fit in the arena
  for (int i = 0; i < kObjects; ++i) f.put(std::to_string(i), 1, {.ttl = 1s});
  f.clock.advance(1s);
  for (int i = 0; i < kObjects; ++i) REQUIRE_FALSE(f.has(std::to_string(i)));
  CHECK(f.stats().expired_objects == kObjects);
  CHECK(f.stats().free_bytes == f.stats().arena_bytes);
}

TEST_CASE("what one client may hold is bounded, expired or not") {
  Fixture f({.reservations_per_client = 2, .leases_per_client = 3});
  f.put("x", 1);
  const auto first = f.reserve("a", 1);
  REQUIRE(f.reserve("b", 1).has_value());
  CHECK(f.reserve("c", 1).status().code() == Code::kResourceExhausted);
  CHECK(f.reserve("c", 1, {}, kReader).has_value());
  f.clock.advance(f.options.reservation_ttl);
  CHECK(f.reserve("c", 1).status().code() == Code::kResourceExhausted);
  CHECK(f.store.abort(first->version, kWriter, f.clock.now()).ok());
  CHECK(f.reserve("c", 1).has_value());

  const auto lease = f.lookup("x");
  REQUIRE(f.lookup("x").has_value());
  REQUIRE(f.lookup("x").has_value());
  CHECK(f.lookup("x").status().code() == Code::kResourceExhausted);
  CHECK(f.lookup("x", kWriter).has_value());
  CHECK(f.release(lease->lease).ok());
  CHECK(f.lookup("x").has_value());
}

TEST_CASE("the check before a seal learns whose bytes they are") {
  Fixture f;
  const auto reservation = f.reserve("a", 100);
  const auto reserved = f.store.reserved(reservation->version, kWriter, f.clock.now());
  REQUIRE(reserved.has_value());
  CHECK(reserved->space == "ns");
  CHECK(reserved->key == "a");
  CHECK(reserved->length == 100);
  CHECK(reserved->extents == reservation->extents);
  f.clock.advance(f.options.reservation_ttl);
  CHECK(f.store.reserved(reservation->version, kWriter, f.clock.now()).status().code() == Code::kAborted);
}

}  // namespace
}  // namespace slime::cache::store_test
