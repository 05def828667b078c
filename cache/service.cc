#include "cache/service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/str.h"
#include "cache/checksum.h"

namespace slime::cache {
namespace {

using rpc::CallInfo;

constexpr std::uint64_t kMaxTtlNs = std::uint64_t{1} << 62;

ClientId client_of(const CallInfo& call) { return ClientId{call.connection}; }

rpc::MethodOptions fast(std::vector<std::string> parameters) {
  return {.run = rpc::Run::kInline, .parameters = std::move(parameters)};
}

// Returns the shorter of two leases; `before_ns` 0: no lease was granted yet.
std::uint64_t shortest(std::uint64_t before_ns, Nanos ttl) {
  const auto ttl_ns = static_cast<std::uint64_t>(ttl.count());
  return before_ns == 0 ? ttl_ns : std::min(before_ns, ttl_ns);
}

}  // namespace

void CacheService::client_gone(std::uint64_t connection) {
  const MutexLock lock(mutex_);
  store_.client_gone(ClientId{connection}, clock_.now());
}

StoreStats CacheService::stats() {
  const MutexLock lock(mutex_);
  return store_.stats(clock_.now());
}

void CacheService::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  verified_.wait(mutex_, [this]() SLIME_REQUIRES(mutex_) { return verifying_ == 0; });
}

template <class Elements, class F>
Result<wire::Outcomes> CacheService::for_each(const Elements& elements, F fn) {
  const MutexLock lock(mutex_);
  SLIME_TRY(admit(elements.size()));
  const TimePoint now = clock_.now();
  wire::Outcomes out;
  out.reserve(elements.size());
  for (const auto& element : elements) out.emplace_back(fn(store_, element, now));
  return out;
}

Status CacheService::admit(std::size_t objects) const {
  if (closed_) return Status(Code::kUnavailable, "the cache is closing");
  if (objects > limits::kBatchObjects)
    return Status(Code::kInvalidArgument,
                  str("a call takes at most ", limits::kBatchObjects, " objects, not ", objects));
  return {};
}

Status CacheService::add_methods(rpc::Service& service, Bytes arena) {
  arena_ = arena;
  const auto self = shared_from_this();
  SLIME_TRY(service.add(
      "reserve",
      [self](const CallInfo& call, const wire::ReserveRequest& request) {
        return self->reserve(call, request);
      },
      fast({"request"})));
  // Hashing takes long, so a seal that verifies runs on the pool, not on the loop.
  const rpc::Run seal_run = verify_on_seal_ ? rpc::Run::kPool : rpc::Run::kInline;
  SLIME_TRY(service.add("seal",
                        [self](const CallInfo& call, const std::vector<wire::SealItem>& items) {
                          return self->seal(call, items);
                        },
                        {.run = seal_run, .parameters = {"items"}}));
  SLIME_TRY(service.add(
      "abort",
      [self](const CallInfo& call, const wire::Ids& versions) {
        return self->for_each(versions, [&](Store& store, std::uint64_t version, TimePoint now) {
          return store.abort(version, client_of(call), now);
        });
      },
      fast({"versions"})));
  SLIME_TRY(service.add(
      "lookup",
      [self](const CallInfo& call, const std::string& space, const wire::Keys& keys) {
        return self->lookup(call, space, keys);
      },
      fast({"space", "keys"})));
  SLIME_TRY(service.add(
      "release",
      [self](const CallInfo& call, const wire::Ids& leases) {
        return self->for_each(leases, [&](Store& store, std::uint64_t lease, TimePoint now) {
          return store.release(lease, client_of(call), now);
        });
      },
      fast({"leases"})));
  SLIME_TRY(service.add(
      "peek", [self](const std::string& space, const wire::Keys& keys) { return self->peek(space, keys); },
      fast({"space", "keys"})));
  SLIME_TRY(service.add(
      "remove",
      [self](const std::string& space, const wire::Keys& keys) {
        return self->for_each(keys, [&](Store& store, const std::string& key, TimePoint now) {
          return store.remove(space, key, now);
        });
      },
      fast({"space", "keys"})));
  for (const bool pinned : {true, false}) {
    SLIME_TRY(service.add(
        pinned ? "pin" : "unpin",
        [self, pinned](const std::string& space, const wire::Keys& keys) {
          return self->for_each(keys, [&](Store& store, const std::string& key, TimePoint now) {
            return store.pin(space, key, pinned, now);
          });
        },
        fast({"space", "keys"})));
  }
  return service.add(
      "stats",
      [self]() -> Result<wire::Stats> {
        const MutexLock lock(self->mutex_);
        SLIME_TRY(self->admit(0));
        return wire::Stats(self->store_.stats(self->clock_.now()));
      },
      fast({}));
}

