#include "transport/receive_pool.h"

#include <algorithm>

#include "base/check.h"

namespace slime::transport {

void ReceiveSlot::release() noexcept { pool_->release(*this); }

bool ReceivePool::open(CreditAccount& account) {
  if (unreserved_ < floor_) return false;
  unreserved_ -= floor_;
  account.promised = floor_;
  return true;
}

void ReceivePool::close(CreditAccount& account) {
  unreserved_ += std::max(account.promised, floor_) - account.held;
  account.promised = account.held;
  account.owner = nullptr;
  if (account.held > 0) closed_.push_back(account.shared_from_this());
}

bool ReceivePool::promise(CreditAccount& account) {
  if (account.promised >= floor_) {
    const std::uint32_t extra = account.promised - floor_;
    if (extra >= unreserved_) return false;
    --unreserved_;
  }
  ++account.promised;
  return true;
}

void ReceivePool::take_back(CreditAccount& account, std::uint32_t promises) {
  SLIME_CHECK(promises <= account.promised);
  const std::uint32_t floor = account.owner != nullptr ? floor_ : 0;
  const std::uint32_t before = std::max(account.promised, floor);
  account.promised -= promises;
  unreserved_ += before - std::max(account.promised, floor);
}

void ReceivePool::recycle(ReceiveSlot& slot) {
  CreditAccount& account = *std::exchange(slot.account_, nullptr);
  slot.pool_ = nullptr;
  --out_;
  const std::uint32_t slots = slot.slots_;
  put_free(slot);
  settle(account, slots);
}

bool ReceivePool::let_go(ReceiveSlot& slot) {
  if (shut_.load(std::memory_order_acquire)) return false;
  CreditAccount& account = *std::exchange(slot.account_, nullptr);
  slot.pool_ = nullptr;
  --out_;
  settle(account, slot.slots_);
  return true;
}

// Takes `slots` filled slots off the account.
void ReceivePool::settle(CreditAccount& account, std::uint32_t slots) {
  account.held -= slots;
  take_back(account, slots);
  if (account.owner != nullptr) return account.owner->on_slot_free();
  if (account.held == 0) std::erase_if(closed_, [&](const auto& closed) { return closed.get() == &account; });
}

void ReceivePool::release(ReceiveSlot& slot) {
  if (Loop::driven() == home_ && !shut_.load(std::memory_order_acquire)) return recycle(slot);
  // Keeps the pool alive: after the slot is back, the loop may end and the port may be destroyed
  // before this function returns.
  std::shared_ptr<ReceivePool> self;
  std::shared_ptr<Loop> loop;
  {
    const MutexLock lock(mutex_);
    if (loop_ == nullptr) {
      if (--out_ == 0) self = std::move(self_);  // destroyed outside the lock
      return;
    }
    if (!loop_->drives()) {
      self = shared_from_this();
      released_.push_back(&slot);
      if (released_.size() > 1) return;  // another thread has posted the task
      loop = loop_;
    }
  }
  if (loop == nullptr) {
    recycle(slot);
    return;
  }
  loop->post([self] { self->run_released(); });
}

void ReceivePool::run_released() {
  std::vector<ReceiveSlot*> slots;
  {
    const MutexLock lock(mutex_);
    if (loop_ == nullptr) return;
    slots.swap(released_);
  }
  for (ReceiveSlot* slot : slots) recycle(*slot);
}

void ReceivePool::shut() {
  shut_.store(true, std::memory_order_release);
  const MutexLock lock(mutex_);
  loop_.reset();
  out_ -= static_cast<std::uint32_t>(released_.size());
  released_.clear();
  if (out_ > 0) self_ = shared_from_this();
}

}  // namespace slime::transport
