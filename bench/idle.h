#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

struct IdleOptions {
  std::uint32_t peers = 50;
  double seconds = 5;
  std::string provider = "tcp";
  std::string ctrl_url;  // empty: no registry, no heartbeats
};

// What one agent costs that is connected to many peers and does nothing. The report as one JSON object on one
// line: cpu_percent of one core, connect_ms (of all peers, one after the other), rss_kib_per_peer.
Result<std::string> measure_idle(const IdleOptions& options);

// The process with the peers: says "READY <address> <address> ...", ends with its stdin.
int run_peers(std::uint32_t count, const std::string& provider);

}  // namespace slime::bench
