// Random calls against a simple model of what a cache may do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "cache/store.h"

namespace slime::cache {
namespace {

using namespace std::chrono_literals;

class Model {
 public:
  explicit Model(std::uint64_t seed) : rng_(seed), options_(pick_options(rng_)), store_(options_) {}

  void step() {
    if (rng_.chance(1, 40)) clock_.advance(Nanos(rng_.below(Nanos(15s).count())));
    switch (rng_.below(12)) {
      case 0:
      case 1:
      case 2:
        reserve();
        break;
      case 3:
      case 4:
        seal();
        break;
      case 5:
      case 6:
      case 7:
        lookup();
        break;
      case 8:
        release();
        break;
      case 9:
        rng_.chance(1, 2) ? abort() : remove();
        break;
      case 10:
        pin();
        break;
      default:
        if (rng_.chance(1, 4)) client_gone();
    }
    check();
  }

  // All clients leave and all objects are removed: all slabs are free and whole again. Returns the
  // statistics.
  StoreStats finish() {
    for (std::uint64_t client = 0; client < kClients; ++client)
      store_.client_gone(ClientId{client}, clock_.now());
    for (int key = 0; key < kKeys; ++key) store_.remove("m", name(key), clock_.now()).ignore();
    const StoreStats stats = store_.stats(clock_.now());
    REQUIRE(stats.free_bytes == stats.arena_bytes);
    REQUIRE(stats.classes.back().free * stats.classes.back().slab_bytes == stats.arena_bytes);
    REQUIRE(stats.objects + stats.leases + stats.expired_leases_held + stats.reservations == 0);
    REQUIRE(stats.object_bytes + stats.quarantined_bytes + stats.reserved_bytes == 0);
    return stats;
  }

 private:
  static constexpr std::uint64_t kClients = 4;
  static constexpr int kKeys = 40;

  struct Object {
    int key = 0;
    std::uint64_t length = 0;
    std::vector<Extent> extents;
    ClientId writer;
    bool replace = false;
    bool reserved = true;
    bool visible = false;
    bool pinned = false;
    Nanos ttl{};
    TimePoint expires = kNever;
    std::uint64_t idle_since = 0;
    int leases = 0;
  };
  struct Lease {
    std::uint64_t version = 0;
    ClientId client;
    TimePoint expires;
  };

  static StoreOptions pick_options(Rng& rng) {
    StoreOptions options;
    options.arena_bytes = 4 << 20;
    options.slab_bytes = std::uint64_t{64 * 1024} << rng.below(3);
    options.reservation_ttl = 10s;
    options.lease_ttl = 12s;
    if (rng.chance(1, 2)) options.high_percent = options.low_percent = 100;
    options.first_id = rng.next() | 1;
    options.hash_seed = rng.next();
    return options;
  }
  static std::string name(int key) { return "key" + std::to_string(key); }
  ClientId client() { return ClientId{rng_.below(kClients)}; }

  template <class Map>
  auto pick(Map& map) {
    return map.empty() ? map.end()
                       : std::next(map.begin(), static_cast<std::ptrdiff_t>(rng_.below(map.size())));
  }
  // The visible object of a key, after what time did.
  std::uint64_t visible(int key) {
    for (auto& [version, object] : objects_) {
      if (object.visible && object.key == key) return version;
    }
    return 0;
  }
  void hide(std::uint64_t version) {
    Object& object = objects_.at(version);
    object.visible = false;
    if (object.leases == 0) objects_.erase(version);
  }
  void expire_objects() {
    for (int key = 0; key < kKeys; ++key) {
      const std::uint64_t version = visible(key);
      if (version != 0 && objects_.at(version).expires <= clock_.now()) hide(version);
    }
  }

