#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "agent/peer_agent.h"
#include "base/address.h"
#include "bench/options.h"
#include "bench/pages.h"

namespace slime::bench {

inline constexpr std::uint64_t kSeed = 20260101;
inline constexpr Nanos kServerPoll = std::chrono::milliseconds(20);
inline constexpr Nanos kAnswer = std::chrono::seconds(30);

// Returns the bytes of the memory of one client's blocks.
inline std::uint64_t region_bytes(const Options& options) {
  if (options.cold) return options.pool_bytes;
  return options.size * options.count * (options.scattered() ? 2 : 1) * options.inflight;
}

// Returns how many objects the cache has: whole operations.
inline std::uint64_t object_count(const Options& options) {
  constexpr std::uint64_t kMost = 4096;
  const std::uint64_t count =
      std::clamp<std::uint64_t>(options.pool_bytes / options.size, options.count, kMost);
  return count / options.count * options.count;
}

// Returns the bytes that the server of a measurement holds for all of its clients.
inline std::uint64_t server_bytes(const Options& options) {
  constexpr std::uint64_t kCopies = 3;  // start_cache_server()
  if (options.bench == "cache") return kCopies * object_count(options) * options.size;
  if (options.moves_blocks()) return region_bytes(options) * options.clients;
  // Bodies and messages that are under way; agents connect one after the other.
  const std::uint64_t messages = options.sends() ? options.count : 1;
  return options.beside_bytes + options.size * messages * options.inflight * options.clients;
}

// Returns the secret of all processes of a measurement: $SLIME_TOKEN, which they inherit. Empty if
// there is none.
inline std::string shared_token() {
  const char* token = std::getenv("SLIME_TOKEN");
  return token == nullptr ? "" : token;
}

// Returns the address at which the server of a measurement listens, with a free port.
inline std::string listen_address(const Options& options) { return Address{options.host, 0}.to_string(); }

// memcmp is eight times as fast as std::byte's ==, which compilers make a loop of single bytes, and
// which takes as long as a call of 16 MiB.
inline bool same_bytes(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline PeerAgentOptions agent_options(const Options& options, std::string name) {
  PeerAgentOptions out;
  out.name = std::move(name);
  out.provider = options.provider;
  out.token = shared_token();
  out.progress = options.mode == "caller" ? Progress::kCaller : Progress::kThread;
  return out;
}

// Allocates memory for transfers, and touches all of it: Slime's memory, or the program's own,
// which `foreign` then owns. `owner` is an agent or a device.
template <class Owner>
auto make_region(Owner& owner, const Options& options, std::uint64_t bytes, Rights rights, Pages& foreign)
    -> decltype(owner.allocate(bytes, rights)) {
  if (options.memory != "foreign") return owner.allocate(bytes, rights);
  auto pages = Pages::create(bytes);
  if (!pages) return std::move(pages).error();
  foreign = std::move(*pages);
  return owner.register_memory(foreign.data(), bytes, rights);
}

}  // namespace slime::bench
