#include "integrations/nixl/ranges.h"

#include <iterator>

namespace slime::nixl {

void Ranges::add(Range range) {
  all_.insert(range);
  if (covered(range)) return;
  // Removes from `outer_` the ranges that lie inside the new range.
  auto at = outer_.lower_bound(range.base);
  while (at != outer_.end() && at->first - range.base <= range.length_bytes &&
         at->second <= range.length_bytes - (at->first - range.base))
    at = outer_.erase(at);
  outer_.insert_or_assign(range.base, range.length_bytes);
}

void Ranges::remove(Range range) {
  const auto one = all_.find(range);
  if (one == all_.end()) return;
  const auto after = all_.erase(one);
  const auto outer = outer_.find(range.base);
  if (outer == outer_.end() || outer->second != range.length_bytes) return;
  if (after != all_.end() && *after == range) return;  // the range is there more than once
  if (after != all_.begin() && *std::prev(after) == range) return;
  const auto next = outer_.erase(outer);
  // A range that only the removed range contained begins before the next outer range. Adds those of
  // these ranges to `outer_` that no other range contains.
  for (auto at = all_.lower_bound({range.base, 0});
       at != all_.end() && (next == outer_.end() || at->base < next->first); ++at) {
    const auto longer = std::next(at);
    if (longer != all_.end() && longer->base == at->base) continue;
    if (!covered(*at)) outer_.insert_or_assign(at->base, at->length_bytes);
  }
}

std::optional<Ranges::Range> Ranges::around(Range wanted) const {
  auto at = outer_.upper_bound(wanted.base);
  if (at == outer_.begin()) return std::nullopt;
  --at;
  const std::uint64_t offset = wanted.base - at->first;
  if (offset > at->second || wanted.length_bytes > at->second - offset) return std::nullopt;
  return Range{at->first, at->second};
}

}  // namespace slime::nixl
