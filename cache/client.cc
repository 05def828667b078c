#include "cache/client.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cache/method_bodies.h"
#include "cache/store.h"
#include "cache/transfer.h"
#include "cache/worker.h"

namespace slime::cache {
namespace {

using Direction = Transfer::Direction;
using Indices = std::vector<std::size_t>;

// Returns whether a retry after this failure cannot execute anything twice.
bool again(const Status& status) {
  return status.code() == Code::kAborted || (status.code() == Code::kUnavailable && !status.maybe_executed());
}

Status bad_reply(std::string_view method) {
  return Status(Code::kCorrupt, str("the cache answered ", method, " with something else than was asked"));
}

// Returns `status`; a kNotFound gets the key appended to its text, if space and key are UTF-8.
Status with_key(Status status, std::string_view space, std::string_view key) {
  constexpr std::size_t kShown = 80;
  if (status.code() != Code::kNotFound || !is_utf8(space) || !is_utf8(key)) return status;
  const bool cut = key.size() > kShown;
  std::size_t shown = cut ? kShown : key.size();
  while (cut && !is_utf8(key.substr(0, shown))) --shown;
  return Status(Code::kNotFound,
                str(status.text(), ": ", space, "/", key.substr(0, shown), cut ? "..." : ""));
}

}  // namespace

Source::Source(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length)
    : bytes(Bytes(in.bytes()).subspan(offset, length)), region(&in) {}
Target::Target(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length)
    : bytes(in.bytes().subspan(offset, length)), region(&in) {}

class CacheClient::Impl {
 public:
  // Returns the target for the object of keys[index], once the length of the object is known.
  using Sink = UniqueFunction<Result<Target>(std::size_t index, std::uint64_t length)>;

  Impl(PeerAgent& agent, std::string_view server, const CacheClientOptions& options)
      : peer_(agent.peer(server).with_timeout(options.timeout)),
        options_(options),
        staging_(agent, options.staging_buffers, options.staging_buffer_bytes) {}

  // Runs `call` on the client's thread.
  template <class T, class F>
  Future<T> start(F call) {
    Promise<T> promise;
    auto future = promise.future();
    const bool posted =
        worker_.post([promise = std::move(promise), call = std::move(call)](bool run) mutable {
          if (run) {
            promise.complete(call());
          } else {
            promise.complete(Status(Code::kCancelled, "the client of the cache ended"));
          }
        });
    if (posted) return future;
    return Future<T>::ready(
        Status(Code::kResourceExhausted, str(limits::kWaitingCalls, " calls of this client wait already")));
  }

  std::vector<Status> put(std::string_view space, std::span<const PutItem> items, const PutOptions& options);
  // Reads the objects. Returns the outcome for each key, and sets `lengths` to the objects'
  // lengths.
  std::vector<Status> get(std::string_view space, std::span<const std::string_view> keys, Sink& sink,
                          std::vector<std::uint64_t>& lengths);
  // For get_many().
  std::vector<Result<std::uint64_t>> get_into(std::string_view space, std::span<const GetItem> items);
  std::vector<Result<ByteVector>> get_bytes(std::string_view space, std::span<const std::string_view> keys);
  std::vector<Status> each(const char* method, std::string_view space, std::span<const std::string_view> keys,
                           bool idempotent);
  Result<ObjectInfo> info(std::string_view space, std::string_view key);
  Result<StoreStats> stats();

 private:
  template <class R, class... A>
  Result<R> call(const char* method, const A&... arguments) {
    return peer_.call<R>(wire::kService, method, arguments...).wait();
  }
  template <class R, class... A>
  Result<R> call_again(bool idempotent, const char* method, const A&... arguments) {
    auto reply = call<R>(method, arguments...);
    if (reply || !(again(reply.error()) || (idempotent && reply.error().code() == Code::kUnavailable)))
      return reply;
    return call<R>(method, arguments...);
  }
  // Sends a request without waiting for its answer: if it is lost, its leases or reservations
  // expire.
  void tell(const char* method, const wire::Ids& ids) {
    if (!ids.empty()) std::ignore = peer_.call<wire::Outcomes>(wire::kService, method, ids);
  }

