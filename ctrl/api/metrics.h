#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ctrl/types.h"

namespace slime::ctrl {

// nanoctrl's metrics in Prometheus' text format. Thread: any.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Counts an answered request. `route` is the route's pattern, such as "/v1/peers/{name}", so that
  // it has few distinct values.
  void observe(std::string_view method, std::string_view route, int status, Nanos took);
  // Records `took`, the time from a command's submission until its outcome was stored.
  void observe_store(Nanos took);
  // Counts a change in the registry. `event` is the name of an EventKind.
  void count_event(std::string_view event);

  struct ScopeGauges {
    std::string scope;
    std::size_t peers = 0;
    std::size_t services = 0;
    std::size_t record_bytes = 0;
  };
  struct AgentReport {
    std::string scope, peer;
    std::shared_ptr<const Report> report;
  };
  // Gauges: current values, read when scraped.
  struct Gauges {
    std::vector<ScopeGauges> scopes;
    std::vector<AgentReport> agents;  // last reports from heartbeats
    std::size_t record_bytes = 0;
    std::size_t scope_peers_max = 0;         // of each scope
    std::size_t scope_record_bytes_max = 0;  // of each scope
    std::uint64_t records_visited = 0;       // by lists, since the start
    std::uint64_t record_slices = 0;         // lock acquisitions for these records
    std::size_t watchers = 0;
    std::size_t connections = 0;
    std::size_t refused = 0;        // since the start
    std::size_t store_waiting = 0;  // commands without an outcome yet
    bool store_writable = true;
    bool ready = true;  // the answer of GET /readyz
    Nanos uptime{};
  };
  [[nodiscard]] std::string text(const Gauges& gauges);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
