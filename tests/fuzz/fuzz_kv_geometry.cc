// The geometry of a peer's KV cache: any bytes are refused, or read as a valid geometry, which
// travels again without a change and whose regions hold every piece of its mapping to itself.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/mapping.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using slime::kv::Geometry;
  const auto geometry = Geometry::decode(std::as_bytes(std::span(data, size)));
  if (!geometry) return 0;
  SLIME_CHECK(geometry->validate().ok());
  const auto again = Geometry::decode(geometry->encode());
  SLIME_CHECK(again.has_value() && *again == *geometry);
  SLIME_CHECK(geometry->layer_bytes() <= slime::kv::limits::kLayerBytes);
  const std::uint64_t units = std::uint64_t{geometry->block_tokens} * geometry->rank_heads().count;
  if (units > 4096) return 0;  // the mapping looks at each unit
  const auto mapping = slime::kv::map_blocks(*geometry, *again);
  SLIME_CHECK(mapping.has_value());
  SLIME_CHECK(mapping->block_bytes == geometry->block_bytes());
  const std::vector<slime::kv::RegionShape> regions = geometry->regions();
  for (const slime::kv::Piece& piece : mapping->pieces)
    SLIME_CHECK(piece.local_offset == piece.remote_offset &&
                piece.local_offset + piece.bytes <= regions.at(piece.local_region).block_bytes);
  return 0;
}
