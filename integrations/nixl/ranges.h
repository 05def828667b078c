#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace slime::nixl {

// Ranges of addresses, which may overlap and repeat. Thread: one at a time.
class Ranges {
 public:
  struct Range {
    std::uintptr_t base = 0;
    std::uint64_t length_bytes = 0;
    auto operator<=>(const Range&) const = default;
  };

  // O(log n), plus a step for each range that lies inside of this one.
  void add(Range range);
  // Removes one range that equals `range`, at the cost of add().
  void remove(Range range);
  // Returns a range that contains `wanted`, if there is one. O(log n).
  [[nodiscard]] std::optional<Range> around(Range wanted) const;

 private:
  // Returns whether a range of `outer_` contains all bytes of `range`.
  [[nodiscard]] bool covered(const Range& range) const { return around(range).has_value(); }

  std::multiset<Range> all_;
  // Ranges that lie inside of no other range, by base. Their ends ascend with their bases, so of
  // those that begin at or before an address, the last reaches farthest.
  std::map<std::uintptr_t, std::uint64_t> outer_;
};

}  // namespace slime::nixl
