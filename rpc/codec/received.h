#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace slime::rpc {

// Large memory asks for pages of this size, where the kernel has them.
inline constexpr std::size_t kHugePage = 2 << 20;

// Memory that attachments are read into where nobody named any, and bodies (Buffer). That of large ones is
// kept for the next: the kernel takes ten times as long to make fresh pages as the bytes take to be copied
// (16 MiB: 8.3 ms, and 0.6 into pages that are there). What is announced is not touched before it comes.
// Thread: any.
struct Received {
  MutableBytes bytes;                  // not zeroed
  std::shared_ptr<const void> keeper;  // null: there is no memory
};
Received make_received(std::size_t length_bytes);

// Gives the pages of large memory that make_received() made back now, while it is still there, for all who
// have it: it reads as zeros from then on. Of other memory nothing.
void discard_received(Bytes bytes);

// What is kept for the next, in this process.
std::uint64_t kept_received_bytes();

}  // namespace slime::rpc
