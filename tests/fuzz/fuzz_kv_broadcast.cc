// Decodes any bytes as an offer and as a place, which the owner of a broadcast sends to readers.
// They are refused, or valid and encoded again without a change. The chunks of an offer are exactly
// its bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kv/offer.h"

namespace {

void check_offer(slime::Bytes bytes) {
  const auto offer = slime::kv::Offer::decode(bytes);
  if (!offer) return;
  SLIME_CHECK(offer->validate().ok());
  const auto again = slime::kv::Offer::decode(offer->encode());
  SLIME_CHECK(again.has_value() && *again == *offer);
  const slime::kv::ChunkMap map(*offer);
  SLIME_CHECK(map.chunks() <= slime::kv::limits::kChunks);
  if (map.chunks() > 4096) return;
  std::uint64_t total = 0;
  for (std::uint64_t chunk = 0; chunk < map.chunks(); ++chunk)
    for (const slime::kv::PartRange& range : map.ranges(chunk)) {
      const std::uint64_t size = offer->parts.at(range.part).bytes;
      SLIME_CHECK(range.bytes > 0 && range.offset < size && range.bytes <= size - range.offset);
      total += range.bytes;
    }
  SLIME_CHECK(total == offer->total_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const slime::Bytes bytes = std::as_bytes(std::span(data, size));
  check_offer(bytes);
  const auto place = slime::kv::Place::decode(bytes);
  if (!place) return 0;
  const auto again = slime::kv::Place::decode(place->encode());
  SLIME_CHECK(again.has_value() && *again == *place);
  return 0;
}
