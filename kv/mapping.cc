#include "kv/mapping.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/str.h"

namespace slime::kv {
namespace {

// Places the units of one plane of one side.
struct Placed {
  Placed(const Geometry& geometry, const Plane& its_plane)
      : plane(its_plane),
        heads(geometry.rank_heads()),
        tokens(geometry.block_tokens),
        order(geometry.order) {}
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t token, std::uint64_t head) const {
    const std::uint64_t here = head - heads.first;
    const std::uint64_t unit = order == Order::kNHD ? token * heads.count + here : here * tokens + token;
    return plane.offset + unit * plane.unit_bytes;
  }
  Plane plane;
  Heads heads;
  std::uint64_t tokens;
  Order order;
};

void append_plane(std::vector<Piece>& pieces, const Placed& local, const Placed& remote, Heads heads) {
  const auto add = [&](std::uint64_t token, std::uint64_t head) {
    append_piece(pieces, {local.plane.region, remote.plane.region, local.offset_of(token, head),
                          remote.offset_of(token, head), local.plane.unit_bytes});
  };
  if (local.order == Order::kNHD) {  // in the order of the local bytes
    for (std::uint64_t token = 0; token < local.tokens; ++token)
      for (std::uint64_t head = heads.first; head < heads.end(); ++head) add(token, head);
  } else {
    for (std::uint64_t head = heads.first; head < heads.end(); ++head)
      for (std::uint64_t token = 0; token < local.tokens; ++token) add(token, head);
  }
}

// Returns the first and the number of the numbers in both ranges.
std::pair<std::uint32_t, std::uint32_t> common(std::uint32_t first_a, std::uint32_t count_a,
                                               std::uint32_t first_b, std::uint32_t count_b) {
  const std::uint32_t first = std::max(first_a, first_b);
  const std::uint32_t end = std::min(first_a + count_a, first_b + count_b);
  return {first, end > first ? end - first : 0};
}

// Returns why the blocks of the geometries cannot be mapped; empty if they can.
std::string_view difference(const Geometry& a, const Geometry& b) {
  if ((a.form == Form::kLatent) != (b.form == Form::kLatent)) return "one is latent";
  if (a.block_tokens != b.block_tokens) return "tokens of a block differ";
  if (a.heads != b.heads) return "heads differ";
  if (a.head_bytes != b.head_bytes) return "bytes of a head differ";
  if (a.scale_bytes != b.scale_bytes) return "bytes of scales differ";
  return "";
}

Status no_mapping(std::string_view why, const Geometry& local, const Geometry& remote) {
  return Status(Code::kInvalidArgument, str("the caches do not match: ", why, "; here: ", local.to_string(),
                                            "; at the peer: ", remote.to_string()));
}

Result<Geometry> of_degree(const Geometry& like, std::uint32_t degree) {
  SLIME_TRY(like.validate());
  Geometry out = like;
  out.tp_degree = degree;
  out.tp_rank = 0;
  SLIME_TRY(out.validate());
  return out;
}

}  // namespace

void append_piece(std::vector<Piece>& pieces, const Piece& next) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.local_region == next.local_region && last.remote_region == next.remote_region &&
        last.local_offset + last.bytes == next.local_offset &&
        last.remote_offset + last.bytes == next.remote_offset) {
      last.bytes += next.bytes;
      return;
    }
  }
  pieces.push_back(next);
}

Result<Mapping> map_blocks(const Geometry& local, const Geometry& remote) {
  SLIME_TRY(local.validate());
  SLIME_TRY(remote.validate());
  if (const auto why = difference(local, remote); !why.empty()) return no_mapping(why, local, remote);
  Mapping out;
  std::tie(out.first_layer, out.layers) =
      common(local.first_layer, local.layers, remote.first_layer, remote.layers);
  if (out.layers == 0) return no_mapping("they have no layer in common", local, remote);
  const Heads here = local.rank_heads();
  const Heads there = remote.rank_heads();
  std::tie(out.heads.first, out.heads.count) = common(here.first, here.count, there.first, there.count);
  if (out.heads.count == 0) return no_mapping("their ranks have no head in common", local, remote);
  const std::vector<Plane> from = local.planes();
  const std::vector<Plane> to = remote.planes();
  for (std::size_t i = 0; i < from.size(); ++i)
    append_plane(out.pieces, Placed(local, from[i]), Placed(remote, to[i]), out.heads);
  for (const Piece& piece : out.pieces) out.block_bytes += piece.bytes;
  return out;
}

Result<std::vector<std::uint32_t>> sources_of(const Geometry& to, std::uint32_t from_degree) {
  const auto from = of_degree(to, from_degree);
  if (!from) return from.status();
  const Heads needed = to.rank_heads();
  std::vector<std::uint32_t> out;
  if (from_degree > to.heads) {
    const std::uint32_t replicas = from_degree / to.heads;
    for (std::uint32_t head = needed.first; head < needed.end(); ++head)
      out.push_back(head * replicas + to.tp_rank % replicas);
  } else {
    const std::uint32_t each = to.heads / from_degree;
    for (std::uint32_t rank = needed.first / each; rank * each < needed.end(); ++rank) out.push_back(rank);
  }
  return out;
}

Result<std::vector<std::uint32_t>> targets_of(const Geometry& from, std::uint32_t to_degree) {
  auto to = of_degree(from, to_degree);
  if (!to) return to.status();
  std::vector<std::uint32_t> out;
  for (; to->tp_rank < to_degree; ++to->tp_rank) {
    const auto sources = sources_of(*to, from.tp_degree);
    if (!sources) return sources.status();
    if (std::find(sources->begin(), sources->end(), from.tp_rank) != sources->end())
      out.push_back(to->tp_rank);
  }
  return out;
}

}  // namespace slime::kv
