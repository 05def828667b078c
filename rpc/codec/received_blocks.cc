#include "rpc/codec/received_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "base/fork.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

// Bytes of the blocks of all connections.
std::atomic<std::uint64_t>& made_bytes() {
  static constinit PerProcess<std::atomic<std::uint64_t>> bytes;
  return bytes.get();
}

// Returns the bit of a length's size class. A class has the lengths from one power of two up to the
// next.
std::uint64_t size_class(std::uint64_t bytes) { return std::uint64_t{1} << (std::bit_width(bytes) - 1); }

bool blocks_for(std::uint64_t bytes) {
  return bytes >= limits::kReceivedBlockBytes && bytes <= limits::kReceivedBlockMost;
}

std::uint64_t rounded(std::uint64_t bytes) {
  const std::uint64_t step = bytes >= (1 << 20) ? 1 << 20 : limits::kReceivedBlockBytes;
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct ReceivedBlocks::Block {
  Block(transport::DeviceRegion of, bool pins)
      : region(std::move(of)), size(region.length_bytes()), pinned(pins) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { counted -= size; }
  std::atomic<std::uint64_t>& counted = made_bytes();
  transport::DeviceRegion region;
  const std::uint64_t size;
  const bool pinned;
};

// Registered memory of an attachment that lies in a block. The destructor gives the block back.
class ReceivedBlocks::Lease final : public Registered {
 public:
  Lease(std::shared_ptr<ReceivedBlocks> blocks, std::shared_ptr<Block> block)
      : blocks_(std::move(blocks)), block_(std::move(block)) {}
  ~Lease() override { blocks_->give(block_); }
  [[nodiscard]] MutableBytes bytes() const override { return block_->region.bytes(); }
  [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device&) const override {
    return &block_->region;
  }
  [[nodiscard]] bool shown_to(std::uint64_t endpoint) const override {
    return endpoint == blocks_->endpoint_;
  }
  // Keeps the pages of a pinned block: its registration would not refer to new pages when the block
  // is used again.
  bool discard() const override {
    return block_->pinned || ::madvise(block_->region.data(), block_->size, MADV_REMOVE) == 0;
  }

 private:
  const std::shared_ptr<ReceivedBlocks> blocks_;
  const std::shared_ptr<Block> block_;
};

ReceivedBlocks::ReceivedBlocks(transport::Device& device, std::uint64_t endpoint)
    : device_(device), endpoint_(endpoint) {}
ReceivedBlocks::~ReceivedBlocks() = default;

std::shared_ptr<const Registered> ReceivedBlocks::take(std::uint64_t length_bytes) {
  if (!blocks_for(length_bytes)) return nullptr;
  std::shared_ptr<Block> block;
  {
    const MutexLock lock(mutex_);
    if (closed_) return nullptr;
    const std::uint64_t size = rounded(length_bytes);
    const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const auto& each) {
      return each->size >= size && each->size / 2 <= size;
    });
    if (fits != idle_.end()) {
      block = std::move(*fits);
      idle_.erase(fits);
      in_use_.push_back(block);
    }
  }
  if (block == nullptr) {
    if (!may_make_ || (earned_ & size_class(length_bytes)) == 0) return nullptr;
    may_make_ = false;
    earned_ &= ~size_class(length_bytes);
    auto made = make(rounded(length_bytes));
    if (!made) return nullptr;  // the caller takes other memory
    block = *std::move(made);
    const MutexLock lock(mutex_);
    in_use_.push_back(block);
  }
  return std::make_shared<const Lease>(shared_from_this(), std::move(block));
}

Result<std::shared_ptr<ReceivedBlocks::Block>> ReceivedBlocks::make(std::uint64_t bytes) {
  const Status full(Code::kResourceExhausted, "enough blocks for what is received");
  std::list<std::shared_ptr<Block>> gone;
  {
    const MutexLock lock(mutex_);
    std::uint64_t sum = bytes;
    for (const auto& each : in_use_) sum += each->size;
    for (const auto& each : idle_) sum += each->size;
    // Closes idle blocks to make room: all of them have a wrong size, or take() would have used
    // one.
    while (sum > limits::kReceivedBlocksBytes && !idle_.empty()) {
      sum -= idle_.front()->size;
      gone.splice(gone.end(), idle_, idle_.begin());
    }
    if (sum > limits::kReceivedBlocksBytes) return full;
  }
  for (const auto& each : gone) each->region.close(Nanos::zero()).ignore();
  gone.clear();
  if ((made_bytes() += bytes) > limits::kReceivedBlocksAll) {
    made_bytes() -= bytes;
    return full;
  }
  auto region = device_.allocate(bytes, transport::Rights::kRemoteRead);
  if (!region) {
    made_bytes() -= bytes;
    return std::move(region).error();
  }
  return std::make_shared<Block>(*std::move(region), device_.pins());
}

void ReceivedBlocks::note_received(std::uint64_t length_bytes) {
  if (blocks_for(length_bytes)) earned_ |= size_class(length_bytes);
}

void ReceivedBlocks::give(const std::shared_ptr<Block>& block) noexcept {
  const MutexLock lock(mutex_);
  std::erase(in_use_, block);
  if (!closed_) idle_.push_back(block);
}

// Closes the regions without holding the lock: closing may end operations and destroy leases, which
// call give().
void ReceivedBlocks::close() {
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
