#include "transport/soft/pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/soft/long_slot.h"

namespace slime::transport::soft {

LongBuffers::~LongBuffers() = default;

std::unique_ptr<LongSlot> LongBuffers::take(std::uint32_t slots) {
  const MutexLock lock(mutex_);
  // The newest one may still be in the CPU caches.
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                  [slots](const auto& each) { return each->slots() == slots; });
  if (found == kept_.rend()) return nullptr;
  std::unique_ptr<LongSlot> out = std::move(*found);
  kept_.erase(std::next(found).base());
  bytes_ -= out->bytes();
  return out;
}

void LongBuffers::give(std::unique_ptr<LongSlot> buffer) noexcept {
  std::vector<std::unique_ptr<LongSlot>> gone;  // freed without the lock
  const MutexLock lock(mutex_);
  bytes_ += buffer->bytes();
  kept_.push_back(std::move(buffer));
  auto first_kept = kept_.begin();
  for (; bytes_ > limits::kLongKeptBytes; ++first_kept) bytes_ -= (*first_kept)->bytes();
  std::move(kept_.begin(), first_kept, std::back_inserter(gone));
  kept_.erase(kept_.begin(), first_kept);
}

std::size_t LongBuffers::kept_bytes() {
  const MutexLock lock(mutex_);
  return bytes_;
}

SoftPool::SoftPool(std::shared_ptr<Loop> loop, const PortOptions& options)
    : ReceivePool(std::move(loop), options, options.base_credits),
      long_buffers_(std::make_shared<LongBuffers>()) {}
SoftPool::~SoftPool() = default;

ReceiveSlot& SoftPool::take_slot(CreditAccount& account) {
  if (free_.empty()) make_slot();
  ReceiveSlot& slot = *free_.back();
  free_.pop_back();
  hand_out(slot, account);
  return slot;
}

void SoftPool::make_slot() {
  if (unmade_.empty()) {
    unmade_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t index = unmade_.back();
  unmade_.pop_back();
  SLIME_CHECK(slots_with_memory() < options().pool_slots);
  slots_[index] = std::make_unique<OwnedSlot>(index, options().slot_bytes);
  ++made_;
  free_.push_back(&slots_[index]->slot);
}

// Frees the memory of free slots until that of `slots` more fits into the pool. The slots in use
// and those that long messages take are all promised, so enough are free.
void SoftPool::make_room(std::uint32_t slots) {
  while (slots_with_memory() + slots > options().pool_slots) {
    SLIME_CHECK(!free_.empty());
    const std::uint32_t index = free_.front()->index();
    std::swap(free_.front(), free_.back());
    free_.pop_back();
    slots_[index].reset();
    unmade_.push_back(index);
    --made_;
  }
}

ReceiveSlot& SoftPool::take_long(std::uint32_t slots, CreditAccount& account) {
  make_room(slots);
  std::unique_ptr<LongSlot> buffer = long_buffers_->take(slots);
  if (buffer == nullptr) {
    const std::size_t bytes = std::size_t{slots} * options().slot_bytes;
    buffer = std::make_unique<LongSlot>(std::make_unique_for_overwrite<std::byte[]>(bytes), slots, bytes);
  }
  buffer->belong_to(*this);
  hand_out(*buffer, account);
  long_slots_ += slots;
  return *long_.emplace_back(std::move(buffer));
}

// Takes the buffer out of long_.
std::unique_ptr<LongSlot> SoftPool::end_use(LongSlot& buffer) {
  const auto at =
      std::find_if(long_.begin(), long_.end(), [&](const auto& each) { return each.get() == &buffer; });
  std::unique_ptr<LongSlot> out = std::move(*at);
  *at = std::move(long_.back());
  long_.pop_back();
  long_slots_ -= buffer.slots();
  return out;
}

void SoftPool::put_free(ReceiveSlot& slot) {
  if (slot.slots() == 1) return free_.push_back(&slot);
  long_buffers_->give(end_use(static_cast<LongSlot&>(slot)));
}

std::shared_ptr<LongBuffers> SoftPool::keep(LongSlot& buffer) {
  if (!let_go(buffer)) return nullptr;
  static_cast<void>(end_use(buffer).release());  // now its message's, whose release() gives it home
  return long_buffers_;
}

}  // namespace slime::transport::soft
