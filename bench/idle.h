#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

struct IdleOptions {
  std::uint32_t peers = 50;
  std::uint32_t calls = 100;  // to each peer, before it is idle
  double seconds = 5;         // idle
  std::string provider = "auto";
  std::string ctrl_url;  // empty: no registry, no heartbeats
};

// What one agent costs that is connected to many peers, has called them, and does nothing. The report as one
// JSON object on one line: cpu_percent of one core, connect_ms (of all peers, one after the other), and for
// each peer pss_kib_per_peer and fds_per_peer, of this side.
Result<std::string> measure_idle(const IdleOptions& options);

// The process with the peers: says "READY <address> <address> ...", ends with its stdin.
int run_peers(std::uint32_t count, const std::string& provider);

}  // namespace slime::bench
