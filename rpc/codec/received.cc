#include "rpc/codec/received.h"

#include <sys/mman.h>

#include <list>
#include <map>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"
#include "rpc/limits.h"
#include "rpc/payload.h"

namespace slime::rpc {
namespace {

constexpr std::size_t kStep = 64 * 1024;

std::size_t round_up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

struct Block {
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool fresh = true;  // given back since the last take_unused()
  // Maps memory for a block. A large block is aligned to huge pages and asks for huge pages,
  // because a page fault for each 4 KiB is expensive.
  static Block map(std::size_t length) {
    const std::size_t step = length >= kHugePage ? kHugePage : kStep;
    const std::size_t size = round_up(length, step);
    const std::size_t extra = step == kHugePage ? kHugePage : 0;
    void* const mapped =
        ::mmap(nullptr, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return {};
    auto* const begin = static_cast<std::byte*>(mapped);
    if (extra == 0) return {begin, size};
    const std::size_t before = (extra - reinterpret_cast<std::uintptr_t>(begin) % extra) % extra;
    if (before != 0) ::munmap(begin, before);
    if (before != extra) ::munmap(begin + before + size, extra - before);
    ::madvise(begin + before, size, MADV_HUGEPAGE);  // may fail
    return {begin + before, size};
  }
  void unmap() const { ::munmap(data, size); }
};

class BlockPool {
 public:
  std::optional<Block> take(std::size_t length) {
    const MutexLock lock(mutex_);
    auto best = kept_.end();
    // Finds the smallest kept block that fits; of equal blocks the one used last, which may be in
    // the CPU caches.
    for (auto at = kept_.begin(); at != kept_.end(); ++at) {
      const bool fits = at->size >= length && at->size / 2 <= round_up(length, kStep);
      if (fits && (best == kept_.end() || at->size <= best->size)) best = at;
    }
    if (best == kept_.end()) return std::nullopt;
    const Block out = *best;
    bytes_ -= out.size;
    kept_.erase(best);
    return out;
  }
  // Keeps the block for reuse. Drops the oldest blocks if too many bytes are kept.
  void give(std::byte* data) {
    std::list<Block> gone;
    {
      const MutexLock lock(mutex_);
      const auto in_use = in_use_.extract(data);
      if (in_use.empty()) return;  // a block that the parent process allocated before fork()
      const Block block{data, in_use.mapped()};
      used_bytes_ -= block.size;
      // A block that is larger than the bound is unmapped, without dropping blocks that are kept.
      const bool fits = block.size <= limits::kReceivedKeptBytes;
      (fits ? kept_ : gone).push_back(block);
      if (fits) bytes_ += block.size;
      while (bytes_ > limits::kReceivedKeptBytes) {
        bytes_ -= kept_.front().size;
        gone.splice(gone.end(), kept_, kept_.begin());
      }
    }
    for (const Block& each : gone) each.unmap();
  }
  void note_in_use(Block block) {
    const MutexLock lock(mutex_);
    in_use_.emplace(block.data, block.size);
    used_bytes_ += block.size;
  }
  // Gives the block's pages back to the kernel. The caller owns the block, so it cannot be given
  // back meanwhile.
  void discard(const std::byte* data) {
    std::size_t size = 0;
    {
      const MutexLock lock(mutex_);
      const auto block = in_use_.find(data);
      if (block != in_use_.end()) size = block->second;
    }
    if (size != 0) ::madvise(const_cast<std::byte*>(data), size, MADV_DONTNEED);
  }
  // Moves the blocks that were given back before the last call into `out`.
  void take_unused(std::list<Block>& out) {
    const MutexLock lock(mutex_);
    for (auto next = kept_.begin(); next != kept_.end();) {
      const auto here = next++;
      if (std::exchange(here->fresh, false)) continue;
      bytes_ -= here->size;
      out.splice(out.end(), kept_, here);
    }
  }
  std::uint64_t bytes() {
    const MutexLock lock(mutex_);
    return bytes_;
  }
  std::uint64_t used_bytes() {
    const MutexLock lock(mutex_);
    return used_bytes_;
  }

 private:
  Mutex mutex_;
  std::list<Block> kept_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t bytes_ SLIME_GUARDED_BY(mutex_) = 0;
  std::map<const std::byte*, std::size_t> in_use_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ SLIME_GUARDED_BY(mutex_) = 0;
};

// Returns the pool of this process. It is never destroyed: received memory may be freed at the very
// end of the process.
BlockPool& block_pool() {
  static constinit PerProcess<BlockPool> all;
  return all.get();
}

}  // namespace

std::byte* detail::take_block(std::size_t length_bytes) {
  const auto kept = block_pool().take(length_bytes);
  const Block block = kept ? *kept : Block::map(length_bytes);
  if (block.data != nullptr) block_pool().note_in_use(block);
  return block.data;
}

void detail::give_block(std::byte* block) noexcept { block_pool().give(block); }

Received make_received(std::size_t length_bytes) {
  auto made = std::make_shared<const Buffer>(length_bytes);
  if (made->data() == nullptr) return {};
  return {{made->data(), length_bytes}, std::move(made)};
}

void discard_received(Bytes bytes) { block_pool().discard(bytes.data()); }

void take_unused_received(std::vector<MutableBytes>& out) {
  std::list<Block> unused;
  block_pool().take_unused(unused);
  for (const Block& each : unused) out.emplace_back(each.data, each.size);
}

void unmap_received(MutableBytes block) noexcept { ::munmap(block.data(), block.size()); }

std::uint64_t kept_received_bytes() { return block_pool().bytes(); }
std::uint64_t used_received_bytes() { return block_pool().used_bytes(); }

}  // namespace slime::rpc