  // Returns the arena's region for this direction. Call before asking the server for a place in the
  // arena. A region that is older than the place can only be refused by the transport. A region
  // newer than the place would let this client overwrite other objects, if a restarted server has
  // forgotten the place.
  Result<RemoteRegion> arena(Direction direction);
  void forget_arenas();

  void put_pass(std::string_view space, std::span<const PutItem> items, const PutOptions& options,
                std::span<const std::size_t> todo, std::vector<Status>& out);
  void put_group(std::string_view space, std::span<const PutItem> items, const PutOptions& options,
                 const RemoteRegion& arena, std::span<const std::size_t> group, std::vector<Status>& out);
  void seal(std::span<const Haul> hauls, std::span<const std::size_t> of, std::vector<Status>& out);
  void get_pass(std::string_view space, std::span<const std::string_view> keys,
                std::span<const std::size_t> todo, Sink& sink, std::vector<std::uint64_t>& lengths,
                std::vector<Status>& out);
  std::uint64_t get_group(std::string_view space, std::span<const std::string_view> keys,
                          const RemoteRegion& arena, std::span<const std::size_t> group, Sink& sink,
                          std::vector<std::uint64_t>& lengths, std::vector<Status>& out);
  static Result<Haul> prepare(std::string_view space, std::string_view key, const wire::Found& found,
                              std::uint64_t arena_bytes, std::size_t index, Sink& sink);

