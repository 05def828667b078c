#include <cstdlib>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/load.h"
#include "bench/machine_limits.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

// Carries out the driver's commands. `provider` is the connection's.
Status serve_driver(Load& load, const Options& options, const std::string& provider) {
  SLIME_TRY(load.warm_up(to_nanos(options.warmup_seconds)));
  answer(str("READY ", provider));
  LimitClient limits(options);
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
                                 {"faults", out.faults},
                                 {"blocks", out.blocks},
                                 {"distinct", out.distinct},
                                 {"latency", out.latency.encode()}}
                                .dump()));
    } else if (command->rfind("LIMIT ", 0) == 0) {
      const auto value = limits.measure(command->substr(6));
      if (!value) return value.error();
      answer(str("LIMIT ", json(*value).dump()));
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
  const std::string provider = peer.info().provider;
  auto load = make_peer_load(**agent, std::move(peer), options, index);
  if (!load) return std::move(load).error();
  return serve_driver(**load, options, provider);
}

Status through_channel(const Options& options, const std::string& address, std::uint32_t index) {
  auto load = make_channel_load(options, address, index);
  if (!load) return std::move(load).error();
  return serve_driver(**load, options, options.provider);
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
