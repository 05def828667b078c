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

// What one request may look at.
struct ScanBudget {
  std::size_t records = limits::kVisitsPerPage;
  std::size_t bytes = limits::kVisitedBytesPerPage;
};
inline constexpr ScanBudget kAllRecords{std::numeric_limits<std::size_t>::max(),
                                        std::numeric_limits<std::size_t>::max()};

// Where a scan was, and where it ended.
struct ScanHead {
  // As of the first slice: changes since this revision cover whatever changed while the others were read.
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  std::optional<std::string> next;  // the name to go on after; none: the scope ends here
};

// Walks over the peers of a scope, and over the reports of its agents, for lists. Takes references to
// kRecordsPerSlice records at a time under the engine's lock, and shows them to the visitor without it:
// neither how many peers there are nor how large their records are decides how long others wait. Counts what
// it looked at. Thread: any.
class Scans {
 public:
  // `engine` and `reports` outlive this.
  Scans(Engine& engine, const Reports& reports) : engine_(engine), reports_(reports) {}

  // The peers after the name `after`, in the order of names, until the visitor returns false or the budget is
  // used up. A peer that is there all the time is seen once; one that comes or goes meanwhile may be.
  using Visitor = std::function<bool(const PeerView& peer)>;
  ScanHead visit(const std::string& scope, std::string_view after, ScanBudget budget, const Visitor& visitor);
  // The same of one peer, if it is there.
  ScanHead visit_one(const std::string& scope, std::string_view name, const Visitor& visitor);
  // Shows the visitor what the scope's agents report, in the order of names after `after`, without a lock,
  // until the visitor returns false. Leaves out the report of an agent that is gone, or that another agent of
  // the same name sent. Returns the name to go on after when `budget` reports were looked at before the end.
  using ReportVisitor = std::function<bool(const Reports::View& agent)>;
  std::optional<std::string> visit_reports(const std::string& scope, std::string after, std::size_t budget,
                                           const ReportVisitor& visitor);
  // Something else looked at so many records under the lock once.
  void count(std::size_t records);

  // Since the start.
  struct Counts {
    std::uint64_t records = 0;     // that were looked at
    std::uint64_t slices = 0;      // times that the lock was taken for them
    std::uint64_t slice_most = 0;  // records of one such time
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
