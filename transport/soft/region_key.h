#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "transport/memory.h"

namespace slime::transport::soft {

// The key of a region on the software providers is one number, which peers cannot guess.
inline PackedKey pack_key(std::uint64_t key) { return PackedKey(std::as_bytes(std::span(&key, 1))); }

// Returns nothing for a key of another provider.
inline std::optional<RemoteAccess> unpack_key(const PackedKey& packed) {
  ByteReader in(packed.bytes());
  RemoteAccess out;
  out.key = in.read<std::uint64_t>();
  if (!in.complete()) return std::nullopt;
  return out;
}

}  // namespace slime::transport::soft
