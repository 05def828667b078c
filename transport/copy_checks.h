#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "transport/memory.h"

namespace slime::transport {

// True when [offset, offset + length) lies inside `size` bytes; no sum can overflow.
inline bool in_bounds(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

// What every endpoint checks of a block before it posts anything: regions named, of this connection, bounds
// on both sides, rights. The provider checks that the local region is its own.
Status check_copy(const Copy& copy, Rights need, std::uint64_t endpoint_id, std::string_view peer_name);

// For Endpoint::id().
std::uint64_t new_endpoint_id();

}  // namespace slime::transport
