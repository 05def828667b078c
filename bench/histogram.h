#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>

namespace slime::bench {

// Latencies in nanoseconds, in buckets of at most 1/64 relative width: small enough to send to the
// reporting process, exact enough for a p99.9. Thread: one.
class Histogram {
 public:
  void add(std::uint64_t nanos) {
    ++buckets_[bucket(nanos)];
    ++count_;
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // Returns the middle of the bucket with the q-quantile (0 to 1), in nanoseconds; 0 if empty.
  [[nodiscard]] double quantile(double q) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count_ - 1)) + 1;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen >= rank) return middle(i);
    }
    return 0;
  }
  // The filled buckets, to send to another process: counts by index. add_buckets() adds them, and
  // ignores an index that no histogram has.
  using Buckets = std::map<std::size_t, std::uint64_t>;
  [[nodiscard]] Buckets buckets() const {
    Buckets out;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i] != 0) out[i] = buckets_[i];
    }
    return out;
  }
  void add_buckets(const Buckets& buckets) {
    for (const auto& [index, count] : buckets) {
      if (index >= buckets_.size()) continue;
      buckets_[index] += count;
      count_ += count;
    }
  }

 private:
  static constexpr std::uint32_t kSubBits = 6;
  static constexpr std::uint64_t kSub = std::uint64_t{1} << kSubBits;
  static std::size_t bucket(std::uint64_t value) {
    if (value < kSub) return value;
    const auto shift = static_cast<std::uint32_t>(std::bit_width(value)) - kSubBits - 1;
    return (shift + 1) * kSub + ((value >> shift) - kSub);
  }
  static double middle(std::size_t index) {
    if (index < kSub) return static_cast<double>(index);
    const std::uint64_t shift = index / kSub - 1;
    return static_cast<double>((index % kSub + kSub) << shift) +
           static_cast<double>(std::uint64_t{1} << shift) / 2;
  }

  std::array<std::uint64_t, (64 - kSubBits + 1) * kSub> buckets_{};
  std::uint64_t count_ = 0;
};

}  // namespace slime::bench
