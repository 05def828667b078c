#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "transport/memory.h"

namespace slime::transport::soft {

// Packs the key of a region of the software engine: one random number of 64 bits.
inline PackedKey pack_key(std::uint64_t key) { return PackedKey(std::as_bytes(std::span(&key, 1))); }

// Unpacks the key; returns nothing if it is the key of another provider.
inline std::optional<RemoteAccess> unpack_key(const PackedKey& packed) {
  ByteReader in(packed.bytes());
  RemoteAccess out;
  out.key = in.read<std::uint64_t>();
  if (!in.complete()) return std::nullopt;
  return out;
}

}  // namespace slime::transport::soft
