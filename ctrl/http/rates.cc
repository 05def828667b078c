#include "ctrl/http/rates.h"

#include <algorithm>

namespace slime::ctrl {
namespace {

constexpr double kBurstSeconds = 2;
constexpr Nanos kSweepInterval = std::chrono::seconds(1);

double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Rates::Rates(double per_second, std::size_t senders_max)
    : per_second_(per_second), senders_max_(senders_max), others_{per_second * kBurstSeconds, {}} {}

bool Rates::take(const std::string& sender, TimePoint now) {
  if (per_second_ <= 0) return true;
  Bucket& of = bucket(sender, now);
  of.tokens = std::min(per_second_ * kBurstSeconds, of.tokens + seconds_between(of.at, now) * per_second_);
  of.at = now;
  if (of.tokens < 1) return false;
  of.tokens -= 1;
  return true;
}

Rates::Bucket& Rates::bucket(const std::string& sender, TimePoint now) {
  const auto found = buckets_.find(sender);
  if (found != buckets_.end()) return found->second;
  if (buckets_.size() >= senders_max_) drop_full(now);
  if (buckets_.size() >= senders_max_) return others_;
  return buckets_.emplace(sender, Bucket{per_second_ * kBurstSeconds, now}).first->second;
}

// Removes full buckets: a sender without a bucket starts with a full one. Runs rarely, because it
// visits all buckets.
void Rates::drop_full(TimePoint now) {
  if (now - swept_at_ < kSweepInterval) return;
  swept_at_ = now;
  std::erase_if(buckets_,
                [&](const auto& entry) { return seconds_between(entry.second.at, now) >= kBurstSeconds; });
}

}  // namespace slime::ctrl