  void reserve() {
    const int key = static_cast<int>(rng_.below(kKeys));
    const std::uint64_t length = rng_.below(rng_.chance(1, 6) ? 1'500'000 : 60'000);
    const ReserveOptions how{.ttl = rng_.chance(1, 4) ? Nanos(rng_.below(Nanos(60s).count()) + 1) : Nanos(),
                             .replace = rng_.chance(1, 2)};
    const ClientId who = client();
    expire_objects();
    const bool exists = visible(key) != 0;
    const auto got = store_.reserve("m", name(key), length, how, who, clock_.now());
    if (exists && !how.replace) {
      REQUIRE(got.status().code() == Code::kAlreadyExists);
      return;
    }
    evicted();
    if (!got) {
      REQUIRE(got.status().code() == Code::kResourceExhausted);
      return;
    }
    std::uint64_t sum = 0;
    for (const Extent& extent : got->extents) {
      sum += extent.length;
      REQUIRE(extent.offset + extent.length <= options_.arena_bytes);
      // No slab that a client may still read or write is given out: visible, reserved, leased or
      // quarantined.
      for (const auto& [version, other] : objects_) {
        for (const Extent& taken : other.extents)
          REQUIRE((extent.offset + extent.length <= taken.offset ||
                   taken.offset + taken.length <= extent.offset));
      }
    }
    REQUIRE(sum == length);
    REQUIRE(objects_.count(got->version) == 0);
    objects_[got->version] =
        Object{key,  length, got->extents, who,     how.replace,
               true, false,  false,        how.ttl, clock_.now() + options_.reservation_ttl};
  }

  // Finds out what the store evicted, and checks that it was allowed to and took the oldest ones.
  void evicted() {
    std::vector<std::uint64_t> gone;
    std::uint64_t newest = 0;
    for (const auto& [version, object] : objects_) {
      if (!object.visible || store_.peek("m", name(object.key), clock_.now()).has_value()) continue;
      REQUIRE_FALSE(object.pinned);
      REQUIRE(object.leases == 0);
      gone.push_back(version);
      newest = std::max(newest, object.idle_since);
    }
    for (const std::uint64_t version : gone) hide(version);
    evictions_ += gone.size();
    REQUIRE(store_.stats(clock_.now()).evicted == evictions_);
    for (const auto& [version, object] : objects_) {
      if (object.visible && !object.pinned && object.leases == 0) REQUIRE(object.idle_since > newest);
    }
  }

  void seal() {
    const auto found = pick(objects_);
    if (found == objects_.end()) return;
    const auto [version, object] = *found;
    const ClientId who = rng_.chance(1, 10) ? client() : object.writer;
    expire_objects();
    const std::uint64_t existing = visible(object.key);
    const Status status = store_.seal(version, version ^ 7, who, clock_.now());
    if (!object.reserved || who != object.writer) {
      REQUIRE(status.code() == Code::kNotFound);
      return;
    }
    if (object.expires <= clock_.now()) {
      REQUIRE(status.code() == Code::kAborted);
      objects_.erase(version);
    } else if (existing != 0 && !object.replace) {
      REQUIRE(status.code() == Code::kAlreadyExists);
      objects_.erase(version);
    } else {
      REQUIRE(status.ok());
      Object& sealed = objects_.at(version);
      sealed.pinned = existing != 0 && objects_.at(existing).pinned;
      if (existing != 0) hide(existing);
      sealed.reserved = false;
      sealed.visible = true;
      sealed.expires = sealed.ttl > Nanos() ? clock_.now() + sealed.ttl : kNever;
      sealed.idle_since = ++ticks_;
    }
  }

  void abort() {
    const auto found = pick(objects_);
    if (found == objects_.end()) return;
    const bool mine = found->second.reserved;
    const std::uint64_t version = found->first;
    const Status status = store_.abort(version, found->second.writer, clock_.now());
    REQUIRE(status.code() == (mine ? Code::kOk : Code::kNotFound));
    expire_objects();
    if (mine) objects_.erase(version);
  }

  void lookup() {
    const int key = static_cast<int>(rng_.below(kKeys));
    const ClientId who = client();
    expire_objects();
    const std::uint64_t version = visible(key);
    const auto got = store_.lookup("m", name(key), who, clock_.now());
    REQUIRE(got.has_value() == (version != 0));
    if (!got) return;
    Object& object = objects_.at(version);
    REQUIRE(got->object.version == version);
    REQUIRE(got->object.length == object.length);
    REQUIRE(got->object.checksum == (version ^ 7));
    REQUIRE(got->object.pinned == object.pinned);
    REQUIRE(got->extents == object.extents);
    REQUIRE(leases_.count(got->lease) == 0);
    ++object.leases;
    leases_[got->lease] = Lease{version, who, clock_.now() + options_.lease_ttl};
  }

  void end_lease(std::uint64_t id) {
    const std::uint64_t version = leases_.at(id).version;
    leases_.erase(id);
    Object& object = objects_.at(version);
    if (--object.leases > 0) return;
    object.idle_since = ++ticks_;
    if (!object.visible) objects_.erase(version);
  }

  void release() {
    const auto found = pick(leases_);
    if (found == leases_.end()) return;
    const ClientId who = rng_.chance(1, 10) ? client() : found->second.client;
    const std::uint64_t lease = found->first;
    const bool mine = who == found->second.client;
    expire_objects();
    REQUIRE(store_.release(lease, who, clock_.now()).code() == (mine ? Code::kOk : Code::kNotFound));
    if (mine) end_lease(lease);
  }

  void remove() {
    const int key = static_cast<int>(rng_.below(kKeys));
    expire_objects();
    const std::uint64_t version = visible(key);
    REQUIRE(store_.remove("m", name(key), clock_.now()).ok() == (version != 0));
    if (version != 0) hide(version);
  }

  void pin() {
    const int key = static_cast<int>(rng_.below(kKeys));
    const bool pinned = rng_.chance(1, 4);
    expire_objects();
    const std::uint64_t version = visible(key);
    REQUIRE(store_.pin("m", name(key), pinned, clock_.now()).ok() == (version != 0));
    if (version == 0) return;
    Object& object = objects_.at(version);
    if (object.pinned && !pinned && object.leases == 0) object.idle_since = ++ticks_;
    object.pinned = pinned;
  }

  void client_gone() {
    const ClientId who = client();
    expire_objects();
    store_.client_gone(who, clock_.now());
    std::erase_if(objects_,
                  [&](const auto& entry) { return entry.second.reserved && entry.second.writer == who; });
    std::vector<std::uint64_t> mine;
    for (const auto& [id, lease] : leases_) {
      if (lease.client == who) mine.push_back(id);
    }
    // The order in which one client's leases end is not promised: those objects count as equally
    // old.
    const std::uint64_t tick = ++ticks_;
    for (const std::uint64_t id : mine) {
      const std::uint64_t version = leases_.at(id).version;
      end_lease(id);
      if (const auto object = objects_.find(version); object != objects_.end() && object->second.leases == 0)
        object->second.idle_since = tick;
    }
    if (!mine.empty()) flush_order();
  }

  // Gives every idle object a place in the order that model and store agree on, by using each once.
  void flush_order() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> idle;
    for (const auto& [version, object] : objects_) {
      if (object.visible && object.leases == 0) idle.emplace_back(object.idle_since, version);
    }
    std::sort(idle.begin(), idle.end());
    for (const auto& [since, version] : idle) {
      const auto got = store_.lookup("m", name(objects_.at(version).key), ClientId{99}, clock_.now());
      REQUIRE(got.has_value());
      REQUIRE(store_.release(got->lease, ClientId{99}, clock_.now()).ok());
      objects_.at(version).idle_since = ++ticks_;
    }
  }

