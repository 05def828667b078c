#include <malloc.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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

constexpr std::uint64_t kLeastCall = 64;  // bytes

// The most KiB of one peer.
constexpr double kPssBarKib = 64;

// Lets malloc give large vectors of the bench back to the kernel when they are freed. By default
// malloc raises its thresholds with each large vector, and each arena keeps up to 64 MiB of free
// memory: then chance decides what is measured.
void keep_no_free_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

// Returns this process's share of its resident pages, in KiB: half of a page shared with a peer.
// Free memory of malloc does not count.
double pss_kib() {
  static_cast<void>(::malloc_trim(0));
  return number_in("/proc/self/smaps_rollup", "Pss:");
}

std::int64_t open_descriptors() {
  std::int64_t out = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++out;
  return out;
}

// Each larger size is this many times the one before. This many calls are made of each size.
constexpr std::uint64_t kNextSize = 4;
constexpr std::uint32_t kLargerCalls = 4;

Status call_one(Peer& peer, const ByteVector& payload, std::uint32_t calls) {
  for (std::uint32_t i = 0; i < calls; ++i) {
    if (interrupted()) return {Code::kCancelled, "interrupted"};
    const auto reply = peer.call<ByteVector>("bench", "echo", payload).wait();
    if (!reply) return reply.error();
    if (!same_bytes(*reply, payload)) return {Code::kCorrupt, "a peer sent back other bytes"};
  }
  return {};
}

// Calls peers, one after the other.
Status call_all(PeerAgent& agent, std::span<const std::string> addresses, const IdleOptions& options) {
  for (const std::string& address : addresses) {
    Peer peer = agent.peer(address);
    SLIME_TRY(call_one(peer, ByteVector(kLeastCall), options.calls));
    for (std::uint64_t size = kLeastCall * kNextSize; size <= options.up_to; size *= kNextSize)
      SLIME_TRY(call_one(peer, ByteVector(size), kLargerCalls));
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
    SLIME_TRY(service.add("echo", [](ByteVector data) { return data; }, {.run = rpc::Run::kInline}));
    SLIME_TRY((*agent)->serve(service));
    addresses.append(" ").append((*agent)->address());
    agents.push_back(std::move(*agent));
  }
  answer(addresses);
  while (read_command()) answer(str("PSS ", pss_kib()));
  return {};
}

// Waits for `span`, or until Ctrl-C.
Status pass(Child& peers, Nanos span) {
  const auto line = peers.read_line(span);
  if (!line && line.error().code() == Code::kDeadlineExceeded) return {};
  return line ? Status(Code::kInternal, str("the peers said: ", *line)) : line.error();
}

// Returns the share of the peers' process of its resident pages, in KiB.
Result<double> pss_kib_of(Child& peers) {
  const auto text = peers.ask("pss", "PSS", kAnswer);
  if (!text) return text.error();
  return std::stod(*text);
}

// The measurements of the counted peers.
struct Idle {
  std::string provider;
  double seconds = 0;
  double cpu = 0;
  double connect_ms = 0;
  double kib = 0;          // of one peer
  double serving_kib = 0;  // of one peer, in the process of the peers
  double descriptors = 0;  // of one peer
  std::optional<double> first_kib;
};

nlohmann::json report_of(const IdleOptions& options, const Idle& idle) {
  nlohmann::json out = {{"bench", "idle"},
                        {"provider", idle.provider},
                        {"peers", options.peers},
                        {"calls", options.calls},
                        {"up_to", options.up_to},
                        {"seconds", idle.seconds},
                        {"cpu_percent", 100 * idle.cpu / idle.seconds},
                        {"connect_ms", idle.connect_ms},
                        {"pss_kib_per_peer", idle.kib},
                        {"serving_pss_kib_per_peer", idle.serving_kib},
                        {"fds_per_peer", idle.descriptors},
                        {"registry", !options.ctrl_url.empty()},
                        {"ratio_to_limit", idle.kib / kPssBarKib}};
  out["limit"] = {{"name", "what a peer is meant to stay under, KiB (no limit of the machine)"},
                  {"kind", "bar"},
                  {"figure", "pss_kib_per_peer"},
                  {"less_is_better", true},
                  {"value", kPssBarKib},
                  {"spread", {kPssBarKib, kPssBarKib}}};
  if (idle.first_kib) out["first_peer_kib"] = *idle.first_kib;
  return out;
}

// Measures an agent with connections to `addresses`; `peers` is their process.
Result<Idle> measure_agent(PeerAgent& agent, std::span<const std::string> addresses, Child& peers,
                           const IdleOptions& options) {
  Idle out;
  SLIME_TRY(pass(peers, kSettle));
  // Leaves out the memory that the first large calls leave in this process, once for all peers.
  if (options.up_to > 0 && addresses.size() > 1) {
    const double before = pss_kib();
    SLIME_TRY(call_all(agent, addresses.first(1), options));
    SLIME_TRY(pass(peers, kSettle + to_nanos(options.seconds)));
    out.first_kib = pss_kib() - before;
    addresses = addresses.subspan(1);
  }
  const auto count = static_cast<double>(addresses.size());
  const double kib_before = pss_kib();
  const auto serving_before = pss_kib_of(peers);
  if (!serving_before) return serving_before.error();
  const std::int64_t descriptors_before = open_descriptors();
  const TimePoint connecting = steady_clock().now();
  for (const std::string& address : addresses) {
    if (auto connected = agent.peer(address).connect().wait(); !connected)
      return std::move(connected).error();
  }
  out.connect_ms = std::chrono::duration<double, std::milli>(steady_clock().now() - connecting).count();
  SLIME_TRY(call_all(agent, addresses, options));
  SLIME_TRY(pass(peers, kSettle));

  const double cpu_before = cpu_seconds();
  const TimePoint begin = steady_clock().now();
  SLIME_TRY(pass(peers, to_nanos(options.seconds)));
  out.seconds = std::chrono::duration<double>(steady_clock().now() - begin).count();
  out.cpu = cpu_seconds() - cpu_before;
  out.kib = (pss_kib() - kib_before) / count;
  const auto serving_after = pss_kib_of(peers);
  if (!serving_after) return serving_after.error();
  out.serving_kib = (*serving_after - *serving_before) / count;
  out.descriptors = static_cast<double>(open_descriptors() - descriptors_before) / count;
  out.provider = agent.peer(addresses[0]).info().provider;
  return out;
}

}  // namespace

int run_peers(std::uint32_t count, const std::string& provider) {
  keep_no_free_memory();
  return exit_status_of(serve_peers(count, provider));
}

Result<std::string> measure_idle(const IdleOptions& options) {
  install_interrupt_flag();
  keep_no_free_memory();
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
  auto idle = measure_agent(**agent, addresses, *child, options);
  if (!idle) return std::move(idle).error();
  nlohmann::json out = report_of(options, *idle);
  out["machine"] = machine;
  return out.dump();
}

}  // namespace slime::bench
