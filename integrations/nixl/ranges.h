#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace slime::nixl {

// Ranges of addresses, which may overlap and be equal. Thread: one at a time (the caller locks).
class Ranges {
 public:
  struct Range {
    std::uintptr_t base = 0;
    std::uint64_t length_bytes = 0;
    auto operator<=>(const Range&) const = default;
  };

  // Adds `range`. Takes O(log n), plus a step for each range that lies inside `range`.
  void add(Range range);
  // Removes one range that equals `range`; takes as long as add().
  void remove(Range range);
  // Returns a range that contains all of `wanted`, or nothing. Takes O(log n).
  [[nodiscard]] std::optional<Range> around(Range wanted) const;

 private:
  // Returns whether a single range of `outer_` contains all bytes of `range`.
  [[nodiscard]] bool covered(const Range& range) const { return around(range).has_value(); }

  std::multiset<Range> all_;
  // The ranges that lie inside no other range: base to length in bytes. Their ends ascend as their
  // bases do, so of the ranges that begin at or before an address, the last one reaches farthest.
  std::map<std::uintptr_t, std::uint64_t> outer_;
};

}  // namespace slime::nixl
