#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/limits.h"
#include "cache/slabs.h"
#include "cache/stats.h"

namespace slime::cache {

// The holder of reservations and leases: one connection of one client. A value is never used again.
struct ClientId {
  std::uint64_t value = 0;
  auto operator<=>(const ClientId&) const = default;
};

// A contiguous range of the arena.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  auto operator<=>(const Extent&) const = default;
};
static_assert(sizeof(Extent) == 16);  // part of the wire format

struct StoreOptions {
  std::uint64_t arena_bytes = 0;
  std::uint64_t slab_bytes = limits::kSlabBytes;  // size of the largest slab
  // longest time from reserve to seal; like lease_ttl it grows by a second for each
  // kSlowestBytesPerSecond of the object
  Nanos reservation_ttl = limits::kReservationTtl;
  Nanos lease_ttl = limits::kLeaseTtl;
  std::size_t reservations_per_client = limits::kReservationsPerClient;
  std::size_t leases_per_client = limits::kLeasesPerClient;
  unsigned high_percent = limits::kHighPercent;
  unsigned low_percent = limits::kLowPercent;
  // First number for versions and leases. Random in production, so that ids of an earlier server
  // never match.
  std::uint64_t first_id = 1;
  std::uint64_t hash_seed = 0;  // random in production: clients choose the keys

  [[nodiscard]] Status validate() const;
};

struct ReserveOptions {
  Nanos ttl = Nanos::zero();  // lifetime of the object from its seal; zero: until it is evicted
  bool replace = false;       // replace an existing object instead of failing
};

// The right to write an object's bytes, once. `version` names the reservation, and the object after
// its seal.
struct Reservation {
  std::uint64_t version = 0;
  // in the order of the object's bytes; the sum of their lengths is the object's length
  std::vector<Extent> extents;
  Nanos ttl{};  // seal within this time
};

struct ObjectInfo {
  std::uint64_t version = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  bool pinned = false;
};

// The right to read an object's bytes until the lease ends, even if the object is removed
// meanwhile.
struct Manifest {
  ObjectInfo object;
  std::vector<Extent> extents;
  std::uint64_t lease = 0;
  Nanos lease_ttl{};
};

