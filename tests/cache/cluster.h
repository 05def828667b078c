#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/random.h"
#include "cache/client.h"
#include "cache/method_bodies.h"
#include "cache/server.h"
#include "cache/store.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime::cache {

using test::eventually;

inline std::unique_ptr<PeerAgent> start_agent(const std::string& name,
                                              const std::string& listen = "127.0.0.1:0") {
  auto agent = PeerAgent::start({.name = name, .listen = listen, .provider = test::provider()});
  REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
  return std::move(*agent);
}

inline ByteVector random_object(std::uint64_t seed, std::size_t length) {
  ByteVector bytes(length);
  Rng(seed).fill(bytes);
  return bytes;
}

// A cache on an agent of its own, and an agent that uses it.
struct Cluster {
  explicit Cluster(CacheServerOptions options = {}, CacheClientOptions client_options = {}) {
    if (options.memory_bytes == 0) options.memory_bytes = 8 << 20;
    server_agent = start_agent("cache:0");
    auto started = CacheServer::start(*server_agent, options, clock);
    REQUIRE_MESSAGE(started.has_value(), started.status().to_string());
    server = std::move(*started);
    agent = start_agent("user:0");
    auto made = CacheClient::create(*agent, server_agent->address(), client_options);
    REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
    client = std::make_unique<CacheClient>(std::move(*made));
  }
  ~Cluster() {
    client.reset();
    agent.reset();
    server.reset();
    server_agent.reset();
  }
  [[nodiscard]] StoreStats stats() const { return server->stats(); }

  ManualClock clock;  // of the server
  std::unique_ptr<PeerAgent> server_agent;
  std::unique_ptr<CacheServer> server;
  std::unique_ptr<PeerAgent> agent;
  std::unique_ptr<CacheClient> client;
};

inline CacheClient client_of(PeerAgent& agent, const std::string& server) {
  auto client = CacheClient::create(agent, server);
  REQUIRE_MESSAGE(client.has_value(), client.status().to_string());
  return std::move(*client);
}

// The protocol by hand, step by step, where a test wants to stand between two of them.
class RawClient {
 public:
  RawClient(PeerAgent& agent, const std::string& server) : agent_(agent), peer_(agent.peer(server)) {}

  wire::Reserved reserve(const std::string& key, std::uint64_t length, bool replace = false) {
    const auto reply = peer_
                           .call<wire::ReserveReply>(wire::kService, "reserve",
                                                     wire::ReserveRequest{"ns", replace, 0, {{key, length}}})
                           .wait();
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    return reply->items.at(0);
  }
  Status seal(std::uint64_t version, std::uint64_t checksum) {
    return outcome("seal", std::vector{wire::SealItem{version, checksum}});
  }
  wire::Found lookup(const std::string& key) {
    const auto reply =
        peer_.call<wire::LookupReply>(wire::kService, "lookup", std::string("ns"), wire::Keys{key}).wait();
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    return reply->items.at(0);
  }
  Status release(std::uint64_t lease) { return outcome("release", wire::Ids{lease}); }

  Status write(const ByteVector& extents, Bytes bytes) {
    auto memory = agent_.allocate(bytes.size(), Rights::kLocal);
    REQUIRE(memory.has_value());
    std::copy(bytes.begin(), bytes.end(), memory->data());
    return copy(wire::kWriteRegion, extents, *memory, true);
  }
  Result<ByteVector> read(const ByteVector& extents, std::uint64_t length) {
    auto memory = agent_.allocate(length, Rights::kLocal);
    REQUIRE(memory.has_value());
    SLIME_TRY(copy(wire::kReadRegion, extents, *memory, false));
    return ByteVector(memory->data(), memory->data() + length);
  }
  // One-sided, in whatever region.
  Status copy(const char* name, const ByteVector& packed, const MemoryRegion& memory, bool write) {
    const auto region = peer_.region(name);
    if (!region) return region.error();
    const auto extents = wire::unpack_extents(packed, memory.length_bytes(), region->length_bytes());
    REQUIRE(extents.has_value());
    std::vector<Copy> copies;
    std::uint64_t at = 0;
    for (const Extent& extent : *extents) {
      copies.push_back({memory, at, *region, extent.offset, extent.length});
      at += extent.length;
    }
    return (write ? peer_.write(copies) : peer_.read(copies)).wait().status();
  }
  Peer& peer() { return peer_; }

 private:
  template <class A>
  Status outcome(const char* method, const A& argument) {
    const auto reply = peer_.call<wire::Outcomes>(wire::kService, method, argument).wait();
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    return reply->at(0).status();
  }

  PeerAgent& agent_;
  Peer peer_;
};

}  // namespace slime::cache
