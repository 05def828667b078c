#include "kv/gather.h"

#include <algorithm>
#include <map>

#include "base/str.h"
#include "kv/broadcast_names.h"
#include "kv/cache_state.h"
#include "kv/move_state.h"
#include "rpc/codec.h"

namespace slime::kv {
namespace {

Nanos gather_timeout(Nanos timeout) {
  return timeout == Nanos::zero() ? slime::limits::kOperationDeadline : timeout;
}

Nanos gather_left(TimePoint deadline) {
  if (deadline == kNever) return Nanos::max();
  return std::max<Nanos>(deadline - steady_clock().now(), std::chrono::milliseconds(1));
}

struct Candidate {
  GatherPiece piece;
  const Shard* shard = nullptr;
};

Status wrong_gather(const std::string& why) { return Status(Code::kInvalidArgument, "gather: " + why); }

// Chooses the pieces of one tensor: replicas number `turn`.
Status cover(const Tensor& tensor, const std::vector<Candidate>& all, std::size_t turn,
             std::vector<GatherPiece>& out) {
  std::vector<Candidate> wholes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Candidate>> ranges;  // by first and count
  for (const Candidate& each : all) {
    if (!(each.shard->tensor == tensor))
      return wrong_gather(str("this process has ", tensor.to_string(), ", owner ", each.piece.owner, " ",
                              each.shard->tensor.to_string()));
    if (each.shard->whole()) wholes.push_back(each);
    ranges[{each.shard->first, each.shard->count}].push_back(each);
  }
  if (!wholes.empty()) {
    out.push_back(wholes[turn % wholes.size()].piece);
    return {};
  }
  if (all.empty()) return wrong_gather(str("no owner has ", tensor.name));
  const std::uint32_t dim = all.front().shard->dim;
  for (const Candidate& each : all)
    if (each.shard->dim != dim)
      return wrong_gather(
          str(tensor.name, " is split along dimension ", dim, " and along ", each.shard->dim));
  std::uint64_t next = 0;
  for (const auto& [range, replicas] : ranges) {
    if (range.first != next)
      return wrong_gather(str("the shards of ", tensor.name, range.first < next ? " overlap" : " leave a gap",
                              " at index ", std::min(range.first, next), " of dimension ", dim));
    next += range.second;
    out.push_back(replicas[turn % replicas.size()].piece);
  }
  if (next != tensor.shape[dim])
    return wrong_gather(str("the shards of ", tensor.name, " end at index ", next, " of ", tensor.shape[dim],
                            " of dimension ", dim));
  return {};
}

}  // namespace

Result<std::vector<GatherPiece>> plan_gather(std::span<const Tensor> tensors,
                                             std::span<const std::vector<Shard>> owners) {
  std::map<std::string_view, std::vector<Candidate>> by_name;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SLIME_TRY(tensors[i].validate());
    if (!by_name.try_emplace(tensors[i].name).second)
      return wrong_gather(str("two tensors have the name ", tensors[i].name));
  }
  for (std::size_t owner = 0; owner < owners.size(); ++owner)
    for (std::size_t shard = 0; shard < owners[owner].size(); ++shard) {
      const auto found = by_name.find(owners[owner][shard].tensor.name);
      if (found != by_name.end()) found->second.push_back({{0, owner, shard}, &owners[owner][shard]});
    }
  std::vector<GatherPiece> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<Candidate>& all = by_name[tensors[i].name];
    for (Candidate& each : all) each.piece.tensor = i;
    SLIME_TRY(cover(tensors[i], all, i, out));
  }
  return out;
}

struct Gather::State {
  struct Owner {
    Peer peer;  // of one connection
    std::vector<Shard> shards;
    std::map<std::size_t, RemoteRegion> regions;  // of the shards that are read
  };
  Status ask(std::span<const Peer> peers, const std::string& name, TimePoint deadline);
  Status look_up(const std::string& name, TimePoint deadline);
  // Calls emit(owner, copies, bytes) for each operation.
  template <class Emit>
  void each_operation(Emit emit) const;

  std::shared_ptr<Driver> driver;
  std::vector<Tensor> tensors;
  std::vector<MemoryRegion> local;  // by tensor
  std::vector<Owner> owners;
  std::vector<GatherPiece> pieces;  // by owner
};

Status Gather::State::ask(std::span<const Peer> peers, const std::string& name, TimePoint deadline) {
  std::vector<Future<ByteVector>> futures;
  futures.reserve(peers.size());
  for (const Peer& peer : peers) {
    auto bound = peer.of_connection(gather_left(deadline));
    if (!bound) return std::move(bound).error().with_context(str("owner ", futures.size()));
    owners.push_back({std::move(*bound), {}, {}});
    futures.push_back(owners.back()
                          .peer.with_timeout(gather_left(deadline))
                          .call<ByteVector>(shards_service(name), "shards"));
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const auto encoded = futures[i].wait();
    if (!encoded)
      return encoded.status().with_context(str("the shards \"", name, "\" of ", owners[i].peer.name()));
    auto shards = decode_shards(*encoded);
    if (!shards) return std::move(shards).error().with_context(owners[i].peer.name());
    owners[i].shards = std::move(*shards);
  }
  return {};
}

