#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "agent/connecting/switchboard.h"
#include "ctrl/types.h"
#include "rpc/server.h"
#include "transport/counters.h"

namespace slime::agent {

// Counts of all operations of an agent since its start.
struct ReportCounters {
  BoardCounters board;
  std::uint64_t strangers_evicted = 0;
  transport::EndpointCounters endpoints;
  rpc::ServerCounters server;
};

// Returns the report of an agent for nanoctrl: its connections and its counters.
ctrl::Report make_report(const std::vector<PeerView>& peers, const ReportCounters& counters);

// The newest report that the loop has made, for a thread that must not wait for the loop. Thread: any.
class ReportBox {
 public:
  // Whether the loop is to make one: not when it has yet to make the last that was asked for.
  bool ask() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(asked_, true);
  }
  void put(ctrl::Report report) {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(report);
    asked_ = false;
  }
  [[nodiscard]] std::optional<ctrl::Report> newest() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<ctrl::Report> newest_;
  bool asked_ = false;
};

}  // namespace slime::agent
