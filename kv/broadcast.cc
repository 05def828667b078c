#include "kv/broadcast.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/random.h"
#include "base/str.h"
#include "kv/broadcast_names.h"
#include "kv/cache_state.h"
#include "kv/offer.h"
#include "kv/tree.h"
#include "rpc/codec.h"

namespace slime::kv {

std::string owner_service(std::string_view name) { return str("kv.broadcast.", name); }
std::string replica_service(std::string_view name) { return str("kv.replica.", name); }
std::string owner_regions(std::string_view name) { return str("kv/broadcast/", name, "/"); }
std::string replica_regions(std::string_view name) { return str("kv/replica/", name, "/"); }

Result<std::vector<MemoryRegion>> publish_parts(PeerAgent& agent, std::span<const NamedMemory> parts,
                                                std::string_view prefix) {
  std::vector<MemoryRegion> out;
  out.reserve(parts.size());
  for (const NamedMemory& part : parts) {
    auto region = agent.register_memory(part.memory.data(), part.memory.size(), Rights::kRemoteRead);
    if (!region) return std::move(region).error().with_context(part.name);
    SLIME_TRY(agent.publish(str(prefix, out.size()), *region));
    out.push_back(std::move(*region));
  }
  return out;
}

std::vector<Part> parts_of(std::span<const NamedMemory> memory) {
  std::vector<Part> out;
  out.reserve(memory.size());
  for (const NamedMemory& each : memory) out.push_back({each.name, each.memory.size()});
  return out;
}

std::string shards_service(std::string_view name) { return str("kv.shards.", name); }
std::string shards_regions(std::string_view name) { return str("kv/shards/", name, "/"); }

Status check_broadcast_name(std::string_view name) {
  if (check_cache_name(name).ok()) return {};
  return Status(
      Code::kInvalidArgument,
      str("\"", name, "\" is no name of a broadcast or of shards: 1 to 64 letters, digits, '_', '-'"));
}

// The owner's part of the protocol. Handlers on the loop and threads of the user use it.
struct Broadcast::State {
  State(Offer first, BroadcastOptions its_options)
      : options(std::move(its_options)),
        total_bytes(first.total_bytes()),
        chunks(first.chunks()),
        offer(std::move(first)),
        tree(options.fan_out, options.patience) {}

  static Status serve(PeerAgent& agent, const std::shared_ptr<State>& self);
  // The calls of readers. All arguments are a peer's.
  Result<ByteVector> tell_offer();
  Result<ByteVector> join(const rpc::CallInfo& call, std::uint64_t version, std::string address);
  Result<ByteVector> move(const rpc::CallInfo& call, std::uint64_t version, std::uint64_t ticket,
                          std::uint64_t failed);
  Status report(const rpc::CallInfo& call, std::uint64_t version, std::uint64_t ticket, std::uint64_t ready,
                std::uint64_t new_bytes);
  void leave(std::uint64_t connection, std::uint64_t ticket);
  void drop(std::uint64_t connection);

  [[nodiscard]] Status check(std::uint64_t version) const SLIME_REQUIRES(mutex);
  Status close(Nanos timeout);

  const BroadcastOptions options;
  const std::uint64_t total_bytes;
  const std::uint64_t chunks;