  Peer peer_;
  const CacheClientOptions options_;
  StagingPool staging_;
  Mutex mutex_;
  std::optional<RemoteRegion> arenas_[2] SLIME_GUARDED_BY(mutex_);
  Worker worker_{limits::kWaitingCalls};  // last: its thread uses the members above
};

Result<RemoteRegion> CacheClient::Impl::arena(Direction direction) {
  const auto index = static_cast<std::size_t>(direction);
  {
    const MutexLock lock(mutex_);
    if (arenas_[index]) return *arenas_[index];
  }
  auto region =
      peer_.region(direction == Direction::kWrite ? wire::kWriteRegion : wire::kReadRegion, options_.timeout);
  if (!region) {
    if (region.error().code() != Code::kNotFound) return region;
    return Status(Code::kUnavailable, str(peer_.name(), " serves no cache"));
  }
  const MutexLock lock(mutex_);
  arenas_[index] = *region;
  return region;
}

void CacheClient::Impl::forget_arenas() {
  const MutexLock lock(mutex_);
  arenas_[0].reset();
  arenas_[1].reset();
}

// ---- put

std::vector<Status> CacheClient::Impl::put(std::string_view space, std::span<const PutItem> items,
                                           const PutOptions& options) {
  std::vector<Status> out(items.size());
  if (options.ttl < Nanos::zero()) {
    std::fill(out.begin(), out.end(), Status(Code::kInvalidArgument, "a negative time to live"));
    return out;
  }
  Indices todo(items.size());
  std::iota(todo.begin(), todo.end(), std::size_t{0});
  put_pass(space, items, options, todo, out);
  std::erase_if(todo, [&](std::size_t i) { return !again(out[i]); });
  if (!todo.empty()) {
    forget_arenas();
    put_pass(space, items, options, todo, out);
  }
  return out;
}

void CacheClient::Impl::put_pass(std::string_view space, std::span<const PutItem> items,
                                 const PutOptions& options, std::span<const std::size_t> todo,
                                 std::vector<Status>& out) {
  const auto arena = this->arena(Direction::kWrite);
  if (!arena) {
    for (const std::size_t i : todo) out[i] = Status(arena.error()).with_maybe_executed(false);
    return;
  }
  // A group holds all its reservations at once, so its size is limited to a small part of the
  // cache.
  const std::uint64_t most = std::min(limits::kBatchBytes, arena->length_bytes() / 4);
  while (!todo.empty()) {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    while (count < std::min(todo.size(), limits::kBatchObjects)) {
      bytes += std::max<std::uint64_t>(items[todo[count]].source.bytes.size(), limits::kMinSlabBytes);
      if (count > 0 && bytes > most) break;
      ++count;
    }
    put_group(space, items, options, *arena, todo.first(count), out);
    todo = todo.subspan(count);
  }
}

void CacheClient::Impl::put_group(std::string_view space, std::span<const PutItem> items,
                                  const PutOptions& options, const RemoteRegion& arena,
                                  std::span<const std::size_t> group, std::vector<Status>& out) {
  wire::ReserveRequest request{
      std::string(space), options.replace, static_cast<std::uint64_t>(options.ttl.count()), {}};
  for (const std::size_t i : group)
    request.items.push_back({std::string(items[i].key), items[i].source.bytes.size()});
  auto reply = call<wire::ReserveReply>("reserve", request);
  if (reply && reply->items.size() != group.size()) reply = bad_reply("reserve");
  if (!reply) {
    // A failed reserve has no effect that the caller could see.
    for (const std::size_t i : group) out[i] = Status(reply.error()).with_maybe_executed(false);
    return;
  }
  std::vector<Haul> hauls;
  Indices of;  // hauls[k] is of items[of[k]]
  wire::Ids unused;
  for (std::size_t k = 0; k < group.size(); ++k) {
    const wire::Reserved& reserved = reply->items[k];
    const PutItem& item = items[group[k]];
    Status& status = out[group[k]];
    status = reserved.outcome.status();
    if (!status.ok()) continue;
    const std::uint64_t length = item.source.bytes.size();
    auto extents = wire::unpack_extents(reserved.extents, length, arena.length_bytes());
    if (!extents) {
      status = bad_reply("reserve");
      unused.push_back(reserved.version);
      continue;
    }
    Haul& haul = hauls.emplace_back();
    of.push_back(group[k]);
    haul.space = space;
    haul.key = item.key;
    haul.version = reserved.version;
    haul.source = item.source.bytes.data();
    haul.region = item.source.region;
    haul.extents = std::move(*extents);
    haul.length = length;
  }
  Transfer(peer_, staging_, options_.timeout).run(Direction::kWrite, arena, hauls);
  for (const Haul& haul : hauls) {
    if (!haul.status.ok()) unused.push_back(haul.version);
  }
  seal(hauls, of, out);
  tell("abort", unused);
}

void CacheClient::Impl::seal(std::span<const Haul> hauls, std::span<const std::size_t> of,
                             std::vector<Status>& out) {
  std::vector<wire::SealItem> items;
  for (const Haul& haul : hauls) {
    if (haul.status.ok()) items.push_back({haul.version, haul.checksum});
  }
  Result<wire::Outcomes> reply = wire::Outcomes();
  if (!items.empty()) reply = call<wire::Outcomes>("seal", items);
  if (reply && reply->size() != items.size()) reply = bad_reply("seal").with_maybe_executed(true);
  std::size_t next = 0;
  for (std::size_t k = 0; k < hauls.size(); ++k) {
    Status& status = out[of[k]];
    if (!hauls[k].status.ok()) {
      status = Status(hauls[k].status).with_maybe_executed(false);
    } else {
      status = reply ? (*reply)[next++].status() : reply.error();
      if (status.code() == Code::kNotFound)
        status = Status(Code::kAborted, "the connection to the cache broke, and the reservation with it");
    }
  }
}

// ---- get

std::vector<Status> CacheClient::Impl::get(std::string_view space, std::span<const std::string_view> keys,
                                           Sink& sink, std::vector<std::uint64_t>& lengths) {
  std::vector<Status> out(keys.size());
  lengths.assign(keys.size(), 0);
  Indices todo(keys.size());
  std::iota(todo.begin(), todo.end(), std::size_t{0});
  get_pass(space, keys, todo, sink, lengths, out);
  std::erase_if(todo, [&](std::size_t i) {
    return out[i].code() != Code::kAborted && out[i].code() != Code::kUnavailable;
  });
  if (!todo.empty()) {
    forget_arenas();
    get_pass(space, keys, todo, sink, lengths, out);
  }
  for (Status& status : out) status = std::move(status).with_maybe_executed(false);
  return out;
}

void CacheClient::Impl::get_pass(std::string_view space, std::span<const std::string_view> keys,
                                 std::span<const std::size_t> todo, Sink& sink,
                                 std::vector<std::uint64_t>& lengths, std::vector<Status>& out) {
  const auto arena = this->arena(Direction::kRead);
  if (!arena) {
    for (const std::size_t i : todo) out[i] = arena.error();
    return;
  }
  // Looks up only as many objects at a time as can be read within their leases. The sizes of the
  // objects read so far determine the next number.
  std::size_t count = limits::kFirstLookup;
  while (!todo.empty()) {
    count = std::min(count, todo.size());
    const std::uint64_t bytes = get_group(space, keys, *arena, todo.first(count), sink, lengths, out);
    todo = todo.subspan(count);
    count = std::clamp<std::size_t>(limits::kBatchBytes / std::max<std::uint64_t>(bytes / count, 1), 1,
                                    limits::kBatchObjects);
  }
}

std::uint64_t CacheClient::Impl::get_group(std::string_view space, std::span<const std::string_view> keys,
                                           const RemoteRegion& arena, std::span<const std::size_t> group,
                                           Sink& sink, std::vector<std::uint64_t>& lengths,
                                           std::vector<Status>& out) {
  wire::Keys names;
  for (const std::size_t i : group) names.emplace_back(keys[i]);
  const TimePoint asked = steady_clock().now();
  auto reply = call<wire::LookupReply>("lookup", std::string(space), names);
  if (reply && reply->items.size() != group.size()) reply = bad_reply("lookup");
  if (!reply) {
    for (const std::size_t i : group) out[i] = reply.error();
    return 0;
  }
  std::vector<Haul> hauls;
  Indices of;  // hauls[k] is of reply->items[of[k]]
  wire::Ids leases;
  std::uint64_t bytes = 0;
  for (std::size_t k = 0; k < group.size(); ++k) {
    const wire::Found& found = reply->items[k];
    Status& status = out[group[k]];
    status = with_key(found.outcome.status(), space, keys[group[k]]);
    if (!status.ok()) continue;
    leases.push_back(found.lease);
    auto haul = prepare(space, keys[group[k]], found, arena.length_bytes(), group[k], sink);
    if (!haul) {
      status = std::move(haul).error();
      continue;
    }
    bytes += found.length;
    hauls.push_back(std::move(*haul));
    of.push_back(k);
  }
  Transfer(peer_, staging_, options_.timeout).run(Direction::kRead, arena, hauls);
  const Nanos took = steady_clock().now() - asked;
  tell("release", leases);
  for (std::size_t k = 0; k < hauls.size(); ++k) {
    Status& status = out[group[of[k]]];
    lengths[group[of[k]]] = hauls[k].length;
    if (!hauls[k].status.ok()) {
      status = hauls[k].status;
    } else if (!wire::lease_holds(reply->items[of[k]], reply->ttl_ns, took)) {
      status = Status(Code::kAborted, "reading took longer than the lease of the cache lasts");
    } else if (hauls[k].checksum != reply->items[of[k]].checksum) {
      status = Status(Code::kCorrupt, str("the bytes of ", space, "/", keys[group[of[k]]],
                                          " are not those that were put: its checksum differs"));
    }
  }
  return bytes;
}

Result<Haul> CacheClient::Impl::prepare(std::string_view space, std::string_view key,
                                        const wire::Found& found, std::uint64_t arena_bytes,
                                        std::size_t index, Sink& sink) {
  auto extents = wire::unpack_extents(found.extents, found.length, arena_bytes);
  if (!extents) return bad_reply("lookup");
  auto target = sink(index, found.length);
  if (!target) return std::move(target).error();
  Haul haul;
  haul.space = space;
  haul.key = key;
  haul.version = found.version;
  haul.target = target->bytes.data();
  haul.region = target->region;
  haul.extents = std::move(*extents);
  haul.length = found.length;
  return haul;
}

// ---- the rest

std::vector<Status> CacheClient::Impl::each(const char* method, std::string_view space,
                                            std::span<const std::string_view> keys, bool idempotent) {
  std::vector<Status> out;
  while (!keys.empty()) {
    const auto some = keys.first(std::min(keys.size(), limits::kBatchObjects));
    keys = keys.subspan(some.size());
    auto reply = call_again<wire::Outcomes>(idempotent, method, std::string(space),
                                            wire::Keys(some.begin(), some.end()));
    if (reply && reply->size() != some.size()) reply = bad_reply(method);
    for (std::size_t k = 0; k < some.size(); ++k)
      out.push_back(reply ? with_key((*reply)[k].status(), space, some[k]) : reply.error());
  }
  return out;
}

Result<ObjectInfo> CacheClient::Impl::info(std::string_view space, std::string_view key) {
  const auto reply =
      call_again<std::vector<wire::Found>>(true, "peek", std::string(space), wire::Keys{std::string(key)});
  if (!reply) return reply.error();
  if (reply->size() != 1) return bad_reply("peek");
  const wire::Found& found = reply->front();
  SLIME_TRY(with_key(found.outcome.status(), space, key));
  return ObjectInfo{found.version, found.length, found.checksum, found.pinned};
}

Result<StoreStats> CacheClient::Impl::stats() {
  const auto reply = call_again<wire::Stats>(true, "stats");
  if (!reply) return reply.error();
  return reply->stats();
}

std::vector<Result<std::uint64_t>> CacheClient::Impl::get_into(std::string_view space,
                                                               std::span<const GetItem> items) {
  std::vector<std::string_view> keys;
  for (const GetItem& item : items) keys.push_back(item.key);
  Sink sink = [&](std::size_t i, std::uint64_t length) -> Result<Target> {
    const Target& target = items[i].target;
    if (length <= target.bytes.size()) return target;
    return Status(Code::kInvalidArgument,
                  str("the object has ", length, " bytes, the target only ", target.bytes.size()));
  };
  std::vector<std::uint64_t> lengths;
  std::vector<Status> statuses = get(space, keys, sink, lengths);
  std::vector<Result<std::uint64_t>> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (statuses[i].ok()) {
      out.emplace_back(lengths[i]);
    } else {
      out.emplace_back(std::move(statuses[i]));
    }
  }
  return out;
}

