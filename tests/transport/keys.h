#pragma once

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "transport/memory.h"
#include "transport/soft/region_key.h"

// Regions of the software providers as tests see and forge them.
namespace slime::transport::testing {

inline std::uint64_t key_of(const RegionDescriptor& region) {
  const auto access = soft::unpack_key(region.key);
  SLIME_CHECK(access.has_value());
  return access->key;
}

// What an endpoint with this id makes of it.
inline RemoteRegion remote_of(const RegionDescriptor& region, std::uint64_t endpoint_id = 1) {
  return {region, *soft::unpack_key(region.key), endpoint_id};
}

// With bits of the first key flipped; for any provider, as all pack a key first, and its low byte
// first.
inline PackedKey flipped(const PackedKey& key, std::uint8_t bits) {
  ByteVector bytes(key.bytes().begin(), key.bytes().end());
  bytes.front() ^= std::byte{bits};
  return PackedKey(bytes);
}

}  // namespace slime::transport::testing
