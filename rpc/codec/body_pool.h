#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace slime::rpc {

// A pool that keeps the memory of bodies for reuse. Each thread keeps a few small bodies, so that a
// caller that drives its loop encodes without an allocation. The process keeps some large bodies,
// because one thread allocates them and another frees them, and because making fresh pages takes
// longer than copying the bytes. Thread: any.

// Returns an empty body with room for a small body.
ByteVector take_body();
// Returns an empty body with room for `bytes`.
ByteVector take_body(std::size_t bytes);
// Gives the memory of `body` to the pool, which frees it if the pool keeps enough already.
void give_body(ByteVector&& body) noexcept;
// Moves the large bodies that were given to the pool before the last call into `out`. For
// IdleMemory alone.
void take_unused_bodies(std::vector<ByteVector>& out);
// Frees `body`, and gives its pages back to the kernel: malloc may keep the pages of freed memory.
void free_pages(ByteVector&& body) noexcept;
// Returns the bytes of large bodies that the process keeps.
std::uint64_t kept_body_bytes();

}  // namespace slime::rpc