std::vector<Result<ByteVector>> CacheClient::Impl::get_bytes(std::string_view space,
                                                             std::span<const std::string_view> keys) {
  std::vector<ByteVector> bytes(keys.size());
  Sink sink = [&](std::size_t i, std::uint64_t length) -> Result<Target> {
    try {
      bytes[i].resize(length);
    } catch (const std::bad_alloc&) {
      return Status(Code::kResourceExhausted, str("no memory for an object of ", length, " bytes"));
    }
    return Target(bytes[i]);
  };
  std::vector<std::uint64_t> lengths;
  std::vector<Status> statuses = get(space, keys, sink, lengths);
  std::vector<Result<ByteVector>> out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].ok()) {
      out.emplace_back(std::move(bytes[i]));
    } else {
      out.emplace_back(std::move(statuses[i]));
    }
  }
  return out;
}

// ---- the face

Status CacheClientOptions::validate() const {
  if (timeout <= Nanos::zero()) return {Code::kInvalidArgument, "timeout must be positive"};
  if (staging_buffers < 1) return {Code::kInvalidArgument, "staging_buffers must be at least 1"};
  if (staging_buffer_bytes < limits::kMinSlabBytes)
    return {Code::kInvalidArgument, str("staging_buffer_bytes must be at least ", limits::kMinSlabBytes)};
  return {};
}

