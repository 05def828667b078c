#include "ctrl/api/scan.h"

#include <algorithm>
#include <utility>
#include <vector>

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

std::optional<std::string> Scans::visit_reports(const std::string& scope, std::string after,
                                                std::size_t budget, const ReportVisitor& visitor) {
  while (true) {
    const Reports::Slice slice = reports_.slice(scope, after, std::min(limits::kRecordsPerSlice, budget));
    std::vector<bool> current;
    engine_.read([&](const Registry& registry) {
      for (const Reports::View& agent : slice.reports)
        current.push_back(registry.incarnation(scope, agent.name) == agent.incarnation);
    });
    count(slice.reports.size());
    for (std::size_t i = 0; i < slice.reports.size(); ++i) {
      if (current[i] && !visitor(slice.reports[i])) return std::nullopt;
    }
    if (!slice.more) return std::nullopt;
    after = slice.reports.back().name;
    budget -= slice.reports.size();
    if (budget == 0) return after;
  }
}

void Scans::count(std::size_t records) {
  records_ += records;
  ++slices_;
  std::uint64_t most = slice_most_;
  while (most < records && !slice_most_.compare_exchange_weak(most, records)) {
  }
}

}  // namespace slime::ctrl
