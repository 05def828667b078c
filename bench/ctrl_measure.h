#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_server.h"

// The phases of a measurement of nanoctrl, and figures as JSON.
namespace slime::bench {

inline constexpr Nanos kDeathSlack =
    std::chrono::seconds(1);  // nanoctrl looks for ended leases at least once a second

inline double seconds_of(Nanos span) { return std::chrono::duration<double>(span).count(); }

// One measurement, with defaults filled in.
struct CtrlRun {
  LoadOptions load;
  double rate = 0;
  Nanos warmup{};
};

CtrlRun run_of(const CtrlOptions& options, std::uint32_t agents);

// Raises the limit of open files: a socket for each agent, here and in the server, which inherits
// it.
Status allow_descriptors(std::uint32_t agents);

// Use of the processes in the measured time.
struct CtrlUsed {
  double seconds = 0;
  double own_cpu = 0;
  struct Span {
    std::optional<ProcessUse> before;
    std::optional<ProcessUse> after;
  };
  Span server;
  Span store;
};

nlohmann::json latency_of(const Latency& latency);
nlohmann::json processes_of(const CtrlUsed::Span& span, std::size_t processes, double seconds,
                            double answers);
nlohmann::json generator_of(const CtrlUsed& used, const CtrlLoad::Figures& figures);
// Returns the count and the latencies of one kind of request.
nlohmann::json requests_of(const Latency& from_due, const Latency& from_sent);

// The phases of one measurement. Writes each to stderr, because they take minutes. The arguments
// outlive it. Thread: one.
class CtrlMeasurement {
 public:
  CtrlMeasurement(const CtrlRun& run, const CtrlServer& server, CtrlLoad& load)
      : run_(run), server_(server), load_(load) {}

  // All agents register.
  Status ramp();
  // Waits for `span` without counting.
  Status pass(Nanos span);
  // Counts the requests that are due in the next `seconds`. `what` is for stderr.
  Result<CtrlUsed> window(double seconds, const std::string& what);
  // Stops the deaths, and waits until all agents have heard of them.
  Status hear_of_the_last();
  void say(const std::string& text) const;

 private:
  [[nodiscard]] bool gone() const { return !server_.alive().ok(); }
  [[nodiscard]] Status check_ttl() const;

  const CtrlRun& run_;
  const CtrlServer& server_;
  CtrlLoad& load_;
};

}  // namespace slime::bench
