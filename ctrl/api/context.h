#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "ctrl/api/access.h"
#include "ctrl/api/metrics.h"
#include "ctrl/api/options.h"
#include "ctrl/api/reports.h"
#include "ctrl/api/scan.h"
#include "ctrl/limits.h"
#include "ctrl/store/engine.h"

namespace slime::ctrl {

// State that all routes of one nanoctrl share: the engine, access control, metrics, and the reports
// of agents. Thread: any.
class Context {
 public:
  // `clock` outlives this.
  Context(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Runs a command that changes a record, and waits until the change is stored. Records the time
  // taken in the metrics.
  Outcome submit(const Command& command);
  // The number of submit() calls under way.
  [[nodiscard]] std::size_t submitted() const { return submitted_; }
  // Refuses requests from now on. Idempotent.
  void stop() { stopped_ = true; }
  [[nodiscard]] bool stopped() const { return stopped_; }

  [[nodiscard]] const ApiOptions& options() const { return options_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] TimePoint started_at() const { return started_at_; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] Access& access() { return access_; }
  [[nodiscard]] Scans& scans() { return scans_; }
  [[nodiscard]] Reports& reports() { return reports_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }

 private:
  const ApiOptions options_;
  const Clock& clock_;
  const TimePoint started_at_;
  Metrics metrics_;
  Reports reports_{limits::kReportBytesTotal, limits::kReportBytesPerScope};
  std::atomic<std::size_t> submitted_{0};
  std::atomic<bool> stopped_{false};
  const std::unique_ptr<Engine> engine_;  // its threads update metrics_ and reports_
  Scans scans_{*engine_, reports_};
  Access access_{options_, *engine_};
};

}  // namespace slime::ctrl