  void check() {
    expire_objects();
    const StoreStats stats = store_.stats(clock_.now());
    std::uint64_t objects = 0, bytes = 0, pinned = 0, reservations = 0, live = 0;
    std::uint64_t quarantined_least = 0;
    for (const auto& [version, object] : objects_) {
      objects += object.visible ? 1 : 0;
      bytes += object.visible ? object.length : 0;
      pinned += object.visible && object.pinned ? 1 : 0;
      if (object.reserved && object.expires > clock_.now()) ++reservations;
      if (quarantined(version, object)) quarantined_least += SlabAllocator::needed(object.length);
    }
    for (const auto& [id, lease] : leases_) live += lease.expires > clock_.now() ? 1 : 0;
    REQUIRE(stats.objects == objects);
    REQUIRE(stats.object_bytes == bytes);
    REQUIRE(stats.pinned_objects == pinned);
    REQUIRE(stats.reservations == reservations);
    REQUIRE(stats.leases == live);
    REQUIRE(stats.leases + stats.expired_leases_held == leases_.size());
    REQUIRE(stats.quarantined_bytes >= quarantined_least);
    REQUIRE((stats.quarantined_bytes == 0) == (quarantined_least == 0));
    // Every slab is accounted for, once.
    std::uint64_t covered = 0, free = 0, quarantined = 0;
    for (const ClassStats& size : stats.classes) {
      covered += size.slab_bytes * (size.used + size.free + size.quarantined);
      free += size.slab_bytes * size.free;
      quarantined += size.slab_bytes * size.quarantined;
    }
    REQUIRE(covered == stats.arena_bytes);
    REQUIRE(free == stats.free_bytes);
    REQUIRE(quarantined == stats.quarantined_bytes);
  }
  bool quarantined(std::uint64_t version, const Object& object) {
    if (object.visible) return false;
    if (object.reserved) return object.expires <= clock_.now();
    return std::none_of(leases_.begin(), leases_.end(), [&](const auto& entry) {
      return entry.second.version == version && entry.second.expires > clock_.now();
    });
  }

  Rng rng_;
  ManualClock clock_;
  const StoreOptions options_;
  Store store_;
  std::map<std::uint64_t, Object> objects_;  // all objects with slabs
  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t ticks_ = 0;
  std::uint64_t evictions_ = 0;
};

TEST_CASE("random calls agree with the model: nothing overlaps, leaks or is reused too early") {
  StoreStats total;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Model model(seed);
    for (int step = 0; step < 1500; ++step) {
      CAPTURE(step);
      model.step();
    }
    const StoreStats stats = model.finish();
    total.evicted += stats.evicted;
    total.refused += stats.refused;
    total.expired_leases += stats.expired_leases;
    total.expired_reservations += stats.expired_reservations;
    total.expired_objects += stats.expired_objects;
  }
  // The model would agree with a store that nothing ever happens to.
  CHECK(total.evicted > 100);
  CHECK(total.refused > 100);
  CHECK(total.expired_leases > 100);
  CHECK(total.expired_reservations > 100);
  CHECK(total.expired_objects > 100);
}

}  // namespace
}  // namespace slime::cache
