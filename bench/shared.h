#pragma once

#include <cstdint>
#include <cstring>

#include "agent/peer_agent.h"
#include "bench/options.h"

namespace slime::bench {

inline constexpr std::uint64_t kSeed = 20260101;
inline constexpr Nanos kServerPoll = std::chrono::milliseconds(20);
inline constexpr Nanos kAnswer = std::chrono::seconds(30);

// Returns the bytes of the memory of one client's blocks.
inline std::uint64_t region_bytes(const Options& options) {
  if (options.cold) return options.pool_bytes;
  return options.size * options.count * (options.scattered() ? 2 : 1) * options.inflight;
}

// memcmp is eight times as fast as std::byte's ==, which compilers make a loop of single bytes, and
// which takes as long as a call of 16 MiB.
inline bool same_bytes(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline PeerAgentOptions agent_options(const Options& options, std::string name) {
  PeerAgentOptions out;
  out.name = std::move(name);
  out.provider = options.provider;
  out.progress = options.mode == "caller" ? Progress::kCaller : Progress::kThread;
  return out;
}

}  // namespace slime::bench
