#include "cache/store.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/str.h"

namespace slime::cache {
namespace {

// Encodes namespace and key as one unambiguous text: the length of `space`, then both.
std::string encode_name(std::string_view space, std::string_view key) {
  std::string name;
  name.reserve(1 + space.size() + key.size());
  name.push_back(static_cast<char>(space.size()));
  name.append(space).append(key);
  return name;
}

Status check_names(std::string_view space, std::string_view key) {
  if (space.size() > limits::kNameBytes)
    return Status(Code::kInvalidArgument, str("a namespace has at most ", limits::kNameBytes, " bytes"));
  if (key.empty() || key.size() > limits::kKeyBytes)
    return Status(Code::kInvalidArgument,
                  str("a key has 1 to ", limits::kKeyBytes, " bytes, not ", key.size()));
  return {};
}

// Returns how long a client may hold a reservation or lease of `length` bytes.
Nanos time_for(Nanos ttl, std::uint64_t length) {
  return ttl + std::chrono::seconds(length / limits::kSlowestBytesPerSecond);
}

Status no_object() { return Status(Code::kNotFound, "no such object in the cache"); }

}  // namespace

Status StoreOptions::validate() const {
  const auto bad = [](const auto&... parts) { return Status(Code::kInvalidArgument, str(parts...)); };
  if (!std::has_single_bit(slab_bytes) || slab_bytes < limits::kMinSlabBytes ||
      slab_bytes > limits::kMaxSlabBytes)
    return bad("the slab size must be a power of two from ", limits::kMinSlabBytes, " to ",
               limits::kMaxSlabBytes, ", not ", slab_bytes);
  if (arena_bytes < slab_bytes)
    return bad("a memory of ", arena_bytes, " bytes is less than one slab of ", slab_bytes);
  if (reservation_ttl <= Nanos::zero() || lease_ttl <= Nanos::zero())
    return bad("the times to live of reservations and leases must be above zero");
  if (reservations_per_client == 0 || leases_per_client == 0)
    return bad("a client must be allowed at least one reservation and one lease");
  if (low_percent > high_percent || high_percent > 100)
    return bad("the watermarks must be low <= high <= 100 percent, not ", low_percent, " and ", high_percent);
  return {};
}

std::size_t Store::NameHash::operator()(std::string_view name) const {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

Store::Store(StoreOptions options)
    : options_(options),
      slabs_(options.arena_bytes, options.slab_bytes),
      next_id_(options.first_id),
      visible_(16, NameHash{options.hash_seed}) {
  SLIME_CHECK(options_.validate().ok());
  stats_.arena_bytes = slabs_.capacity_bytes();
  stats_.classes.resize(slabs_.classes());
  for (std::size_t i = 0; i < stats_.classes.size(); ++i)
    stats_.classes[i].slab_bytes = limits::kMinSlabBytes << i;
}

// ---- writers

Result<Reservation> Store::reserve(std::string_view space, std::string_view key, std::uint64_t length,
                                   const ReserveOptions& options, ClientId client, TimePoint now) {
  advance(now);
  SLIME_TRY(check_names(space, key));
  if (options.ttl < Nanos::zero()) return Status(Code::kInvalidArgument, "a negative time to live");
  if (length > slabs_.capacity_bytes())
    return Status(Code::kInvalidArgument, str("an object of ", length, " bytes does not fit into a cache of ",
                                              slabs_.capacity_bytes()));
  if (!options.replace && find_visible(space, key, now) != nullptr)
    return Status(Code::kAlreadyExists, "the object is in the cache already");
  if (const auto holder = clients_.find(client.value);
      holder != clients_.end() && holder->second.reservations.size() >= options_.reservations_per_client)
    return Status(Code::kResourceExhausted, str("this client holds ", options_.reservations_per_client,
                                                " reservations: seal or abort some"));
  if (!make_room(SlabAllocator::needed(length))) {
    ++stats_.refused;
    return Status(Code::kResourceExhausted,
                  str("no room for ", length, " bytes: ", slabs_.free_bytes(), " free, ", idle_bytes_,
                      " evictable, the rest is pinned, leased, reserved or quarantined"));
  }

  const std::uint64_t version = next_id_++;
  Object& object = objects_[version];
  object.name = encode_name(space, key);
  object.space_bytes = static_cast<std::uint8_t>(space.size());
  object.replace = options.replace;
  object.version = version;
  object.length = length;
  object.slabs = std::move(*slabs_.allocate(length));  // make_room() has made sure of the room
  object.writer = client;
  object.ttl = options.ttl;
  const Nanos ttl = time_for(options_.reservation_ttl, length);
  object.expires = deadline_after(now, ttl);
  for (const Slab& slab : object.slabs) {
    object.slab_bytes += slab.bytes();
    ++stats_.classes[slab.size_class].used;
  }
  ++stats_.reservations;
  stats_.reserved_bytes += object.slab_bytes;
  reservation_deadlines_.emplace(object.expires, version);
  clients_[client.value].reservations.insert(version);
  keep_watermark();
  return Reservation{version, extents(object), ttl};
}

Status Store::seal(std::uint64_t version, std::uint64_t checksum, ClientId client, TimePoint now) {
  advance(now);
  Object* object = find_reservation(version, client);
  if (object == nullptr) return Status(Code::kNotFound, "no such reservation of this client");
  const bool in_time = object->state == State::kReserved && now < object->expires;
  end_reservation(*object);
  if (!in_time) {
    if (object->state == State::kReserved) ++stats_.expired_reservations;
    destroy(*object);
    return Status(Code::kAborted, "the reservation had expired: the object was not kept, put it again");
  }
  const auto existing = visible_.find(object->name);
  if (existing != visible_.end()) {
    Object& old = *existing->second;
    const bool over = old.expires <= now;
    if (!object->replace && !over) {
      destroy(*object);
      return Status(Code::kAlreadyExists, "another writer sealed the object first");
    }
    object->pinned = old.pinned && !over;
    ++(over ? stats_.expired_objects : stats_.replaced);
    detach(old);
  }
  make_visible(*object, checksum, now);
  return {};
}

Status Store::abort(std::uint64_t version, ClientId client, TimePoint now) {
  advance(now);
  Object* object = find_reservation(version, client);
  if (object == nullptr) return Status(Code::kNotFound, "no such reservation of this client");
  end_reservation(*object);
  destroy(*object);
  return {};
}

Result<Store::Reserved> Store::reserved(std::uint64_t version, ClientId client, TimePoint now) {
  advance(now);
  Object* object = find_reservation(version, client);
  if (object == nullptr) return Status(Code::kNotFound, "no such reservation of this client");
  if (object->state != State::kReserved || object->expires <= now)
    return Status(Code::kAborted, "the reservation had expired");
  const std::string_view names = std::string_view(object->name).substr(1);
  return Reserved{std::string(names.substr(0, object->space_bytes)),
                  std::string(names.substr(object->space_bytes)), object->length, extents(*object)};
}

// ---- readers

Result<Manifest> Store::lookup(std::string_view space, std::string_view key, ClientId client, TimePoint now) {
  advance(now);
  SLIME_TRY(check_names(space, key));
  Object* object = find_visible(space, key, now);
  if (object == nullptr) {
    ++stats_.misses;
    return no_object();
  }
  Client& holder = clients_[client.value];
  if (holder.leases.size() >= options_.leases_per_client)
    return Status(Code::kResourceExhausted,
                  str("this client holds ", options_.leases_per_client, " leases: release some"));
  ++stats_.hits;
  const std::uint64_t id = next_id_++;
  const Nanos ttl = time_for(options_.lease_ttl, object->length);
  const TimePoint expires = deadline_after(now, ttl);
  leases_.emplace(id, Lease{object, client, expires});
  lease_deadlines_.emplace(expires, id);
  holder.leases.insert(id);
  ++object->live_leases;
  ++stats_.leases;
  settle(*object);
  return Manifest{
      {object->version, object->length, object->checksum, object->pinned}, extents(*object), id, ttl};
}

Status Store::release(std::uint64_t lease, ClientId client, TimePoint now) {
  advance(now);
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.client != client)
    return Status(Code::kNotFound, "no such lease of this client");
  end_lease(lease);
  return {};
}

Result<ObjectInfo> Store::peek(std::string_view space, std::string_view key, TimePoint now) {
  advance(now);
  SLIME_TRY(check_names(space, key));
  const Object* object = find_visible(space, key, now);
  if (object == nullptr) return no_object();
  return ObjectInfo{object->version, object->length, object->checksum, object->pinned};
}

// ---- objects

Status Store::remove(std::string_view space, std::string_view key, TimePoint now) {
  advance(now);
  SLIME_TRY(check_names(space, key));
  Object* object = find_visible(space, key, now);
  if (object == nullptr) return no_object();
  ++stats_.removed;
  detach(*object);
  return {};
}

Status Store::pin(std::string_view space, std::string_view key, bool pinned, TimePoint now) {
  advance(now);
  SLIME_TRY(check_names(space, key));
  Object* object = find_visible(space, key, now);
  if (object == nullptr) return no_object();
  if (object->pinned != pinned) {
    object->pinned = pinned;
    pinned ? ++stats_.pinned_objects : --stats_.pinned_objects;
    settle(*object);
  }
  return {};
}

void Store::client_gone(ClientId client, TimePoint now) {
  advance(now);
  const auto found = clients_.find(client.value);
  if (found == clients_.end()) return;
  const Client held = std::move(found->second);
  clients_.erase(found);
  for (const std::uint64_t version : held.reservations) {
    Object& object = objects_.at(version);
    end_reservation(object);
    destroy(object);
  }
  for (const std::uint64_t lease : held.leases) end_lease(lease);
}

StoreStats Store::stats(TimePoint now) {
  advance(now);
  StoreStats out = stats_;
  out.free_bytes = slabs_.free_bytes();
  out.clients = clients_.size();
  for (std::size_t i = 0; i < out.classes.size(); ++i) out.classes[i].free = slabs_.free_slabs(i);
  return out;
}

// ---- what time and pressure do

void Store::advance(TimePoint now) {
  std::size_t budget = limits::kExpiriesPerTurn;
  const auto due = [&](const Deadlines& deadlines) {
    if (budget == 0 || deadlines.empty() || deadlines.begin()->first > now) return false;
    --budget;
    return true;
  };
  while (due(reservation_deadlines_)) {
    Object& object = objects_.at(reservation_deadlines_.begin()->second);
    reservation_deadlines_.erase(reservation_deadlines_.begin());
    object.state = State::kExpired;
    --stats_.reservations;
    stats_.reserved_bytes -= object.slab_bytes;
    ++stats_.expired_reservations;
    settle(object);
  }
  while (due(lease_deadlines_)) {
    Lease& lease = leases_.at(lease_deadlines_.begin()->second);
    lease_deadlines_.erase(lease_deadlines_.begin());
    lease.expired = true;
    --lease.object->live_leases;
    ++lease.object->expired_leases;
    --stats_.leases;
    ++stats_.expired_leases_held;
    ++stats_.expired_leases;
    settle(*lease.object);
  }
  while (due(object_deadlines_)) {
    Object& object = objects_.at(object_deadlines_.begin()->second);
    ++stats_.expired_objects;
    detach(object);
  }
}

// Evicts until `bytes` are free. Returns false, and evicts nothing, if that is impossible.
bool Store::make_room(std::uint64_t bytes) {
  if (slabs_.free_bytes() + idle_bytes_ < bytes) return false;
  while (slabs_.free_bytes() < bytes) evict_oldest();
  return true;
}

// Called by every reserve. Above the high mark, evicts a few objects at a time until the low mark
// is reached, so there is room before it is needed, and in larger pieces, since neighbours have
// time to merge.
void Store::keep_watermark() {
  const auto above = [this](unsigned percent) {
    return slabs_.capacity_bytes() - slabs_.free_bytes() > slabs_.capacity_bytes() * percent / 100;
  };
  above_watermark_ = above(above_watermark_ ? options_.low_percent : options_.high_percent);
  for (std::size_t i = 0; above_watermark_ && !idle_.empty() && i < limits::kEvictionsPerTurn; ++i) {
    evict_oldest();
    above_watermark_ = above(options_.low_percent);
  }
}

void Store::evict_oldest() {
  ++stats_.evicted;
  detach(*idle_.front());
}

// ---- the transitions of one object

Store::Object* Store::find_visible(std::string_view space, std::string_view key, TimePoint now) {
  const auto found = visible_.find(encode_name(space, key));
  if (found == visible_.end()) return nullptr;
  if (found->second->expires > now) return found->second;
  ++stats_.expired_objects;
  detach(*found->second);
  return nullptr;
}

Store::Object* Store::find_reservation(std::uint64_t version, ClientId client) {
  const auto found = objects_.find(version);
  if (found == objects_.end() || found->second.writer != client) return nullptr;
  const State state = found->second.state;
  return state == State::kReserved || state == State::kExpired ? &found->second : nullptr;
}

// Ends the writer's reservation. The caller then makes the object visible or destroys it.
void Store::end_reservation(Object& object) {
  if (object.state == State::kReserved) {
    reservation_deadlines_.erase({object.expires, object.version});
    --stats_.reservations;
    stats_.reserved_bytes -= object.slab_bytes;
  }
  if (const auto holder = clients_.find(object.writer.value); holder != clients_.end()) {
    holder->second.reservations.erase(object.version);
    forget_if_empty(object.writer);
  }
}

void Store::make_visible(Object& object, std::uint64_t checksum, TimePoint now) {
  object.state = State::kVisible;
  object.checksum = checksum;
  object.expires = object.ttl > Nanos::zero() ? deadline_after(now, object.ttl) : kNever;
  if (object.expires != kNever) object_deadlines_.emplace(object.expires, object.version);
  visible_.emplace(object.name, &object);
  ++stats_.sealed;
  ++stats_.objects;
  stats_.object_bytes += object.length;
  stats_.pinned_objects += object.pinned ? 1 : 0;
  settle(object);
}

// Makes an object invisible. Frees it now, or when its last lease ends.
void Store::detach(Object& object) {
  SLIME_CHECK(object.state == State::kVisible);
  visible_.erase(object.name);
  if (object.expires != kNever) object_deadlines_.erase({object.expires, object.version});
  --stats_.objects;
  stats_.object_bytes -= object.length;
  stats_.pinned_objects -= object.pinned ? 1 : 0;
  object.state = State::kDetached;
  settle(object);
}

void Store::end_lease(std::uint64_t id) {
  const auto found = leases_.find(id);
  const Lease lease = found->second;
  leases_.erase(found);
  if (lease.expired) {
    --lease.object->expired_leases;
    --stats_.expired_leases_held;
  } else {
    lease_deadlines_.erase({lease.expires, id});
    --lease.object->live_leases;
    --stats_.leases;
  }
  if (const auto holder = clients_.find(lease.client.value); holder != clients_.end()) {
    holder->second.leases.erase(id);
    forget_if_empty(lease.client);
  }
  settle(*lease.object);
}

// Updates the list of evictable objects and the quarantine after a change of the object's state.
// May destroy the object.
void Store::settle(Object& object) {
  const bool leased = object.live_leases + object.expired_leases > 0;
  const bool idle = object.state == State::kVisible && !object.pinned && !leased;
  if (idle && !object.idle) {
    object.idle = idle_.insert(idle_.end(), &object);
    idle_bytes_ += object.slab_bytes;
  } else if (!idle && object.idle) {
    idle_.erase(*object.idle);
    object.idle.reset();
    idle_bytes_ -= object.slab_bytes;
  }
  if (object.state == State::kDetached && !leased) {
    destroy(object);
    return;
  }
  set_quarantined(object, object.state == State::kExpired ||
                              (object.state == State::kDetached && object.live_leases == 0));
}

void Store::set_quarantined(Object& object, bool quarantined) {
  if (object.quarantined == quarantined) return;
  object.quarantined = quarantined;
  for (const Slab& slab : object.slabs) {
    ClassStats& stats = stats_.classes[slab.size_class];
    quarantined ? (--stats.used, ++stats.quarantined) : (++stats.used, --stats.quarantined);
  }
  stats_.quarantined_bytes += quarantined ? object.slab_bytes : -object.slab_bytes;
}

void Store::destroy(Object& object) {
  set_quarantined(object, false);
  for (const Slab& slab : object.slabs) {
    --stats_.classes[slab.size_class].used;
    slabs_.free(slab);
  }
  objects_.erase(object.version);
}

void Store::forget_if_empty(ClientId client) {
  const auto holder = clients_.find(client.value);
  if (holder->second.reservations.empty() && holder->second.leases.empty()) clients_.erase(holder);
}

// Returns the object's slabs as extents: merges neighbours, and ends the last extent at the
// object's length.
std::vector<Extent> Store::extents(const Object& object) const {
  std::vector<Extent> out;
  std::uint64_t rest = object.length;
  for (const Slab& slab : object.slabs) {
    const std::uint64_t length = std::min(rest, slab.bytes());
    if (length == 0) break;
    rest -= length;
    if (!out.empty() && out.back().offset + out.back().length == slab.offset) {
      out.back().length += length;
    } else {
      out.push_back({slab.offset, length});
    }
  }
  return out;
}

}  // namespace slime::cache
