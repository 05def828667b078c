#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::bench {

// Latencies in nanoseconds, in buckets of at most 1/64 relative width: small enough to send to the
// reporting process, exact enough for a p99.9. Thread: one.
class Histogram {
 public:
  void add(std::uint64_t nanos) {
    ++buckets_[bucket(nanos)];
    ++count_;
  }
  void merge(const Histogram& other) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
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
  // Encodes as "index:count index:count ...". decode() adds such a text; false for any other text.
  [[nodiscard]] std::string encode() const;
  bool decode(std::string_view text);

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
