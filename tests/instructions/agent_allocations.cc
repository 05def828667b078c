// What an operation through an agent asks the heap for, both sides together: nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "agent/peer_agent.h"
#include "tests/instructions/heap.h"

namespace slime::testing {
namespace {

constexpr int kFirst = 2000;  // until every table and pool has the size that it keeps
constexpr int kCounted = 2000;
// A body that one thread took and another gave back leaves a pool empty now and then, on a busy
// machine; an operation that took an allocation would take as many as there are.
constexpr std::uint64_t kHousekeeping = kCounted / 2;
// On a busy machine the agent's thread and the caller take turns more often. So allocations are
// counted again, at most this often, as long as there are too many.
constexpr int kRuns = 20;

std::unique_ptr<PeerAgent> start(const std::string& provider, std::string name, Progress progress) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = provider;
  options.progress = progress;
  auto agent = PeerAgent::start(std::move(options));
  INFO(agent.status().to_string());
  REQUIRE(agent.has_value());
  return std::move(*agent);
}

std::uint64_t allocations_of(const std::function<bool()>& operation) {
  for (int i = 0; i < kFirst; ++i) REQUIRE(operation());
  std::uint64_t least = ~std::uint64_t{0};
  for (int run = 0; run < kRuns && least >= kHousekeeping; ++run) {
    const std::uint64_t before = heap_allocations();
    int right = 0;
    for (int i = 0; i < kCounted; ++i) right += operation() ? 1 : 0;
    least = std::min(least, heap_allocations() - before);
    CHECK(right == kCounted);
  }
  return least;
}

// An agent that calls and one that serves.
struct Pair {
  Pair(const std::string& provider, Progress progress)
      : server(start(provider, "server", Progress::kThread)), client(start(provider, "client", progress)) {
    REQUIRE(service.add("next", [](std::uint64_t n) { return n + 1; }, {rpc::Run::kInline}).ok());
    REQUIRE(server->serve(service).ok());
    peer = client->peer(server->address());
    REQUIRE(peer.connect().wait().has_value());
  }
  rpc::Service service{"calculator"};
  std::unique_ptr<PeerAgent> server;
  std::unique_ptr<PeerAgent> client;
  Peer peer;
};

constexpr std::array kModes{Progress::kCaller, Progress::kThread};

TEST_CASE("a short call allocates nothing") {
  for (const char* const provider : {"shm", "tcp"}) {
    for (const Progress mode : kModes) {
      CAPTURE(provider);
      CAPTURE(static_cast<int>(mode));
      Pair pair(provider, mode);
      std::uint64_t number = 0;
      const auto call = [&] {
        const auto next = pair.peer.call<std::uint64_t>("calculator", "next", number).wait();
        return next && *next == ++number;
      };
      CHECK(allocations_of(call) < kHousekeeping);
    }
  }
}

TEST_CASE("a write of one block allocates nothing") {
  for (const char* const provider : {"shm", "tcp"}) {
    for (const Progress mode : kModes) {
      CAPTURE(provider);
      CAPTURE(static_cast<int>(mode));
      Pair pair(provider, mode);
      auto from = pair.client->allocate(64 << 10, Rights::kLocal);
      auto to = pair.server->allocate(64 << 10, Rights::kReadWrite);
      REQUIRE(from.has_value());
      REQUIRE(to.has_value());
      REQUIRE(pair.server->publish("memory", *to).ok());
      const auto remote = pair.peer.region("memory");
      REQUIRE(remote.has_value());
      const auto write = [&] {
        const Copy copy{.local = *from, .remote = *remote, .length_bytes = 64};
        return pair.peer.write({&copy, 1}).wait().has_value();
      };
      CHECK(allocations_of(write) < kHousekeeping);
    }
  }
}

}  // namespace
}  // namespace slime::testing
