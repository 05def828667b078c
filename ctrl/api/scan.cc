#include "ctrl/api/scan.h"

#include <algorithm>
#include <utility>

namespace slime::ctrl {

ScanHead Scans::visit(const std::string& scope, std::string_view after, ScanBudget budget,
                      const Visitor& visitor) {
  std::optional<ScanHead> out;
  std::string from(after);
  while (true) {
    const PeerSlice slice = engine_.read([&](const Registry& registry) {
      if (!out) out = ScanHead{registry.options().epoch, registry.revision(scope), std::nullopt};
      return registry.slice(scope, from, std::min(limits::kRecordsPerSlice, budget.records));
    });
    count(slice.peers.size());
    for (const PeerView& peer : slice.peers) {
      budget.records -= 1;
      budget.bytes -= std::min(budget.bytes, peer.bytes);
      const bool more = visitor(peer) && budget.records > 0 && budget.bytes > 0;
      if (more) continue;
      if (slice.next || &peer != &slice.peers.back()) out->next = peer.info->name;
      return std::move(*out);
    }
    if (!slice.next) return std::move(*out);
    from = *slice.next;
  }
}

ScanHead Scans::visit_one(const std::string& scope, std::string_view name, const Visitor& visitor) {
  ScanHead out;
  const std::optional<PeerView> peer = engine_.read([&](const Registry& registry) {
    out = ScanHead{registry.options().epoch, registry.revision(scope), std::nullopt};
    return registry.view(scope, name);
  });
  count(1);
  if (peer) visitor(*peer);
  return out;
}

void Scans::count(std::size_t records) {
  records_ += records;
  ++slices_;
  std::uint64_t most = slice_most_;
  while (most < records && !slice_most_.compare_exchange_weak(most, records)) {
  }
}

}  // namespace slime::ctrl
