#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// time in which credits return and timers of connecting end
constexpr Nanos kSettle = std::chrono::seconds(1);

// The most KiB of one peer.
constexpr double kPssBarKib = 64;

// Returns this process's share of its resident pages, in KiB: half of a page shared with a peer.
double pss_kib() { return number_in("/proc/self/smaps_rollup", "Pss:"); }

std::int64_t open_descriptors() {
  std::int64_t out = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++out;
  return out;
}

// Calls each peer, one after the other.
Status call_all(PeerAgent& agent, const std::vector<std::string>& addresses, std::uint32_t calls) {
  const ByteVector payload(64);
  for (const std::string& address : addresses) {
    Peer peer = agent.peer(address);
    for (std::uint32_t i = 0; i < calls; ++i) {
      if (interrupted()) return {Code::kCancelled, "interrupted"};
      const auto reply = peer.call<ByteVector>("bench", "echo", payload).wait();
      if (!reply) return reply.error();
      if (*reply != payload) return {Code::kCorrupt, "a peer sent back other bytes"};
    }
  }
  return {};
}

Status serve_peers(std::uint32_t count, const std::string& provider) {
  std::vector<std::unique_ptr<PeerAgent>> agents;
  std::string addresses = "READY";
  for (std::uint32_t i = 0; i < count; ++i) {
    auto agent = PeerAgent::start({.name = str("idle-peer-", i), .provider = provider});
    if (!agent) return std::move(agent).error();
    rpc::Service service("bench");
    SLIME_TRY(service.add("echo", [](const ByteVector& data) { return data; }, {.run = rpc::Run::kInline}));
    SLIME_TRY((*agent)->serve(service));
    addresses.append(" ").append((*agent)->address());
    agents.push_back(std::move(*agent));
  }
  answer(addresses);
  while (read_command()) {
  }
  return {};
}

// Waits for `span`, or until Ctrl-C.
Status pass(Child& peers, Nanos span) {
  const auto line = peers.read_line(span);
  if (!line && line.error().code() == Code::kDeadlineExceeded) return {};
  return line ? Status(Code::kInternal, str("the peers said: ", *line)) : line.error();
}

}  // namespace

int run_peers(std::uint32_t count, const std::string& provider) {
  return exit_status_of(serve_peers(count, provider));
}

Result<std::string> measure_idle(const IdleOptions& options) {
  install_interrupt_flag();
  const nlohmann::json machine = machine_facts();
  auto child = Child::start({"bench-peers", str(options.peers), "--provider", options.provider});
  if (!child) return std::move(child).error();
  auto ready = child->expect("READY", kAnswer);
  if (!ready) return std::move(ready).error();
  std::istringstream words(*ready);
  const std::vector<std::string> addresses{std::istream_iterator<std::string>(words), {}};

  PeerAgentOptions agent_options;
  agent_options.ctrl_url = options.ctrl_url;
  agent_options.provider = options.provider;
  auto agent = PeerAgent::start(agent_options);
  if (!agent) return std::move(agent).error();
  SLIME_TRY(pass(*child, kSettle));
  const double kib_before = pss_kib();
  const std::int64_t descriptors_before = open_descriptors();
  const TimePoint connecting = steady_clock().now();
  for (const std::string& address : addresses) {
    if (auto connected = (*agent)->peer(address).connect().wait(); !connected)
      return std::move(connected).error();
  }
  const double connect_ms =
      std::chrono::duration<double, std::milli>(steady_clock().now() - connecting).count();
  SLIME_TRY(call_all(**agent, addresses, options.calls));
  SLIME_TRY(pass(*child, kSettle));

  const double cpu_before = cpu_seconds();
  const TimePoint begin = steady_clock().now();
  SLIME_TRY(pass(*child, to_nanos(options.seconds)));
  const double seconds = std::chrono::duration<double>(steady_clock().now() - begin).count();
  const double cpu = cpu_seconds() - cpu_before;
  const double kib = (pss_kib() - kib_before) / options.peers;
  return nlohmann::json{
      {"bench", "idle"},
      {"provider", (*agent)->peer(addresses[0]).info().provider},
      {"peers", options.peers},
      {"calls", options.calls},
      {"seconds", seconds},
      {"cpu_percent", 100 * cpu / seconds},
      {"connect_ms", connect_ms},
      {"pss_kib_per_peer", kib},
      {"fds_per_peer", static_cast<double>(open_descriptors() - descriptors_before) / options.peers},
      {"registry", !options.ctrl_url.empty()},
      {"machine", machine},
      {"limit",
       {{"name", "what a peer is meant to stay under, KiB (no limit of the machine)"},
        {"kind", "bar"},
        {"figure", "pss_kib_per_peer"},
        {"less_is_better", true},
        {"value", kPssBarKib},
        {"spread", {kPssBarKib, kPssBarKib}}}},
      {"ratio_to_limit", kib / kPssBarKib}}
      .dump();
}

}  // namespace slime::bench