Status Gather::State::look_up(const std::string& name, TimePoint deadline) {
  std::vector<Future<RemoteRegion>> futures;
  futures.reserve(pieces.size());
  for (const GatherPiece& piece : pieces)
    futures.push_back(owners[piece.owner].peer.lookup_region(str(shards_regions(name), piece.shard),
                                                             gather_left(deadline)));
  Status wrong;
  for (std::size_t i = 0; i < futures.size(); ++i) {
    Owner& owner = owners[pieces[i].owner];
    const Shard& shard = owner.shards[pieces[i].shard];
    auto region = futures[i].wait();
    if (region && region->length_bytes() != shard.bytes())
      region =
          Status(Code::kInvalidArgument, str("the region of ", shard.tensor.name, " has ",
                                             region->length_bytes(), " bytes, its shard ", shard.bytes()));
    if (region)
      owner.regions.emplace(pieces[i].shard, std::move(*region));
    else if (wrong.ok())
      wrong = region.status().with_context(owner.peer.name());
  }
  return wrong;
}

template <class Emit>
void Gather::State::each_operation(Emit emit) const {
  std::vector<Copy> copies;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const GatherPiece& piece = pieces[i];
    const Owner& owner = owners[piece.owner];
    const Shard& shard = owner.shards[piece.shard];
    const std::uint64_t run = shard.run_bytes();
    const std::uint64_t outer = shard.outer();
    for (std::uint64_t row = 0; row < outer; ++row) {
      copies.push_back({local[piece.tensor], shard.offset_bytes() + row * shard.stride_bytes(),
                        owner.regions.at(piece.shard), row * run, run});
      bytes += run;
      const bool last = row + 1 == outer && (i + 1 == pieces.size() || pieces[i + 1].owner != piece.owner);
      if (!last && copies.size() < limits::kGatherRuns && bytes < limits::kGatherBytes) continue;
      emit(owner, copies, bytes);
      copies.clear();
      bytes = 0;
    }
  }
}

Result<Gather> Gather::connect(PeerAgent& agent, std::span<const Peer> owners,
                               std::span<const Tensor> tensors, std::span<const MutableBytes> memory,
                               const GatherOptions& options) {
  SLIME_TRY(check_broadcast_name(options.name));
  if (options.timeout < Nanos::zero()) return wrong_gather("the timeout is negative");
  if (owners.empty() || tensors.empty() || memory.size() != tensors.size())
    return wrong_gather(
        str(owners.size(), " owners, ", tensors.size(), " tensors, ", memory.size(), " regions of memory"));
  const TimePoint deadline = deadline_after(steady_clock().now(), gather_timeout(options.timeout));
  Gather out(std::make_shared<State>());
  State& state = *out.state_;
  state.driver = agent.driver();
  state.tensors.assign(tensors.begin(), tensors.end());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SLIME_TRY(tensors[i].validate());
    if (memory[i].size() != tensors[i].bytes())
      return wrong_gather(str("the memory of ", tensors[i].to_string(), " has ", memory[i].size(), " bytes"));
  }
  SLIME_TRY(state.ask(owners, options.name, deadline));
  std::vector<std::vector<Shard>> shards;
  shards.reserve(state.owners.size());
  for (const State::Owner& owner : state.owners) shards.push_back(owner.shards);
  auto pieces = plan_gather(tensors, shards);
  if (!pieces) return std::move(pieces).error();
  state.pieces = std::move(*pieces);
  std::stable_sort(state.pieces.begin(), state.pieces.end(),
                   [](const GatherPiece& a, const GatherPiece& b) { return a.owner < b.owner; });
  SLIME_TRY(state.look_up(options.name, deadline));
  state.local.reserve(memory.size());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    auto region = agent.register_memory(memory[i].data(), memory[i].size(), Rights::kLocal);
    if (!region) return std::move(region).error().with_context(tensors[i].name);
    state.local.push_back(std::move(*region));
  }
  return out;
}

Gather::~Gather() { close(limits::kDestructorBound).ignore(); }

Gather& Gather::operator=(Gather&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

Move Gather::read(Nanos timeout) const {
  if (!state_) return Move::failed(Status(Code::kInvalidArgument, "an empty kv::Gather"));
  if (timeout < Nanos::zero()) return Move::failed(wrong_gather("the timeout is negative"));
  std::uint64_t operations = 0;
  std::uint64_t total = 0;
  state_->each_operation([&](const State::Owner&, const std::vector<Copy>&, std::uint64_t bytes) {
    ++operations;
    total += bytes;
  });
  const auto move = std::make_shared<Move::State>(state_->driver, operations, total, gather_timeout(timeout));
  Move out(move, move->future());
  state_->each_operation(
      [&](const State::Owner& owner, const std::vector<Copy>& copies, std::uint64_t bytes) {
        Peer peer = owner.peer;
        peer.read(copies, move->left())
            .then([state = state_, move, bytes, name = peer.name()](const Result<None>& done) {
              if (done) move->moved(bytes);
              move->finish_layer(done.status().with_context(name));
            });
      });
  return out;
}

Status Gather::close(Nanos timeout) { return state_ ? close_all(state_->local, timeout) : Status(); }

}  // namespace slime::kv
