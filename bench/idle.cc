#include "bench/idle.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr Nanos kSettle = std::chrono::seconds(1);  // credits go back, timers of the connecting end

// Resident pages of this process, in KiB.
std::int64_t resident_kib() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// Nothing to wait for but the end of the span, or Ctrl-C: a command that does not come.
Status pass(Child& peers, Nanos span) {
  const auto line = peers.read_line(span);
  if (!line && line.error().code() == Code::kDeadlineExceeded) return {};
  return line ? Status(Code::kInternal, str("the peers said: ", *line)) : line.error();
}

}  // namespace

int run_peers(std::uint32_t count, const std::string& provider) {
  std::vector<std::unique_ptr<PeerAgent>> agents;
  std::string addresses = "READY";
  for (std::uint32_t i = 0; i < count; ++i) {
    auto agent = PeerAgent::start({.name = str("idle-peer-", i), .provider = provider});
    if (!agent) {
      answer(str("ERROR ", agent.error().to_string()));
      return 1;
    }
    addresses.append(" ").append((*agent)->address());
    agents.push_back(std::move(*agent));
  }
  answer(addresses);
  while (read_command()) {
  }
  return 0;
}

Result<std::string> measure_idle(const IdleOptions& options) {
  if (options.peers == 0 || options.peers > 512) return Status(Code::kInvalidArgument, "--peers: 1 to 512");
  if (!(options.seconds > 0) || options.seconds > 3600)
    return Status(Code::kInvalidArgument, "--seconds: more than 0");
  install_interrupt_flag();
  auto child = Child::start({"bench-peers", str(options.peers), "--provider", options.provider});
  if (!child) return std::move(child).error();
  auto ready = child->read_line(kAnswer);
  if (!ready) return std::move(ready).error();
  std::istringstream words(*ready);
  std::string address;
  words >> address;
  if (address != "READY") return Status(Code::kInternal, str("the peers said: ", *ready));

  PeerAgentOptions agent_options;
  agent_options.ctrl_url = options.ctrl_url;
  agent_options.provider = options.provider;
  auto agent = PeerAgent::start(agent_options);
  if (!agent) return std::move(agent).error();
  const std::int64_t before_kib = resident_kib();
  const TimePoint connecting = steady_clock().now();
  while (words >> address) {
    if (auto connected = (*agent)->peer(address).connect().wait(); !connected)
      return std::move(connected).error();
  }
  const double connect_ms =
      std::chrono::duration<double, std::milli>(steady_clock().now() - connecting).count();
  const std::int64_t after_kib = resident_kib();
  SLIME_TRY(pass(*child, kSettle));

  const double cpu_before = cpu_seconds();
  const TimePoint begin = steady_clock().now();
  SLIME_TRY(pass(*child, to_nanos(options.seconds)));
  const double seconds = std::chrono::duration<double>(steady_clock().now() - begin).count();
  const double cpu = cpu_seconds() - cpu_before;
  return nlohmann::json{{"bench", "idle"},
                        {"provider", options.provider},
                        {"peers", options.peers},
                        {"seconds", seconds},
                        {"cpu_percent", 100 * cpu / seconds},
                        {"connect_ms", connect_ms},
                        {"rss_kib_per_peer", static_cast<double>(after_kib - before_kib) / options.peers},
                        {"registry", !options.ctrl_url.empty()}}
      .dump();
}

}  // namespace slime::bench
