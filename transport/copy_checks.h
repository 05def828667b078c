#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/memory.h"

namespace slime::transport {

// Returns whether [offset, offset + length) lies inside `size` bytes. Computes no sum that can
// overflow.
inline bool in_bounds(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

// Returns a text for an error: "8 bytes at 60 are not inside the local region of 64 bytes".
// `region`: "local" or "remote".
std::string not_inside(std::uint64_t offset, std::uint64_t length, std::string_view region,
                       std::uint64_t size);

inline bool copy_is_right(const CopyBlock& copy, Rights need, std::uint64_t endpoint_id) {
  return copy.local != nullptr && copy.local->valid() && copy.remote != nullptr &&
         copy.remote->endpoint_id() == endpoint_id &&
         in_bounds(copy.local_offset, copy.length_bytes, copy.local->length_bytes()) &&
         in_bounds(copy.remote_offset, copy.length_bytes, copy.remote->length_bytes()) &&
         allows(copy.remote->rights(), need);
}

// Says what is wrong with a copy that copy_is_right() refused.
Status explain_copy(const CopyBlock& copy, Rights need, std::uint64_t endpoint_id,
                    std::string_view peer_name);

// Checks one copy before it is posted, as far as all providers check alike: both regions are named,
// the remote region belongs to this connection, the range is inside both regions, and the rights
// suffice. The provider itself checks that the local region belongs to its device.
inline Status check_copy(const CopyBlock& copy, Rights need, std::uint64_t endpoint_id,
                         std::string_view peer_name) {
  if (copy_is_right(copy, need, endpoint_id)) return {};
  return explain_copy(copy, need, endpoint_id, peer_name);
}

// Returns a new value for Endpoint::id().
std::uint64_t new_endpoint_id();

}  // namespace slime::transport
