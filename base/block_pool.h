#pragma once

#include <cstddef>

namespace slime {

// Takes a block of `bytes` bytes, aligned as by operator new, for an object that lives shortly and
// is made again and again, such as the record of one operation. The thread's own free blocks come
// first, then those of the process, then operator new. Thread: any.
void* take_pooled(std::size_t bytes);

// Gives back a block of take_pooled(). `bytes`: the size that it was taken with. The thread keeps
// at most limits::kBlocksOfThread blocks of each size, and the process limits::kBlocksOfProcess;
// the memory of further blocks is freed. Thread: any, also another one than the taker's.
void give_pooled(void* block, std::size_t bytes) noexcept;

}  // namespace slime