  mutable Mutex mutex;
  std::vector<MemoryRegion> regions SLIME_GUARDED_BY(mutex);  // by part; empty once it is closed
  Offer offer SLIME_GUARDED_BY(mutex);                        // the newest version
  bool changing SLIME_GUARDED_BY(mutex) = false;
  bool closed SLIME_GUARDED_BY(mutex) = false;
  Tree tree SLIME_GUARDED_BY(mutex);  // of the newest version
  std::uint64_t bytes_out SLIME_GUARDED_BY(mutex) = 0;
  std::uint64_t moves SLIME_GUARDED_BY(mutex) = 0;
};

namespace {

Status check_broadcast(const Offer& offer, const BroadcastOptions& options) {
  SLIME_TRY(check_broadcast_name(options.name));
  if (options.fan_out == 0 || options.fan_out > limits::kFanOut)
    return Status(Code::kInvalidArgument,
                  str("fan_out is ", options.fan_out, ", must be from 1 to ", limits::kFanOut));
  return offer.validate();
}

std::uint64_t random_number() {
  std::uint64_t out = 0;
  random_bytes(std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

}  // namespace

Status Broadcast::State::serve(PeerAgent& agent, const std::shared_ptr<State>& self) {
  rpc::Service service(owner_service(self->options.name));
  const auto inline_method = [](std::vector<std::string> parameters, std::string doc) {
    return rpc::MethodOptions{
        .run = rpc::Run::kInline, .parameters = std::move(parameters), .doc = std::move(doc)};
  };
  SLIME_TRY(service.add(
      "offer", [self] { return self->tell_offer(); },
      inline_method({}, "The newest version of this broadcast (kv/README.md).")));
  SLIME_TRY(service.add(
      "join",
      [self](const rpc::CallInfo& call, std::uint64_t version, std::string address) {
        return self->join(call, version, std::move(address));
      },
      inline_method({"version", "address"}, "Gives a new reader, at this address, a place.")));
  SLIME_TRY(service.add(
      "move",
      [self](const rpc::CallInfo& call, std::uint64_t version, std::uint64_t ticket, std::uint64_t failed) {
        return self->move(call, version, ticket, failed);
      },
      inline_method({"version", "ticket", "failed"}, "Gives a reader another parent.")));
  SLIME_TRY(service.add(
      "report",
      [self](const rpc::CallInfo& call, std::uint64_t version, std::uint64_t ticket, std::uint64_t ready,
             std::uint64_t new_bytes) { return self->report(call, version, ticket, ready, new_bytes); },
      inline_method({"version", "ticket", "ready", "new_bytes"},
                    "A reader has so many chunks, and has read so many bytes more from the owner.")));
  SLIME_TRY(service.add(
      "leave",
      [self](const rpc::CallInfo& call, std::uint64_t ticket) { self->leave(call.connection, ticket); },
      inline_method({"ticket"}, "A reader gives its place back.")));
  SLIME_TRY(agent.serve(service));
  agent.on_disconnect([weak = std::weak_ptr(self)](const std::string&, std::uint64_t connection) {
    if (const auto state = weak.lock()) state->drop(connection);
  });
  return {};
}

Status Broadcast::State::check(std::uint64_t version) const {
  if (closed) return Status(Code::kUnavailable, "the broadcast is closed");
  if (!changing && version == offer.version) return {};
  return Status(Code::kAborted,
                str("version ", version, " of the broadcast \"", options.name, "\" is out of date: version ",
                    offer.version + (changing ? 1 : 0), changing ? " is being prepared" : " is offered"));
}

Result<ByteVector> Broadcast::State::tell_offer() {
  const MutexLock lock(mutex);
  if (closed) return Status(Code::kUnavailable, "the broadcast is closed");
  if (changing) return Status(Code::kResourceExhausted, "the owner is changing the memory: ask again soon");
  return offer.encode();
}

Result<ByteVector> Broadcast::State::join(const rpc::CallInfo& call, std::uint64_t version,
                                          std::string address) {
  const MutexLock lock(mutex);
  SLIME_TRY(check(version));
  const auto place = tree.join(call.connection, std::move(address), steady_clock().now());
  if (!place) return place.status();
  return place->encode();
}

Result<ByteVector> Broadcast::State::move(const rpc::CallInfo& call, std::uint64_t version,
                                          std::uint64_t ticket, std::uint64_t failed) {
  const MutexLock lock(mutex);
  SLIME_TRY(check(version));
  ++moves;
  const auto place = tree.move(call.connection, ticket, failed, steady_clock().now());
  if (!place) return place.status();
  return place->encode();
}

Status Broadcast::State::report(const rpc::CallInfo& call, std::uint64_t version, std::uint64_t ticket,
                                std::uint64_t ready, std::uint64_t new_bytes) {
  const MutexLock lock(mutex);
  // Bytes that a reader of an earlier version has read have left the owner, too.
  if (new_bytes <= total_bytes) bytes_out += new_bytes;
  SLIME_TRY(check(version));
  if (ready > chunks || new_bytes > total_bytes)
    return Status(Code::kInvalidArgument, str("a reader with ", ready, " of ", chunks, " chunks, and ",
                                              new_bytes, " more of ", total_bytes, " bytes"));
  return tree.report(call.connection, ticket, ready, ready == chunks, steady_clock().now());
}

void Broadcast::State::leave(std::uint64_t connection, std::uint64_t ticket) {
  const MutexLock lock(mutex);
  tree.leave(connection, ticket);
}

void Broadcast::State::drop(std::uint64_t connection) {
  const MutexLock lock(mutex);
  tree.drop(connection);
}

Status Broadcast::State::close(Nanos timeout) {
  std::vector<MemoryRegion> closing;  // the agent's service keeps this state
  {
    const MutexLock lock(mutex);
    closed = true;
    tree.clear();
    closing.swap(regions);
  }
  return close_all(closing, timeout);
}

Result<Broadcast> Broadcast::over(PeerAgent& agent, std::span<const NamedMemory> parts,
                                  BroadcastOptions options) {
  Offer offer{.source = random_number(),
              .version = 1,
              .chunk_bytes = options.chunk_bytes,
              .patience = std::chrono::duration_cast<std::chrono::milliseconds>(options.patience),
              .parts = parts_of(parts)};
  SLIME_TRY(check_broadcast(offer, options));
  Broadcast out(std::make_shared<State>(std::move(offer), std::move(options)));
  auto regions = publish_parts(agent, parts, owner_regions(out.name()));
  if (!regions) return std::move(regions).error();
  {
    const MutexLock lock(out.state_->mutex);
    out.state_->regions = std::move(*regions);
  }
  SLIME_TRY(State::serve(agent, out.state_));
  return out;
}

Broadcast::~Broadcast() { close(limits::kDestructorBound).ignore(); }

Broadcast& Broadcast::operator=(Broadcast&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

Status Broadcast::begin_update() {
  const MutexLock lock(state_->mutex);
  if (state_->closed) return Status(Code::kUnavailable, "the broadcast is closed");
  state_->changing = true;
  state_->tree.clear();
  return {};
}

Result<std::uint64_t> Broadcast::publish() {
  const MutexLock lock(state_->mutex);
  if (state_->closed) return Status(Code::kUnavailable, "the broadcast is closed");
  if (!state_->changing) return Status(Code::kInvalidArgument, "publish() without begin_update()");
  state_->changing = false;
  return ++state_->offer.version;
}

BroadcastInfo Broadcast::info() const {
  const MutexLock lock(state_->mutex);
  return {.version = state_->changing ? 0 : state_->offer.version,
          .readers = state_->tree.readers(),
          .complete = state_->tree.complete(),
          .from_owner = state_->tree.owner_children(),
          .total_bytes = state_->total_bytes,
          .bytes_out = state_->bytes_out,
          .moves = state_->moves};
}

const std::string& Broadcast::name() const { return state_->options.name; }

Status Broadcast::close(Nanos timeout) { return state_ ? state_->close(timeout) : Status(); }

}  // namespace slime::kv
