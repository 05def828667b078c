#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "agent/connecting/switchboard.h"
#include "base/mutex.h"
#include "ctrl/types.h"
#include "rpc/server.h"
#include "transport/counters.h"

namespace slime::agent {

// Counters of an agent since its start.
struct ReportCounters {
  BoardCounters board;
  std::uint64_t strangers_evicted = 0;
  transport::EndpointCounters endpoints;
  rpc::ServerCounters server;
};

// Returns an agent's report for nanoctrl: its connections and counters.
ctrl::Report make_report(const std::vector<PeerView>& peers, const ReportCounters& counters);

// Holds the newest report that the loop has made, for a thread that must not wait for the loop.
// Thread: any.
class ReportBox {
 public:
  // Returns true if the caller must make the loop produce a report; false while an earlier request
  // is pending.
  bool ask() {
    const MutexLock lock(mutex_);
    return !std::exchange(asked_, true);
  }
  void put(ctrl::Report report) {
    const MutexLock lock(mutex_);
    newest_ = std::move(report);
    asked_ = false;
  }
  [[nodiscard]] std::optional<ctrl::Report> newest() const {
    const MutexLock lock(mutex_);
    return newest_;
  }

 private:
  mutable Mutex mutex_;
  std::optional<ctrl::Report> newest_ SLIME_GUARDED_BY(mutex_);
  bool asked_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::agent
