#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/options.h"

namespace slime::bench {

// The limits of copies: bare loops over lists of blocks, on one core. The functions block.

// A block's offsets in both memories, in bytes.
struct Block {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
};

// Returns the blocks that one client moves, in order, for Slime and for the limit. Hot: count x
// inflight blocks, which are moved again and again. Cold: all blocks of both pools, shuffled on
// each side; a whole number of operations.
std::vector<Block> block_list(const Options& options);

// A way to copy.
enum class CopyWay : std::uint8_t {
  kGlibc,        // memcpy
  kStreaming,    // stores past the cache, one line after the other
  kInterleaved,  // the same over four pages in turns, with prefetch
};
// Returns whether this processor can copy blocks of `size` this way.
[[nodiscard]] bool can_copy(CopyWay way, std::size_t size);

// A list of blocks, which repeats. Each function returns GB/s.
struct CopyList {
  std::span<const Block> blocks;
  std::size_t size = 0;  // of each block
  bool to_remote = true;
};
double copy_speed(const CopyList& list, std::byte* local, std::byte* remote, CopyWay way, Nanos span);

// Copies with process_vm_writev (to_remote) or process_vm_readv. `remote` is an address in process
// `pid`. A call has `batch` blocks, or as many as the kernel takes.
Result<double> process_vm_speed(const CopyList& list, std::byte* local, pid_t pid, std::uintptr_t remote,
                                std::size_t batch, Nanos span);

}  // namespace slime::bench
