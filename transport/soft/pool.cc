#include "transport/soft/pool.h"

#include "base/check.h"

namespace slime::transport::soft {

ReceiveSlot& SoftPool::take_slot(CreditAccount& account) {
  if (free_.empty()) {
    SLIME_CHECK(slots_.size() < options().pool_slots);
    slots_.push_back(
        std::make_unique<OwnedSlot>(static_cast<std::uint32_t>(slots_.size()), options().slot_bytes));
    free_.push_back(&slots_.back()->slot);
  }
  ReceiveSlot& slot = *free_.back();
  free_.pop_back();
  hand_out(slot, account);
  return slot;
}

}  // namespace slime::transport::soft