Result<wire::ReserveReply> CacheService::reserve(const CallInfo& call, const wire::ReserveRequest& request) {
  const MutexLock lock(mutex_);
  SLIME_TRY(admit(request.items.size()));
  if (request.ttl_ns > kMaxTtlNs) return Status(Code::kInvalidArgument, "a time to live above a century");
  const ReserveOptions options{.ttl = Nanos(static_cast<std::int64_t>(request.ttl_ns)),
                               .replace = request.replace};
  const TimePoint now = clock_.now();
  wire::ReserveReply reply;
  std::size_t extents = 0;
  for (const wire::ReserveItem& item : request.items) {
    wire::Reserved& out = reply.items.emplace_back();
    if (extents > limits::kBatchExtents) {
      out.outcome = wire::Outcome(Status(Code::kResourceExhausted, "too many extents for one reply"));
      continue;
    }
    const auto got = store_.reserve(request.space, item.key, item.length, options, client_of(call), now);
    out.outcome = wire::Outcome(got.status());
    if (!got) continue;
    reply.ttl_ns = shortest(reply.ttl_ns, got->ttl);
    out.version = got->version;
    out.extents = wire::pack_extents(got->extents);
    extents += got->extents.size();
  }
  return reply;
}

Result<wire::Outcomes> CacheService::seal(const CallInfo& call, const std::vector<wire::SealItem>& items) {
  const ClientId client = client_of(call);
  std::vector<Status> verified(items.size());
  if (verify_on_seal_ && items.size() <= limits::kBatchObjects) {
    for (std::size_t i = 0; i < items.size(); ++i) verified[i] = verify(client, items[i]);
  }
  return for_each(items, [&](Store& store, const wire::SealItem& item, TimePoint now) {
    Status& check = verified[static_cast<std::size_t>(&item - items.data())];
    if (check.ok()) return store.seal(item.version, item.checksum, client, now);
    // Ignores the error of abort(), since the reservation may be gone: returns the check's error.
    store.abort(item.version, client, now).ignore();
    return std::move(check);
  });
}

// Checks the checksum of the written bytes, without holding the lock meanwhile. If the reservation
// ends during the check, the seal that follows fails.
Status CacheService::verify(ClientId client, const wire::SealItem& item) {
  std::optional<Store::Reserved> reserved;
  {
    const MutexLock lock(mutex_);
    if (closed_) return {};
    auto got = store_.reserved(item.version, client, clock_.now());
    if (!got) return {};
    reserved = std::move(*got);
    ++verifying_;
  }
  Checksum sum;
  sum.start(reserved->space, reserved->key, item.version);
  for (const Extent& extent : reserved->extents) sum.update(arena_.subspan(extent.offset, extent.length));
  {
    const MutexLock lock(mutex_);
    --verifying_;
  }
  verified_.notify_all();
  if (sum.value() == item.checksum) return {};
  return Status(Code::kCorrupt, "the bytes in the cache are not those that the writer's checksum is of");
}

Result<wire::LookupReply> CacheService::lookup(const CallInfo& call, const std::string& space,
                                               const wire::Keys& keys) {
  const MutexLock lock(mutex_);
  SLIME_TRY(admit(keys.size()));
  const TimePoint now = clock_.now();
  wire::LookupReply reply;
  std::size_t extents = 0;
  for (const std::string& key : keys) {
    wire::Found& out = reply.items.emplace_back();
    if (extents > limits::kBatchExtents) {
      out.outcome = wire::Outcome(Status(Code::kResourceExhausted, "too many extents for one reply"));
      continue;
    }
    const auto got = store_.lookup(space, key, client_of(call), now);
    out.outcome = wire::Outcome(got.status());
    if (!got) continue;
    out.ttl_ns = static_cast<std::uint64_t>(got->lease_ttl.count());
    reply.ttl_ns = shortest(reply.ttl_ns, got->lease_ttl);
    out.version = got->object.version;
    out.length = got->object.length;
    out.checksum = got->object.checksum;
    out.pinned = got->object.pinned;
    out.lease = got->lease;
    out.extents = wire::pack_extents(got->extents);
    extents += got->extents.size();
  }
  return reply;
}

Result<std::vector<wire::Found>> CacheService::peek(const std::string& space, const wire::Keys& keys) {
  const MutexLock lock(mutex_);
  SLIME_TRY(admit(keys.size()));
  std::vector<wire::Found> out;
  for (const std::string& key : keys) {
    wire::Found& found = out.emplace_back();
    const auto got = store_.peek(space, key, clock_.now());
    found.outcome = wire::Outcome(got.status());
    if (!got) continue;
    found.version = got->version;
    found.length = got->length;
    found.checksum = got->checksum;
    found.pinned = got->pinned;
  }
  return out;
}

}  // namespace slime::cache
