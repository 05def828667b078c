#pragma once

#include <cstdint>

#include "kv/geometry.h"

namespace slime::kv::test {

// Returns the number of the byte of a model's block that lies at `offset` of a rank's region: kind,
// token, head, byte. Divides the offset, the other way round than the mapping computes it. For less
// than 64 tokens, heads and bytes.
inline std::uint32_t number_of(const Geometry& g, std::size_t region, std::uint64_t offset) {
  const bool apart = g.form == Form::kApart;
  const bool scale = region >= (apart ? 2U : 1U);
  const std::uint64_t unit = scale ? g.scale_bytes : g.head_bytes;
  const std::uint64_t heads = g.tp_degree >= g.heads ? 1 : g.heads / g.tp_degree;
  const std::uint64_t half = g.block_tokens * heads * unit;
  const std::uint64_t value = apart ? region % 2 : offset / half;
  const std::uint64_t in_half = apart ? offset : offset % half;
  const std::uint64_t index = in_half / unit;
  const std::uint64_t token = g.order == Order::kNHD ? index / heads : index % g.block_tokens;
  const std::uint64_t head = g.order == Order::kNHD ? index % heads : index / g.block_tokens;
  const std::uint64_t first = std::uint64_t{g.tp_rank} * g.heads / g.tp_degree;
  return static_cast<std::uint32_t>((((scale ? 2 + value : value) * 64 + token) * 64 + first + head) * 64 +
                                    in_half % unit);
}

}  // namespace slime::kv::test
