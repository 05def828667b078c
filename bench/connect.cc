#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/histogram.h"
#include "bench/process.h"
#include "bench/raw.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

Options server_options(const ConnectOptions& options) {
  Options out;
  out.provider = options.provider;
  out.mode = options.mode;
  out.size = options.size;
  return out;
}

Status cancelled() { return {Code::kCancelled, "interrupted"}; }

struct Connecting {
  Histogram latency;
  double seconds = 0;  // of connecting, without starting and closing the agents
  std::string provider;
  bool verified = true;
};

// Connects `count` new agents, one after the other.
Status connect_round(const ConnectOptions& options, const std::string& address, Connecting& out) {
  ByteVector payload(options.size);
  Rng(kSeed).fill(payload);
  for (std::uint32_t i = 0; i < options.count; ++i) {
    if (interrupted()) return cancelled();
    auto agent = PeerAgent::start(agent_options(server_options(options), str("bench-connect-", i)));
    if (!agent) return std::move(agent).error();
    const TimePoint begin = steady_clock().now();
    Peer peer = (*agent)->peer(address);
    const auto reply = peer.call<ByteVector>("bench", "echo", payload).wait();
    const Nanos spent = steady_clock().now() - begin;
    if (!reply) return reply.error();
    out.verified = out.verified && *reply == payload;
    out.latency.add(static_cast<std::uint64_t>(spent.count()));
    out.seconds += std::chrono::duration<double>(spent).count();
    if (out.provider.empty()) out.provider = peer.info().provider;
    SLIME_TRY((*agent)->close());
  }
  return {};
}

Result<double> raw_round(const ConnectOptions& options, std::uint16_t port) {
  Histogram latency;
  for (std::uint32_t i = 0; i < options.count; ++i) {
    if (interrupted()) return cancelled();
    const auto spent = tcp_connect(port, {.size = options.size});
    if (!spent) return spent.error();
    latency.add(static_cast<std::uint64_t>(spent->count()));
  }
  return latency.quantile(0.5) / 1000;
}

}  // namespace

Result<std::string> measure_connect(const ConnectOptions& options) {
  if (options.count == 0 || options.count > 100'000)
    return Status(Code::kInvalidArgument, "--count: 1 to 100,000");
  SLIME_TRY(server_options(options).validate());
  install_interrupt_flag();
  json out = {{"bench", "connect"},     {"mode", options.mode},     {"size", options.size},
              {"count", options.count}, {"rounds", options.rounds}, {"machine", machine_facts()}};
  std::vector<std::string> arguments = server_options(options).to_arguments();
  arguments.insert(arguments.begin(), "bench-server");
  auto server = Child::start(arguments);
  if (!server) return std::move(server).error();
  const auto address = server->expect("READY", kAnswer);
  if (!address) return address.error();
  const auto port = server->ask("ACCEPT", "ACCEPT", kAnswer);
  if (!port) return port.error();
  Figures figures;
  Connecting all;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    Connecting ours;
    SLIME_TRY(connect_round(options, *address, ours));
    figures.add("p50_us", ours.latency.quantile(0.5) / 1000);
    figures.add("p99_us", ours.latency.quantile(0.99) / 1000);
    figures.add("ops_per_s", options.count / ours.seconds);
    all.verified = all.verified && ours.verified;
    all.provider = ours.provider;
    const auto raw = raw_round(options, static_cast<std::uint16_t>(std::strtoul(port->c_str(), nullptr, 10)));
    if (!raw) return raw.error();
    figures.add_limit(*raw, "only");
  }
  out["provider"] = all.provider;
  out["verified"] = all.verified;
  // With every provider the handshake goes over TCP.
  figures.put(out, {.kind = LimitKind::kTcpEcho,
                    .name = "raw TCP connect and first echo, blocked (every handshake is over TCP)",
                    .figure = "p50_us",
                    .less_is_better = true});
  return out.dump();
}

}  // namespace slime::bench
