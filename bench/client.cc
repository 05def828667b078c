#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/raw.h"
#include "bench/roles.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

json measure_limit(const Options& options, std::uint16_t port, Status& error) {
  const Nanos span = to_nanos(std::max(0.2, options.seconds / 3));
  json out;
  const std::uint64_t buffer = options.moves_blocks() ? region_bytes(options) : options.size;
  out["memcpy_gb_per_s"] = memcpy_speed(options.size, buffer, to_nanos(0.1));
  if (!options.moves_blocks()) {
    const auto echo = raw_echo(port, options.size, options.inflight, options.mode == "caller", span);
    if (!echo) {
      error = echo.error();
      return out;
    }
    out["p50_us"] = echo->p50_us;
    out["ops_per_s"] = echo->ops_per_s;
    return out;
  }
  const auto speed = raw_stream(
      port, std::min<std::size_t>(std::max<std::uint64_t>(options.size, 65536), 1 << 20), buffer, span);
  if (!speed) {
    error = speed.error();
    return out;
  }
  out["gb_per_s"] = *speed;
  return out;
}

Status serve_driver(Load& load, const Options& options) {
  Outcome warm;
  SLIME_TRY(load.run(to_nanos(options.warmup_seconds), warm));
  answer("READY -");
  while (const auto command = read_command()) {
    if (*command == "GO") {
      Outcome out;
      SLIME_TRY(load.run(to_nanos(options.seconds), out));
      const auto verified = load.verify();
      if (!verified) return verified.error();
      answer(str("RESULT ", json{{"operations", out.operations},
                                 {"seconds", out.seconds},
                                 {"cpu", out.cpu},
                                 {"verified", out.verified && *verified},
                                 {"work_requests", out.device.work_requests},
                                 {"doorbells", out.device.doorbells},
                                 {"completions", out.device.completions},
                                 {"latency", out.latency.encode()}}
                                .dump()));
    } else if (command->rfind("RAW ", 0) == 0) {
      Status error;
      const json limit = measure_limit(
          options, static_cast<std::uint16_t>(std::strtoul(command->c_str() + 4, nullptr, 10)), error);
      SLIME_TRY(std::move(error));
      answer(str("LIMIT ", limit.dump()));
    }
  }
  return {};
}

// The client's index is the last part of its name, "bench-client-3".
Status through_agent(const Options& options, const std::string& address, std::uint32_t index) {
  auto agent = PeerAgent::start(agent_options(options, str("bench-client-", index)));
  if (!agent) return std::move(agent).error();
  Peer peer = (*agent)->peer(address);
  if (auto connected = peer.connect().wait(); !connected) return std::move(connected).error();
  auto load = make_peer_load(**agent, std::move(peer), options, index);
  if (!load) return std::move(load).error();
  return serve_driver(**load, options);
}

Status through_channel(const Options& options, const std::string& address, std::uint32_t index) {
  auto load = make_channel_load(options, address, index);
  if (!load) return std::move(load).error();
  return serve_driver(**load, options);
}

}  // namespace

int run_client(const Options& options, const std::string& target) {
  // "host:port#index"
  const auto at = target.rfind('#');
  const std::string address = target.substr(0, at);
  const auto index = at == std::string::npos
                         ? 0
                         : static_cast<std::uint32_t>(std::strtoul(target.c_str() + at + 1, nullptr, 10));
  const Status status = options.face == "channel" ? through_channel(options, address, index)
                                                  : through_agent(options, address, index);
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

}  // namespace slime::bench
