#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "ctrl/api/reports.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/engine.h"

namespace slime::ctrl {

// How much one request may examine.
struct ScanBudget {
  std::size_t records = limits::kVisitsPerPage;
  std::size_t bytes = limits::kVisitedBytesPerPage;
};
inline constexpr ScanBudget kAllRecords{std::numeric_limits<std::size_t>::max(),
                                        std::numeric_limits<std::size_t>::max()};

// The position of a scan.
struct ScanHead {
  // The epoch and the revision at the scan's first slice. Events after this revision include all
  // changes made during the scan.
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  // name of the last peer examined, to continue after; empty: the scan reached the end of the scope
  std::optional<std::string> next;
};

// Visits the peers of a scope, or the reports of its agents, to answer lists. Takes references to
// kRecordsPerSlice records at a time under the engine's lock, and visits them without the lock, so
// that the lock is held briefly. Counts the records examined. Thread: any.
class Scans {
 public:
  // `engine` and `reports` outlive this.
  Scans(Engine& engine, const Reports& reports) : engine_(engine), reports_(reports) {}

  // Visits the peers after the name `after`, in the order of names, until the visitor returns false
  // or `budget` is used up. A peer registered during the whole scan is visited once; a peer that
  // registers or leaves during the scan may be visited.
  using Visitor = std::function<bool(const PeerView& peer)>;
  ScanHead visit(const std::string& scope, std::string_view after, ScanBudget budget, const Visitor& visitor);
  // Visits one peer, if it is registered.
  ScanHead visit_one(const std::string& scope, std::string_view name, const Visitor& visitor);
  // Visits the reports of the scope's agents after the name `after`, in the order of names, until
  // the visitor returns false. Skips reports of agents that are gone or were replaced by another
  // incarnation. If `budget` reports were examined before the end, returns the name to continue
  // after.
  using ReportVisitor = std::function<bool(const Reports::View& agent)>;
  std::optional<std::string> visit_reports(const std::string& scope, std::string after, std::size_t budget,
                                           const ReportVisitor& visitor);
  // Adds to counts(): one acquisition of the lock, in which `records` records were examined.
  void count(std::size_t records);

  // Totals since the start.
  struct Counts {
    std::uint64_t records = 0;     // records examined
    std::uint64_t slices = 0;      // acquisitions of the lock
    std::uint64_t slice_most = 0;  // most records in one acquisition
  };
  [[nodiscard]] Counts counts() const { return {records_, slices_, slice_most_}; }

 private:
  Engine& engine_;
  const Reports& reports_;
  std::atomic<std::uint64_t> records_{0};
  std::atomic<std::uint64_t> slices_{0};
  std::atomic<std::uint64_t> slice_most_{0};
};

}  // namespace slime::ctrl
