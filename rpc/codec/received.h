#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"

namespace slime::rpc {

// Size of a huge page. Large memory is aligned to it and asks for huge pages.
inline constexpr std::size_t kHugePage = 2 << 20;

// Memory for received attachments without a destination, and for bodies (Buffer). Large memory is
// kept for reuse: writing 16 MiB takes 8.3 ms into fresh pages and 0.6 ms into existing ones. Pages
// are not touched before bytes arrive. Thread: any.
struct Received {
  MutableBytes bytes;                  // not zeroed
  std::shared_ptr<const void> keeper;  // null: no memory
};
Received make_received(std::size_t length_bytes);

// Gives the pages of large memory from make_received() back to the kernel, so that the memory reads
// as zeros. Does nothing for other memory.
void discard_received(Bytes bytes);

// Moves the kept memory that was given back before the last call into `out`; the caller passes each
// part to unmap_received(). For IdleMemory alone.
void take_unused_received(std::vector<MutableBytes>& out);
void unmap_received(MutableBytes block) noexcept;

// Returns the number of bytes that the process keeps for reuse.
std::uint64_t kept_received_bytes();
// Returns the bytes of large memory that is in use, and may be kept later.
std::uint64_t used_received_bytes();

}  // namespace slime::rpc
