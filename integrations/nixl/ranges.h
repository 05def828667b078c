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

  // O(log n), and a step for each range that is inside of this one.
  void add(Range range);
  // Removes one of those that are equal to `range`; the costs are those of add().
  void remove(Range range);
  // A range that `wanted` is inside of, if there is one. O(log n).
  [[nodiscard]] std::optional<Range> around(Range wanted) const;

 private:
  // True if a range of `outer_` has all bytes of this one.
  [[nodiscard]] bool covered(const Range& range) const { return around(range).has_value(); }

  std::multiset<Range> all_;
  // Those that are inside of no other one, by base. Their ends ascend with their bases, so the last one that
  // begins at or before an address reaches farthest from there.
  std::map<std::uintptr_t, std::uint64_t> outer_;
};

}  // namespace slime::nixl
