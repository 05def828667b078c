#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ctrl_bench.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_server.h"

// What the measurements of nanoctrl have in common: their phases, and their figures as JSON.
namespace slime::bench {

inline constexpr Nanos kSlack =
    std::chrono::seconds(1);  // nanoctrl looks for ended leases once a second at least

inline double seconds_of(Nanos span) { return std::chrono::duration<double>(span).count(); }

// One measurement with everything said.
struct Run {
  LoadOptions load;
  double rate = 0;
  Nanos warmup{};
};

Run run_of(const CtrlOptions& options, std::uint32_t agents);

// A socket for each agent, here and in the server, which inherits the limit.
Status allow_descriptors(std::uint32_t agents);

// What was used in the measured time.
struct Used {
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
nlohmann::json processes_of(const Used::Span& span, std::size_t processes, double seconds, double answers);
nlohmann::json generator_of(const Used& used, const CtrlLoad::Figures& figures);

// The phases of one measurement, each told on stderr: they take minutes. All that it is given outlives it.
// Thread: one.
class Measurement {
 public:
  Measurement(const Run& run, const CtrlServer& server, CtrlLoad& load)
      : run_(run), server_(server), load_(load) {}

  // All agents register.
  Status ramp();
  // Works for so long without counting.
  Status pass(Nanos span);
  // Works for so long, and what is due in it counts. `what` is for the line on stderr.
  Result<Used> window(double seconds, const std::string& what);
  // Nobody dies any more, and who lives hears of those that did.
  Status hear_of_the_last();
  void say(const std::string& text) const;

 private:
  [[nodiscard]] bool gone() const { return !server_.alive().ok(); }
  [[nodiscard]] Status check_ttl() const;

  const Run& run_;
  const CtrlServer& server_;
  CtrlLoad& load_;
};

}  // namespace slime::bench
