#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace slime::ctrl {

// nanoctrl's figures in Prometheus' text format. Thread: any.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request was answered. `route` is one of few: the path with names left out.
  void observe(std::string_view method, std::string_view route, int status, Nanos took);

  struct ScopeGauges {
    std::string scope;
    std::size_t peers = 0;
    std::size_t services = 0;
  };
  struct AgentCounters {
    std::string scope, peer;
    std::map<std::string, std::uint64_t> counters;
  };
  // What is so now, and was not counted.
  struct Gauges {
    std::vector<ScopeGauges> scopes;
    std::vector<AgentCounters> agents;  // that tell them with their heartbeats
    std::size_t record_bytes = 0;
    std::size_t watchers = 0;
    std::size_t connections = 0;
    bool store_writable = true;
    Nanos uptime{};
  };
  [[nodiscard]] std::string text(const Gauges& gauges);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
