#include "bench/histogram.h"

#include <charconv>

namespace slime::bench {

std::string Histogram::encode() const {
  std::string out;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    if (!out.empty()) out.push_back(' ');
    out.append(std::to_string(i)).append(":").append(std::to_string(buckets_[i]));
  }
  return out;
}

bool Histogram::decode(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::size_t index = 0;
    std::uint64_t count = 0;
    const auto first = std::from_chars(at, end, index);
    if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':' || index >= buckets_.size())
      return false;
    const auto second = std::from_chars(first.ptr + 1, end, count);
    if (second.ec != std::errc{}) return false;
    buckets_[index] += count;
    count_ += count;
    at = second.ptr;
    if (at < end && *at == ' ') ++at;
  }
  return true;
}

}  // namespace slime::bench
