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

// Who holds reservations and leases: one connection of one client, never reused.
struct ClientId {
  std::uint64_t value = 0;
  auto operator<=>(const ClientId&) const = default;
};

// A run of bytes of the arena.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  auto operator<=>(const Extent&) const = default;
};
static_assert(sizeof(Extent) == 16);  // travels as it is

struct StoreOptions {
  std::uint64_t arena_bytes = 0;
  std::uint64_t slab_bytes = limits::kSlabBytes;    // the largest slab
  Nanos reservation_ttl = limits::kReservationTtl;  // and a second for each kSlowestBytesPerSecond, as below
  Nanos lease_ttl = limits::kLeaseTtl;
  std::size_t reservations_per_client = limits::kReservationsPerClient;
  std::size_t leases_per_client = limits::kLeasesPerClient;
  unsigned high_percent = limits::kHighPercent;
  unsigned low_percent = limits::kLowPercent;
  // Where versions and lease ids start. Random in production, so that no id of an earlier server means
  // anything to this one.
  std::uint64_t first_id = 1;
  std::uint64_t hash_seed = 0;  // random in production: keys are chosen by strangers

  [[nodiscard]] Status validate() const;
};

struct ReserveOptions {
  Nanos ttl = Nanos::zero();  // how long the object lives once it is sealed; zero: until it is evicted
  bool replace = false;       // seal over an existing object instead of failing
};

// The right to write an object's bytes, once. `version` names it, and the object that seal makes of it.
struct Reservation {
  std::uint64_t version = 0;
  std::vector<Extent> extents;  // in the order of the object's bytes; their lengths add up to its length
  Nanos ttl{};                  // seal by then
};

struct ObjectInfo {
  std::uint64_t version = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  bool pinned = false;
};

// The right to read an object's bytes until the lease is over, whatever happens to the object.
struct Manifest {
  ObjectInfo object;
  std::vector<Extent> extents;
  std::uint64_t lease = 0;
  Nanos lease_ttl{};
};

// The whole state of a cache over one arena that it only knows by offset: which object lies where, who may
// write and read what, what goes next. Pure: no I/O, no clock, no memory. What is due by time is done at the
// start of each call; `now` never goes backwards. Thread: one at a time.
//
// Slabs are in one of four hands: free; an object's (reserved, visible, or removed but leased); quarantined,
// when the reservation or the last lease on them expired: then only that client's release, abort or seal, or
// client_gone() frees them, because until then it may still write or read there.
class Store {
 public:
  // `options` are valid.
  explicit Store(StoreOptions options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Takes room for an object that nobody sees until seal. Several clients may reserve one key; each seals its
  // own. kAlreadyExists: it is there, and replace was not asked. kResourceExhausted: no room although
  // everything that may go went, or the client holds too much. kInvalidArgument: bad names, or larger than
  // the arena.
  Result<Reservation> reserve(std::string_view space, std::string_view key, std::uint64_t length,
                              const ReserveOptions& options, ClientId client, TimePoint now);
  // Makes it visible; the object it replaces lives on for its leases. Over in any case: kAborted if the
  // reservation had expired, kAlreadyExists if another writer sealed first and replace was not asked,
  // kNotFound if this client holds no such reservation.
  Status seal(std::uint64_t version, std::uint64_t checksum, ClientId client, TimePoint now);
  // Gives the room back, also of an expired reservation: the client writes there no more.
  Status abort(std::uint64_t version, ClientId client, TimePoint now);

  // Grants a read lease. kNotFound, or kResourceExhausted if the client holds too many leases.
  Result<Manifest> lookup(std::string_view space, std::string_view key, ClientId client, TimePoint now);
  // Ends a lease, also an expired one: the client reads there no more. kNotFound if it holds no such lease.
  Status release(std::uint64_t lease, ClientId client, TimePoint now);
  // What is there, without a lease, a hit or a use.
  Result<ObjectInfo> peek(std::string_view space, std::string_view key, TimePoint now);

  // kNotFound if there is none. Reservations for the key are not touched.
  Status remove(std::string_view space, std::string_view key, TimePoint now);
  // A pinned object is not evicted, nor is what replaces it; its TTL still ends it.
  Status pin(std::string_view space, std::string_view key, bool pinned, TimePoint now);

  // The client's connection is over for good: it touches nothing any more. Everything it held is freed.
  void client_gone(ClientId client, TimePoint now);

  // What a live reservation of this client covers: for the check of a checksum before seal. kNotFound,
  // kAborted as seal.
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
    std::optional<std::list<Object*>::iterator> idle;  // its place among those that may be evicted
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
  std::list<Object*> idle_;  // visible, neither pinned nor leased; the longest unused first
  std::uint64_t idle_bytes_ = 0;
  bool above_watermark_ = false;
  Deadlines reservation_deadlines_;
  Deadlines lease_deadlines_;
  Deadlines object_deadlines_;
  StoreStats stats_;
};

}  // namespace slime::cache
