#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace slime::bench {

struct CtrlOptions {
  std::vector<std::uint32_t> agents = {10'000};  // one measurement each
  std::optional<std::uint32_t> scopes;           // else one for each hundred agents
  double heartbeat_s = 5;
  double ttl_s = 60;
  std::optional<double> rate;  // deaths, and registrations, per second; else a hundredth of the agents
  double seconds = 60;
  std::optional<double> warmup_s;  // with deaths; else until as many expire as die
  std::string connections = "kept";
  std::vector<std::string>
      stores;  // "memory", "sqlite", "redis": of a nanoctrl of our own, each in turn; none: sqlite
  std::vector<std::string> urls;  // empty: a nanoctrl of our own for each measurement
  std::vector<int> pids;          // with urls: the processes behind them, whose CPU and memory count
  std::string program;            // the nanoctrl to start; empty: the one beside this program
  std::string server_flags;       // for it, separated by spaces
  bool hostile = false;           // one tenant does what it can, and the others' heartbeats are measured
  std::string token_file;         // of the token to send; empty: what the environment names
  [[nodiscard]] Status validate() const;
};

// Simulated agents against a nanoctrl: what heartbeats and registrations take, what the server needs for
// them, and whether each agent heard of each death in time. The report as one JSON object on one line, with
// one entry in "runs" for each store and number of agents; "verified" is false when an agent was lost or a
// death was heard of too late. kCancelled on Ctrl-C.
Result<std::string> measure_ctrl(const CtrlOptions& options);

}  // namespace slime::bench
