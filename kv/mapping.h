#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "kv/geometry.h"

namespace slime::kv {

// Bytes of a block that are adjacent on both sides. Offsets are from the start of the block in its
// region; regions are numbers in Geometry::regions() of their side.
struct Piece {
  std::uint32_t local_region = 0;
  std::uint32_t remote_region = 0;
  std::uint64_t local_offset = 0;
  std::uint64_t remote_offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Piece&) const = default;
};

// The layers and heads that two caches share, and the places of a block's bytes on both sides.
struct Mapping {
  std::uint32_t first_layer = 0;  // the model's number of the first layer that both have
  std::uint32_t layers = 0;
  Heads heads;                    // of the model, that both ranks have
  std::uint64_t block_bytes = 0;  // of one layer, of all pieces
  std::vector<Piece> pieces{};    // of one block of any layer
};

// Appends a piece, or makes the last piece longer if that ends on both sides where `next` begins.
void append_piece(std::vector<Piece>& pieces, const Piece& next);

// Computes the mapping of two valid geometries. They may differ in the number of blocks, the range
// of layers, tensor parallelism, order, and keys and values apart or fused. Errors:
// kInvalidArgument, with both geometries in the text, if they differ otherwise, or share no layer
// or no head.
Result<Mapping> map_blocks(const Geometry& local, const Geometry& remote);

// Returns the ranks of a cache of degree `from_degree` that together have all heads of `to`, each
// head once. Ranks that have equal heads are used in turn by the ranks of `to`. Errors:
// kInvalidArgument for a degree that the heads do not have.
Result<std::vector<std::uint32_t>> sources_of(const Geometry& to, std::uint32_t from_degree);
// Returns the ranks of a cache of degree `to_degree` that have `from` among their sources_of(). May
// be empty: other ranks have the same heads.
Result<std::vector<std::uint32_t>> targets_of(const Geometry& from, std::uint32_t to_degree);

}  // namespace slime::kv
