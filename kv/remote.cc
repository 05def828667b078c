#include "kv/remote.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/str.h"
#include "kv/cache_state.h"
#include "kv/move_state.h"

namespace slime::kv {

struct Remote::State {
  Peer peer;
  std::shared_ptr<Cache::State> cache;  // this process's
  std::string name;                     // of the peer's cache
  Geometry geometry;                    // the peer's
  Mapping mapping;
  std::vector<std::uint64_t> local_strides;  // of the regions, from one block to the next
  std::vector<std::uint64_t> remote_strides;
  std::vector<RemoteRegion> regions;  // by layer of the mapping, then by region
  std::shared_ptr<Notifier> notifier;

  [[nodiscard]] const RemoteRegion& region(std::uint32_t layer, std::uint32_t number) const {
    return regions[std::size_t{layer - mapping.first_layer} * remote_strides.size() + number];
  }
  Status look_up(TimePoint deadline);
  [[nodiscard]] Status check(Transfer transfer, std::span<const std::uint64_t> local_ids,
                             std::span<const std::uint64_t> remote_ids, const MoveOptions& options) const;
  // Starts the operation of one layer.
  [[nodiscard]] Future<None> start(Transfer transfer, std::uint32_t layer, std::span<const Piece> pieces,
                                   Nanos timeout) const;
};

namespace {

Nanos timeout_or_default(Nanos timeout) {
  return timeout == Nanos::zero() ? slime::limits::kOperationDeadline : timeout;
}

Nanos left_until(TimePoint deadline) {
  if (deadline == kNever) return Nanos::max();
  return std::max<Nanos>(deadline - steady_clock().now(), std::chrono::milliseconds(1));
}

std::vector<std::uint64_t> strides_of(const Geometry& geometry) {
  std::vector<std::uint64_t> out;
  for (const RegionShape& shape : geometry.regions()) out.push_back(shape.block_bytes);
  return out;
}

Status check_ids(std::string_view where, std::span<const std::uint64_t> ids, std::uint64_t blocks) {
  const auto wrong = std::find_if(ids.begin(), ids.end(), [&](std::uint64_t id) { return id >= blocks; });
  if (wrong == ids.end()) return {};
  return Status(Code::kInvalidArgument, str(where, " block ", wrong - ids.begin(), " has the id ", *wrong,
                                            ", of ", blocks, " blocks"));
}

// Refuses an id that is there twice, since its block would get two contents.
Status check_distinct(std::string_view where, std::span<const std::uint64_t> ids) {
  std::vector<std::uint64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return {};
  return Status(Code::kInvalidArgument, str(where, " id ", *twice, " is there twice: its block is a target"));
}

// Returns the pieces of all blocks with their places in the regions. Pieces that follow each other
// on both sides become one.
std::vector<Piece> pieces_of(const Remote::State& remote, std::span<const std::uint64_t> local_ids,
                             std::span<const std::uint64_t> remote_ids) {
  std::vector<Piece> out;
  // One piece of all blocks after the other: whole blocks that follow each other then touch.
  for (const Piece& piece : remote.mapping.pieces) {
    const std::uint64_t local_stride = remote.local_strides[piece.local_region];
    const std::uint64_t remote_stride = remote.remote_strides[piece.remote_region];
    for (std::size_t i = 0; i < local_ids.size(); ++i) {
      Piece next = piece;
      next.local_offset += local_ids[i] * local_stride;
      next.remote_offset += remote_ids[i] * remote_stride;
      append_piece(out, next);
    }
  }
  return out;
}

}  // namespace

Status Remote::State::look_up(TimePoint deadline) {
  const std::vector<RegionShape> shapes = geometry.regions();
  std::vector<Future<RemoteRegion>> futures;
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < mapping.layers; ++i)
    for (const RegionShape& shape : shapes) {
      names.push_back(region_name(name, mapping.first_layer + i, shape.name));
      futures.push_back(peer.lookup_region(names.back(), left_until(deadline)));
    }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    auto region = futures[i].wait();
    if (!region) return std::move(region).error().with_context(names[i]);
    const std::uint64_t needed = geometry.blocks * shapes[i % shapes.size()].block_bytes;
    if (region->length_bytes() < needed)
      return Status(Code::kInvalidArgument, str(names[i], " has ", region->length_bytes(), " bytes, but ",
                                                needed, " by the peer's geometry: ", geometry.to_string()));
    regions.push_back(std::move(*region));
  }
  return {};
}

Status Remote::State::check(Transfer transfer, std::span<const std::uint64_t> local_ids,
                            std::span<const std::uint64_t> remote_ids, const MoveOptions& options) const {
  if (local_ids.size() != remote_ids.size())
    return Status(Code::kInvalidArgument,
                  str(local_ids.size(), " local ids, ", remote_ids.size(), " remote ids"));
  SLIME_TRY(check_ids("local", local_ids, cache->geometry.blocks));
  SLIME_TRY(check_ids("remote", remote_ids, geometry.blocks));
  SLIME_TRY(transfer == Transfer::kWrite ? check_distinct("remote", remote_ids)
                                         : check_distinct("local", local_ids));
  if (options.layer &&
      (*options.layer < mapping.first_layer || *options.layer - mapping.first_layer >= mapping.layers))
    return Status(Code::kInvalidArgument,
                  str("layer ", *options.layer, " is not in both caches; here: ", cache->geometry.to_string(),
                      "; at the peer: ", geometry.to_string()));
  if (transfer == Transfer::kRead && options.request)
    return Status(Code::kInvalidArgument, "a read tells the peer nothing: it has no request");
  if (options.timeout < Nanos::zero()) return Status(Code::kInvalidArgument, "the timeout is negative");
  return {};
}

