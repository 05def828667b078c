#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "bench/ctrl_bench.h"

namespace slime::bench {

// How another tenant's heartbeats do beside one that does what it can: first without it, then while it has
// filled its share of the registry, sends as many requests as its connections take, with its token and
// without, and reads lists over 200 connections. The run as JSON: "idle" and "hostile" with the latencies of
// each, and "verified": whether the heartbeats' p99 kept its bar. kCancelled on Ctrl-C.
Result<nlohmann::json> measure_hostile(const CtrlOptions& options, const std::string& store,
                                       std::uint32_t agents);

// The hostile tenant, in a process of its own: it reads its token from stdin, fills its share of the server
// at `url` and says "READY <json>"; then it floods and scans until its stdin ends. "COUNT" -> "COUNT <json>".
// The exit code.
int run_hostile(const std::string& url, const std::string& scope);

}  // namespace slime::bench