// The state machine of a cache over one arena: the place of each object, the rights to write and
// read, and the order of eviction. Knows the arena by offsets only and never touches its memory. No
// I/O, no clock. Each call first handles expired deadlines; `now` must not go backwards. Thread:
// one at a time.
//
// A slab is free; or it belongs to an object (reserved, visible, or removed but leased); or it is
// quarantined, after the reservation or the last lease on it expired. Only the client's release,
// abort or seal, or client_gone(), frees a quarantined slab: until then the client may still write
// or read there.
class Store {
 public:
  // `options` must be valid.
  explicit Store(StoreOptions options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Reserves room for an object, which is not visible until seal(). Several clients may reserve one
  // key; each seals its own object. Errors: kAlreadyExists: the object exists and `replace` is
  // false. kResourceExhausted: no room even after evicting all evictable objects, or the client
  // holds too many reservations. kInvalidArgument: bad names, or an object larger than the arena.
  Result<Reservation> reserve(std::string_view space, std::string_view key, std::uint64_t length,
                              const ReserveOptions& options, ClientId client, TimePoint now);
  // Makes the object visible. An object that it replaces stays readable under its leases. Ends the
  // reservation in any case. Errors: kAborted if the reservation had expired, kAlreadyExists if
  // another writer sealed first and `replace` is false, kNotFound if this client has no such
  // reservation.
  Status seal(std::uint64_t version, std::uint64_t checksum, ClientId client, TimePoint now);
  // Frees the room of a reservation, also of an expired one: the client no longer writes there.
  Status abort(std::uint64_t version, ClientId client, TimePoint now);

  // Grants a read lease. Errors: kNotFound; kResourceExhausted if the client holds too many leases.
  Result<Manifest> lookup(std::string_view space, std::string_view key, ClientId client, TimePoint now);
  // Ends a lease, also an expired one: the client no longer reads there. kNotFound if the client
  // has no such lease.
  Status release(std::uint64_t lease, ClientId client, TimePoint now);
  // Describes an object without granting a lease; counts neither as hit nor as use.
  Result<ObjectInfo> peek(std::string_view space, std::string_view key, TimePoint now);

  // Makes an object invisible; its leases stay valid. Reservations of the key stay. kNotFound if
  // there is no object.
  Status remove(std::string_view space, std::string_view key, TimePoint now);
  // Sets whether an object, and objects that replace it, are protected from eviction. A pinned
  // object still ends with its TTL.
  Status pin(std::string_view space, std::string_view key, bool pinned, TimePoint now);

  // Frees everything that the client held. Call when its connection has ended, so that its
  // operations cannot land any more.
  void client_gone(ClientId client, TimePoint now);

  // Name and place of a live reservation of a client; reserved() returns it for checking a checksum
  // before seal(). Errors of reserved(): kNotFound and kAborted, as in seal().
  struct Reserved {
    std::string space;
    std::string key;
    std::uint64_t length = 0;
    std::vector<Extent> extents;
  };
  Result<Reserved> reserved(std::uint64_t version, ClientId client, TimePoint now);

  [[nodiscard]] StoreStats stats(TimePoint now);

 private:
  enum class State : std::uint8_t { kReserved, kExpired, kVisible, kDetached };
  struct Object {
    std::string name;  // encoded, see encode_name
    std::uint8_t space_bytes = 0;
    State state = State::kReserved;
    bool replace = false;
    bool pinned = false;
    bool quarantined = false;
    std::uint64_t version = 0;
    std::uint64_t length = 0;
    std::uint64_t checksum = 0;
    std::vector<Slab> slabs;
    std::uint64_t slab_bytes = 0;
    ClientId writer;
    Nanos ttl{};
    TimePoint expires = kNever;  // of the reservation, then of the object
    std::uint32_t live_leases = 0;
    std::uint32_t expired_leases = 0;
    std::optional<std::list<Object*>::iterator> idle;  // its place in idle_
  };
  struct Lease {
    Object* object = nullptr;
    ClientId client;
    TimePoint expires;
    bool expired = false;
  };
  struct Client {
    std::unordered_set<std::uint64_t> reservations;
    std::unordered_set<std::uint64_t> leases;
  };
  struct NameHash {
    std::uint64_t seed;
    std::size_t operator()(std::string_view name) const;
  };
  using Deadlines = std::set<std::pair<TimePoint, std::uint64_t>>;

  void advance(TimePoint now);
  bool make_room(std::uint64_t bytes);
  void keep_watermark();
  void evict_oldest();
  Object* find_visible(std::string_view space, std::string_view key, TimePoint now);
  Object* find_reservation(std::uint64_t version, ClientId client);
  void end_reservation(Object& object);
  void make_visible(Object& object, std::uint64_t checksum, TimePoint now);
  void detach(Object& object);
  void end_lease(std::uint64_t id);
  void settle(Object& object);
  void set_quarantined(Object& object, bool quarantined);
  void destroy(Object& object);
  void forget_if_empty(ClientId client);
  [[nodiscard]] std::vector<Extent> extents(const Object& object) const;

  const StoreOptions options_;
  SlabAllocator slabs_;
  std::uint64_t next_id_;
  std::unordered_map<std::uint64_t, Object> objects_;  // by version, in every state
  std::unordered_map<std::string_view, Object*, NameHash> visible_;
  std::unordered_map<std::uint64_t, Lease> leases_;
  std::unordered_map<std::uint64_t, Client> clients_;
  // visible, neither pinned nor leased objects; least recently used first
  std::list<Object*> idle_;
  std::uint64_t idle_bytes_ = 0;
  bool above_watermark_ = false;
  Deadlines reservation_deadlines_;
  Deadlines lease_deadlines_;
  Deadlines object_deadlines_;
  StoreStats stats_;
};

}  // namespace slime::cache