Future<None> Remote::State::start(Transfer transfer, std::uint32_t layer, std::span<const Piece> pieces,
                                  Nanos timeout) const {
  if (pieces.empty()) return Future<None>::ready(None{});
  std::vector<Copy> copies;
  copies.reserve(pieces.size());
  for (const Piece& piece : pieces)
    copies.push_back({cache->region(layer, piece.local_region), piece.local_offset,
                      region(layer, piece.remote_region), piece.remote_offset, piece.bytes});
  Peer to = peer;
  return transfer == Transfer::kWrite ? to.write(copies, timeout) : to.read(copies, timeout);
}

namespace {

Move move_blocks(const std::shared_ptr<const Remote::State>& remote, Transfer transfer,
                 std::span<const std::uint64_t> local_ids, std::span<const std::uint64_t> remote_ids,
                 const MoveOptions& options) {
  if (!remote) return Move::failed(Status(Code::kInvalidArgument, "an empty kv::Remote"));
  if (Status wrong = remote->check(transfer, local_ids, remote_ids, options); !wrong.ok())
    return Move::failed(std::move(wrong));
  const std::uint32_t first = options.layer.value_or(remote->mapping.first_layer);
  const std::uint32_t layers = options.layer ? 1 : remote->mapping.layers;
  const Nanos timeout = timeout_or_default(options.timeout);
  const std::uint64_t layer_bytes = local_ids.size() * remote->mapping.block_bytes;
  const auto move =
      std::make_shared<Move::State>(remote->cache->driver, layers, layers * layer_bytes, timeout);
  Move out(move, move->future());
  const std::vector<Piece> pieces = pieces_of(*remote, local_ids, remote_ids);
  std::vector<std::shared_ptr<Notifier::Entry>> entries(layers);
  if (options.request)  // in order, before the first operation can end
    for (std::uint32_t i = 0; i < layers; ++i)
      entries[i] = remote->notifier->add(*options.request, move, first + i);
  for (std::uint32_t i = 0; i < layers; ++i)
    remote->start(transfer, first + i, pieces, move->left())
        .then([remote, move, layer_bytes, entry = entries[i], layer = first + i,
               request = options.request](Result<None> done) {
          Status status = done.status();
          if (status.ok()) move->moved(layer_bytes);
          if (!status.ok()) status = std::move(status).with_context(str("layer ", layer));
          if (entry) return remote->notifier->ended(*request, entry, std::move(status));
          move->finish_layer(std::move(status));
        });
  return out;
}

}  // namespace

const Geometry& Remote::geometry() const { return state_->geometry; }
const Mapping& Remote::mapping() const { return state_->mapping; }
const Peer& Remote::peer() const { return state_->peer; }

Move Remote::write_blocks(std::span<const std::uint64_t> local_ids, std::span<const std::uint64_t> remote_ids,
                          const MoveOptions& options) const {
  return move_blocks(state_, Transfer::kWrite, local_ids, remote_ids, options);
}
Move Remote::read_blocks(std::span<const std::uint64_t> local_ids, std::span<const std::uint64_t> remote_ids,
                         const MoveOptions& options) const {
  return move_blocks(state_, Transfer::kRead, local_ids, remote_ids, options);
}

Result<Remote> connect(const Peer& peer, const Cache& cache, std::string_view name, Nanos timeout) {
  if (!cache.state()) return Status(Code::kInvalidArgument, "an empty kv::Cache");
  auto out = std::make_shared<Remote::State>();
  out->cache = cache.state();
  out->name = name.empty() ? cache.name() : std::string(name);
  SLIME_TRY(check_cache_name(out->name));
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout_or_default(timeout));
  auto bound = peer.of_connection(left_until(deadline));
  if (!bound) return std::move(bound).error();
  out->peer = std::move(*bound);
  const std::string service = service_name(out->name);
  const auto encoded =
      out->peer.with_timeout(left_until(deadline)).call<ByteVector>(service, "geometry").wait();
  if (!encoded)
    return encoded.status().with_context(str("the KV cache \"", out->name, "\" of ", peer.name()));
  const auto geometry = Geometry::decode(*encoded);
  if (!geometry) return geometry.status().with_context(peer.name());
  out->geometry = *geometry;
  auto mapping = map_blocks(cache.geometry(), *geometry);
  if (!mapping) return std::move(mapping).error();
  out->mapping = std::move(*mapping);
  out->local_strides = strides_of(cache.geometry());
  out->remote_strides = strides_of(*geometry);
  SLIME_TRY(out->look_up(deadline));
  out->notifier = std::make_shared<Notifier>(
      [to = out->peer, service, heads = out->mapping.heads](std::uint64_t request, std::uint32_t layer,
                                                            Nanos left, std::function<void(Status)> done) {
        to.with_timeout(left)
            .call<void>(service, "arrived", request, layer, heads.first, heads.count)
            .then([done = std::move(done)](const Result<None>& told) { done(told.status()); });
      });
  return Remote(std::move(out));
}

}  // namespace slime::kv
