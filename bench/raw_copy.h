#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace slime::bench {

// What the machine can copy without Slime: bare loops over lists of blocks. Blocks, on one core.

// Where one block comes from and where it goes, in bytes from the start of each memory.
struct Block {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
};

// How bytes are copied by a loop of this process.
enum class CopyWay : std::uint8_t {
  kGlibc,        // memcpy
  kStreaming,    // stores past the cache, one line after the other
  kInterleaved,  // the same over four pages in turns, with prefetch
};
// False: this processor or this size has no such copy.
[[nodiscard]] bool can_copy(CopyWay way, std::size_t size);

// A list that is gone round and round. Each function returns GB/s.
struct CopyList {
  std::span<const Block> blocks;
  std::size_t size = 0;  // of each block
  bool to_remote = true;
};
double copy_speed(const CopyList& list, std::byte* local, std::byte* remote, CopyWay way, Nanos span);

// The same with process_vm_writev (to_remote) or process_vm_readv: `remote` is an address in process `pid`,
// and `batch` blocks go with one call, as far as the kernel takes them.
Result<double> process_vm_speed(const CopyList& list, std::byte* local, pid_t pid, std::uintptr_t remote,
                                std::size_t batch, Nanos span);

}  // namespace slime::bench
