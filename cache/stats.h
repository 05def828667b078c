#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace slime::cache {

struct ClassStats {
  std::uint64_t slab_bytes = 0;
  std::uint64_t used = 0;  // slabs of objects and reservations, and of removed objects with leases
  std::uint64_t free = 0;
  // slabs that no object uses, but that a client that vanished may still read or write
  std::uint64_t quarantined = 0;
};

struct StoreStats {
  std::uint64_t arena_bytes = 0;  // covered by slabs
  std::uint64_t free_bytes = 0;
  std::uint64_t quarantined_bytes = 0;
  std::uint64_t reserved_bytes = 0;  // slabs of live reservations
  std::uint64_t objects = 0;
  std::uint64_t object_bytes = 0;  // lengths, not slabs
  std::uint64_t pinned_objects = 0;
  std::uint64_t reservations = 0;
  std::uint64_t leases = 0;
  std::uint64_t expired_leases_held = 0;  // expired, not yet released
  std::uint64_t clients = 0;              // clients with a reservation or lease
  // Since the start.
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t sealed = 0;
  std::uint64_t replaced = 0;
  std::uint64_t removed = 0;
  std::uint64_t evicted = 0;
  std::uint64_t expired_objects = 0;
  std::uint64_t expired_leases = 0;
  std::uint64_t expired_reservations = 0;
  std::uint64_t refused = 0;  // reserve calls without room
  std::vector<ClassStats> classes;
};

// Calls fn(name, value) for each field of `stats`. `name` is the name of the field, and is part of
// the wire format. If `stats` is not const, `fn` may change the value.
template <class Stats, class F>
requires std::is_same_v<std::remove_const_t<Stats>, ClassStats>
void for_each_field(Stats& stats, F fn) {
  fn("slab_bytes", stats.slab_bytes);
  fn("used", stats.used);
  fn("free", stats.free);
  fn("quarantined", stats.quarantined);
}
template <class Stats, class F>
requires std::is_same_v<std::remove_const_t<Stats>, StoreStats>
void for_each_field(Stats& stats, F fn) {
  fn("arena_bytes", stats.arena_bytes);
  fn("free_bytes", stats.free_bytes);
  fn("quarantined_bytes", stats.quarantined_bytes);
  fn("reserved_bytes", stats.reserved_bytes);
  fn("objects", stats.objects);
  fn("object_bytes", stats.object_bytes);
  fn("pinned_objects", stats.pinned_objects);
  fn("reservations", stats.reservations);
  fn("leases", stats.leases);
  fn("expired_leases_held", stats.expired_leases_held);
  fn("clients", stats.clients);
  fn("hits", stats.hits);
  fn("misses", stats.misses);
  fn("sealed", stats.sealed);
  fn("replaced", stats.replaced);
  fn("removed", stats.removed);
  fn("evicted", stats.evicted);
  fn("expired_objects", stats.expired_objects);
  fn("expired_leases", stats.expired_leases);
  fn("expired_reservations", stats.expired_reservations);
  fn("refused", stats.refused);
}

// Returns one JSON object: the fields by name, and "classes" as an array of objects.
std::string to_json(const StoreStats& stats);

}  // namespace slime::cache