Result<CacheClient> CacheClient::create(PeerAgent& agent, std::string_view server,
                                        CacheClientOptions options) {
  SLIME_TRY(options.validate());
  if (server.empty()) return Status(Code::kInvalidArgument, "a cache needs a name or an address");
  return CacheClient(std::make_unique<Impl>(agent, server, options));
}

CacheClient::CacheClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CacheClient::~CacheClient() = default;
CacheClient::CacheClient(CacheClient&&) noexcept = default;
CacheClient& CacheClient::operator=(CacheClient&&) noexcept = default;

Future<None> CacheClient::put_async(std::string_view space, std::string_view key, Source source,
                                    PutOptions options) {
  return impl_->start<None>(
      [impl = impl_.get(), space = std::string(space), key = std::string(key), source, options] {
        const PutItem item{key, source};
        Status status = std::move(impl->put(space, std::span(&item, 1), options).front());
        return status.ok() ? Result<None>(None{}) : Result<None>(std::move(status));
      });
}

Future<std::uint64_t> CacheClient::get_async(std::string_view space, std::string_view key, Target target) {
  return impl_->start<std::uint64_t>(
      [impl = impl_.get(), space = std::string(space), key = std::string(key), target] {
        const GetItem item{key, target};
        return std::move(impl->get_into(space, std::span(&item, 1)).front());
      });
}

