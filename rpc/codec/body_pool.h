#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace slime::rpc {

// Memory of bodies. Of short ones each thread keeps a few: a caller that drives its loop itself encodes each
// call where the one before it was, without an allocation. Of large ones the process keeps some: they are
// made by one thread and come back on another, and the kernel takes longer to make their pages than the bytes
// take to be copied. Thread: any.

// Empty, with room for a short body.
ByteVector take_body();
// The same with room for so much.
ByteVector take_body(std::size_t bytes);
// Keeps it for the next one, unless there are enough.
void give_body(ByteVector&& body) noexcept;
// Of large ones, in this process.
std::uint64_t kept_body_bytes();

}  // namespace slime::rpc
