#include "transport/endpoint/credit_ledger.h"

namespace slime::transport {

SendCredits::Raise SendCredits::raise(std::uint64_t limit) {
  if (limit <= limit_) return Raise::kOld;
  if (limit - limit_ > limits::kMaxPoolSlots) return Raise::kTooMany;
  limit_ = limit;
  most_free_ = std::max(most_free_, free());
  return Raise::kRaised;
}

std::uint64_t SendCredits::return_idle(TimePoint now, TimePoint& next) {
  if (!has_spare()) return 0;
  if (now < idle_at()) {
    next = std::min(next, idle_at());
    return 0;
  }
  const std::uint64_t back = free() - initial_;
  used_ += back;
  most_free_ = initial_;
  return back;
}

ReceiveCredits::ReceiveCredits(ReceivePool& pool, std::shared_ptr<CreditAccount> account,
                               std::uint32_t own_slots)
    : pool_(pool),
      account_(std::move(account)),
      own_slots_(own_slots),
      granted_(account_->promised - own_slots),
      announced_(granted_),
      target_(account_->promised - own_slots) {}

bool ReceiveCredits::take_returned(std::uint64_t count) {
  if (count > outstanding()) return false;
  received_ += count;
  target_ = pool_.options().base_credits;
  take_back(static_cast<std::uint32_t>(count));
  return true;
}

void ReceiveCredits::top_up() {
  const std::uint32_t wanted = std::min(target_ + held_, std::max(target_, pool_.options().max_credits));
  while (account_->promised < wanted + own_slots_ && pool_.promise(*account_)) ++granted_;
}

void ReceiveCredits::release(std::uint32_t count) {
  count = std::min(count, held_);
  held_ -= count;
  take_back(count);
}

}  // namespace slime::transport