Future<ByteVector> CacheClient::get_async(std::string_view space, std::string_view key) {
  return impl_->start<ByteVector>([impl = impl_.get(), space = std::string(space), key = std::string(key)] {
    const std::string_view view = key;
    return std::move(impl->get_bytes(space, std::span(&view, 1)).front());
  });
}

std::vector<Status> CacheClient::put_many(std::string_view space, std::span<const PutItem> items,
                                          PutOptions options) {
  return impl_->put(space, items, options);
}

Status CacheClient::put(std::string_view space, std::string_view key, Source source, PutOptions options) {
  const PutItem item{key, source};
  return std::move(impl_->put(space, std::span(&item, 1), options).front());
}

std::vector<Result<std::uint64_t>> CacheClient::get_many(std::string_view space,
                                                         std::span<const GetItem> items) {
  return impl_->get_into(space, items);
}

std::vector<Result<ByteVector>> CacheClient::get_many(std::string_view space,
                                                      std::span<const std::string_view> keys) {
  return impl_->get_bytes(space, keys);
}

Result<std::uint64_t> CacheClient::get(std::string_view space, std::string_view key, Target target) {
  const GetItem item{key, target};
  return std::move(get_many(space, std::span(&item, 1)).front());
}

Result<ByteVector> CacheClient::get(std::string_view space, std::string_view key) {
  return std::move(get_many(space, std::span(&key, 1)).front());
}

Result<ObjectInfo> CacheClient::info(std::string_view space, std::string_view key) {
  return impl_->info(space, key);
}

Result<bool> CacheClient::exists(std::string_view space, std::string_view key) {
  const auto info = impl_->info(space, key);
  if (info) return true;
  if (info.error().code() == Code::kNotFound) return false;
  return info.error();
}

Status CacheClient::remove(std::string_view space, std::string_view key) {
  return std::move(impl_->each("remove", space, std::span(&key, 1), false).front());
}
Status CacheClient::pin(std::string_view space, std::string_view key) {
  return std::move(impl_->each("pin", space, std::span(&key, 1), true).front());
}
Status CacheClient::unpin(std::string_view space, std::string_view key) {
  return std::move(impl_->each("unpin", space, std::span(&key, 1), true).front());
}
std::vector<Status> CacheClient::remove_many(std::string_view space, std::span<const std::string_view> keys) {
  return impl_->each("remove", space, keys, false);
}
Result<StoreStats> CacheClient::stats() { return impl_->stats(); }

}  // namespace slime::cache
