#include "base/block_pool.h"

#include <array>
#include <new>
#include <utility>

#include "base/fork.h"
#include "base/limits.h"
#include "base/mutex.h"

namespace slime {
namespace {

constexpr std::size_t kStep = 128;  // sizes are rounded up to a multiple of this
constexpr std::size_t kSizes = limits::kPooledBlockBytes / kStep;
// A thread and the process exchange this many blocks at a time, so that a thread that only takes
// and a thread that only gives lock once for many blocks.
constexpr std::size_t kExchange = limits::kBlocksOfThread / 2;

// The sanitizers find uses of freed blocks only if the blocks are freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPools = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kPools = false;
#else
constexpr bool kPools = true;
#endif
#else
constexpr bool kPools = true;
#endif

struct FreeBlock {
  FreeBlock* next = nullptr;
};

// A stack of free blocks of one size.
struct FreeBlocks {
  FreeBlock* first = nullptr;
  std::size_t count = 0;

  void push(void* block) {
    first = ::new (block) FreeBlock{first};
    ++count;
  }
  void* pop() {
    FreeBlock* const out = std::exchange(first, first->next);
    --count;
    return out;
  }
  void move_to(FreeBlocks& other, std::size_t most) {
    for (std::size_t i = 0; i < most && count > 0; ++i) other.push(pop());
  }
  void free_all() {
    while (count > 0) ::operator delete(pop());
  }
};

using AllSizes = std::array<FreeBlocks, kSizes>;

// Free blocks of the process.
class SharedBlocks {
 public:
  void take(std::size_t size, FreeBlocks& to) {
    const MutexLock lock(mutex_);
    all_[size].move_to(to, kExchange);
  }
  // Leaves in `from` the blocks for which there is no room.
  void give(std::size_t size, FreeBlocks& from, std::size_t most) {
    const MutexLock lock(mutex_);
    FreeBlocks& mine = all_[size];
    const std::size_t room = limits::kBlocksOfProcess - mine.count;
    from.move_to(mine, most < room ? most : room);
  }

 private:
  Mutex mutex_;
  AllSizes all_ SLIME_GUARDED_BY(mutex_);
};

SharedBlocks& shared_blocks() {
  static constinit PerProcess<SharedBlocks> all;
  return all.get();
}

// True once the thread's blocks are freed. Objects that are destroyed later, such as an agent at
// exit, can still read the flag, because it has no destructor.
thread_local bool over = false;

struct BlocksOfThread {
  AllSizes sizes{};
  ~BlocksOfThread() {
    over = true;
    for (std::size_t size = 0; size < kSizes; ++size) {
      if (sizes[size].count > 0) shared_blocks().give(size, sizes[size], sizes[size].count);
      sizes[size].free_all();
    }
  }
};

// Returns the thread's free blocks of this size; null: blocks of this size are not kept.
FreeBlocks* blocks_for(std::size_t size) {
  if (!kPools || size >= kSizes || over) return nullptr;
  thread_local BlocksOfThread mine;
  return &mine.sizes[size];
}

std::size_t size_of(std::size_t bytes) { return bytes == 0 ? 0 : (bytes - 1) / kStep; }

}  // namespace

void* take_pooled(std::size_t bytes) {
  const std::size_t size = size_of(bytes);
  FreeBlocks* const mine = blocks_for(size);
  // A block of a size that is kept has the rounded size always: another thread may keep it.
  if (mine == nullptr) return ::operator new(size < kSizes ? (size + 1) * kStep : bytes);
  if (mine->count == 0) shared_blocks().take(size, *mine);
  return mine->count > 0 ? mine->pop() : ::operator new((size + 1) * kStep);
}

void give_pooled(void* block, std::size_t bytes) noexcept {
  const std::size_t size = size_of(bytes);
  FreeBlocks* const mine = blocks_for(size);
  if (mine == nullptr) return ::operator delete(block);
  if (mine->count >= limits::kBlocksOfThread) shared_blocks().give(size, *mine, kExchange);
  if (mine->count >= limits::kBlocksOfThread) return ::operator delete(block);
  mine->push(block);
}

}  // namespace slime
