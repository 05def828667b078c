#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ctrl_bench.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_server.h"

// The phases that the measurements of nanoctrl share, and their figures as JSON.
namespace slime::bench {

inline constexpr Nanos kDeathSlack =
    std::chrono::seconds(1);  // nanoctrl looks for ended leases once a second at least

inline double seconds_of(Nanos span) { return std::chrono::duration<double>(span).count(); }

// One measurement with everything said.
struct CtrlRun {
  LoadOptions load;
  double rate = 0;
  Nanos warmup{};
};

CtrlRun run_of(const CtrlOptions& options, std::uint32_t agents);

// A socket for each agent, here and in the server, which inherits the limit.
Status allow_descriptors(std::uint32_t agents);

// Processor time and memory that the processes used in the measured time.
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

// The phases of one measurement, each told on stderr: they take minutes. All that it is given outlives it.
// Thread: one.
class CtrlMeasurement {
 public:
  CtrlMeasurement(const CtrlRun& run, const CtrlServer& server, CtrlLoad& load)
      : run_(run), server_(server), load_(load) {}

  // All agents register.
  Status ramp();
  // Works for so long without counting.
  Status pass(Nanos span);
  // Works for so long, and what is due in it counts. `what` is for the line on stderr.
  Result<CtrlUsed> window(double seconds, const std::string& what);
  // Nobody dies any more, and who lives hears of those that did.
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
