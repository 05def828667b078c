#include "rpc/codec/connection_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "rpc/codec/idle_memory.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

// What the blocks of all connections take.
struct AllBlocks {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::size_t> count{0};
};
AllBlocks& all_blocks() {
  static constinit PerProcess<AllBlocks> all;
  return all.get();
}

// One block's part of AllBlocks.
class Counted {
 public:
  explicit Counted(std::uint64_t bytes) : bytes_(bytes) {
    const std::uint64_t sum = all_.bytes += bytes;
    const std::size_t count = ++all_.count;
    fits_ = sum <= limits::kBlocksAllBytes && count <= limits::kBlocksAll;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() {
    all_.bytes -= bytes_;
    --all_.count;
  }
  [[nodiscard]] bool fits() const { return fits_; }

 private:
  AllBlocks& all_ = all_blocks();
  const std::uint64_t bytes_;
  bool fits_ = false;
};

// Returns the bit of a length's size class. A class has the lengths from one power of two up to the
// next.
std::uint64_t size_class(std::uint64_t bytes) { return std::uint64_t{1} << (std::bit_width(bytes) - 1); }

// Returns the size of a block for so many bytes.
std::uint64_t rounded(std::uint64_t bytes) {
  std::uint64_t step = limits::kBlockLeast;
  if (bytes >= 256 << 10) step = 64 << 10;
  if (bytes >= 2 << 20) step = 1 << 20;
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct ConnectionBlocks::Block {
  Block(std::unique_ptr<const Counted> c, transport::DeviceRegion of, bool pins)
      : counted(std::move(c)), region(std::move(of)), size(region.length_bytes()), pinned(pins) {}
  const std::unique_ptr<const Counted> counted;
  transport::DeviceRegion region;
  const std::uint64_t size;
  const bool pinned;
  bool retired = false;  // closed, and not to be used again
  bool lent = false;     // of blocks in use; thread: the loop
  bool fresh = true;     // used since the last sweep
};

MutableBytes ConnectionBlocks::Lease::bytes() const { return block_->region.bytes(); }

const transport::DeviceRegion& ConnectionBlocks::Lease::region() const { return block_->region; }

// Keeps the pages of a pinned block: its registration would not refer to new pages when the block
// is used again.
bool ConnectionBlocks::Lease::discard() const {
  return block_->pinned || ::madvise(block_->region.data(), block_->size, MADV_REMOVE) == 0;
}

void ConnectionBlocks::Lease::retire() const {
  block_->retired = true;
  block_->region.close(Nanos::zero()).ignore();
}

ConnectionBlocks::ConnectionBlocks(transport::Loop& loop, transport::Device& device, std::uint64_t endpoint)
    : loop_(loop), device_(device), endpoint_(endpoint) {}
ConnectionBlocks::~ConnectionBlocks() = default;

// ------------------------------------------------------------------------------------------ taking

ConnectionBlocks::Taken ConnectionBlocks::take_for_attachment(std::uint64_t length_bytes) {
  if (length_bytes < limits::kReceivedBlockBytes || length_bytes > limits::kReceivedBlockMost) return nullptr;
  return take(length_bytes, Make::kIfEarned);
}

ConnectionBlocks::Taken ConnectionBlocks::take_for_received(std::uint64_t length_bytes) {
  if (length_bytes > limits::kBodyBlockMost || !device_.prefers_own_memory()) return nullptr;
  return take(length_bytes, Make::kIfEarned);
}

ConnectionBlocks::Taken ConnectionBlocks::take_to_lend(std::uint64_t length_bytes) {
  if (length_bytes >= limits::kLargeBody) arm_sweep();
  if (length_bytes > limits::kBodyBlockMost || !device_.prefers_own_memory()) return nullptr;
  if (lent_bytes() + length_bytes > limits::kBlocksLentBytes) return nullptr;
  return take(length_bytes, Make::kAtOnce);
}

ConnectionBlocks::Taken ConnectionBlocks::take(std::uint64_t length_bytes, Make rule) {
  std::shared_ptr<Block> block = take_idle(rounded(length_bytes));
  if (block == nullptr) {
    if (rule == Make::kIfEarned) {
      if (!may_make_ || (earned_ & size_class(length_bytes)) == 0) return nullptr;
      may_make_ = false;
      earned_ &= ~size_class(length_bytes);
    }
    block = make(rounded(length_bytes));
    if (block == nullptr) return nullptr;  // the caller takes other memory
  }
  block->lent = rule == Make::kAtOnce;
  return std::make_shared<const Lease>(shared_from_this(), std::move(block));
}

// Takes the smallest idle block that fits and is not far too large; of equal blocks the one given
// back last, which may still be in the CPU caches.
std::shared_ptr<ConnectionBlocks::Block> ConnectionBlocks::take_idle(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  auto best = idle_.end();
  for (auto at = idle_.begin(); at != idle_.end(); ++at) {
    const std::uint64_t size = (*at)->size;
    if (size >= bytes && size / 2 <= bytes && (best == idle_.end() || size <= (*best)->size)) best = at;
  }
  if (best == idle_.end()) return nullptr;
  std::shared_ptr<Block> out = std::move(*best);
  idle_.erase(best);
  out->fresh = true;
  in_use_.push_back(out);
  return out;
}

// ------------------------------------------------------------------------------------------ making

std::shared_ptr<ConnectionBlocks::Block> ConnectionBlocks::make(std::uint64_t bytes) {
  if (!make_room(bytes)) return nullptr;
  auto counted = std::make_unique<const Counted>(bytes);
  if (!counted->fits()) return nullptr;
  auto region = device_.allocate(bytes, transport::Rights::kRemoteRead);
  if (!region) return nullptr;
  ++made_;
  auto block = std::make_shared<Block>(std::move(counted), *std::move(region), device_.pins());
  arm_sweep();
  const MutexLock lock(mutex_);
  in_use_.push_back(block);
  return block;
}

// Closes idle blocks until a block of so many bytes has room: all of them have a wrong size, or
// take_idle() would have found one. Returns false if the blocks in use leave no room.
bool ConnectionBlocks::make_room(std::uint64_t bytes) {
  std::list<std::shared_ptr<Block>> gone;
  bool fits = false;
  {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    std::uint64_t all = sum() + bytes;
    const auto too_many = [&]() SLIME_REQUIRES(mutex_) {
      return all > limits::kBlocksBytes || in_use_.size() + idle_.size() >= limits::kBlocks;
    };
    while (too_many() && !idle_.empty()) {
      all -= idle_.front()->size;
      gone.splice(gone.end(), idle_, idle_.begin());
    }
    fits = !too_many();
  }
  for (const auto& each : gone) each->region.close(Nanos::zero()).ignore();
  return fits;
}

void ConnectionBlocks::note_received(std::uint64_t length_bytes) {
  if (length_bytes >= limits::kLargeBody) arm_sweep();
  if (length_bytes != 0 && length_bytes <= limits::kReceivedBlockMost) earned_ |= size_class(length_bytes);
}

// ----------------------------------------------------------------------------------------- keeping

// Does nothing in a forked child, where a thread of the parent may have held the lock at the fork.
void ConnectionBlocks::give(const std::shared_ptr<Block>& block) noexcept {
  if (process_ != fork_generation()) return;
  const MutexLock lock(mutex_);
  std::erase(in_use_, block);
  if (!closed_ && !block->retired) idle_.push_back(block);
}

std::uint64_t ConnectionBlocks::sum() const {
  std::uint64_t out = 0;
  for (const auto& each : in_use_) out += each->size;
  for (const auto& each : idle_) out += each->size;
  return out;
}

std::uint64_t ConnectionBlocks::lent_bytes() {
  const MutexLock lock(mutex_);
  std::uint64_t out = 0;
  for (const auto& each : in_use_) out += each->lent ? each->size : 0;
  return out;
}

std::uint64_t ConnectionBlocks::held_bytes() {
  const MutexLock lock(mutex_);
  return sum();
}

void ConnectionBlocks::arm_sweep() {
  if (sweep_) return;
  sweep_ = loop_.add_timer(deadline_after(loop_.now(), limits::kBlocksIdle), [this] { sweep(); });
}

// Closes the blocks that were not used since the last sweep, but for kBlocksIdleBytes. Then frees
// memory that the process keeps.
void ConnectionBlocks::sweep() {
  sweep_ = {};
  std::list<std::shared_ptr<Block>> gone;
  bool again = false;
  {
    const MutexLock lock(mutex_);
    std::uint64_t all = sum();
    for (auto next = idle_.begin(); next != idle_.end();) {
      const auto here = next++;
      if (std::exchange((*here)->fresh, false) || all <= limits::kBlocksIdleBytes) continue;
      all -= (*here)->size;
      gone.splice(gone.end(), idle_, here);
    }
    again = all > limits::kBlocksIdleBytes || !in_use_.empty();
  }
  for (const auto& each : gone) each->region.close(Nanos::zero()).ignore();
  again = sweep_idle_memory(this, loop_.now()) || again;
  if (again) arm_sweep();
}

// Closes the regions without holding the lock: closing may end operations and destroy leases, which
// call give().
void ConnectionBlocks::close() {
  loop_.cancel_timer(sweep_);
  stop_sweeping(this);
  std::list<std::shared_ptr<Block>> idle;
  std::vector<std::shared_ptr<Block>> in_use;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    idle.swap(idle_);
    in_use.swap(in_use_);
  }
  for (const auto& each : in_use) each->region.close(Nanos::zero()).ignore();
  for (const auto& each : idle) each->region.close(Nanos::zero()).ignore();
}

}  // namespace slime::rpc
