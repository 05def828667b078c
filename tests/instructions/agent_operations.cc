// Like operations.cc, for operations through agents over shared memory. Both agents are driven by
// this thread.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "agent/peer_agent.h"

namespace slime::testing {
namespace {

std::uint64_t wanted_operations() {
  const char* const count = std::getenv("SLIME_INSTRUCTIONS_COUNT");
  return count != nullptr ? std::strtoull(count, nullptr, 10) : 1;
}

std::unique_ptr<PeerAgent> start_agent(std::string name) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = "shm";
  options.progress = Progress::kCaller;
  auto agent = PeerAgent::start(std::move(options));
  REQUIRE(agent.has_value());
  return std::move(*agent);
}

// Two agents, and operations of the first on the second, `under_way` at a time.
struct Agents {
  Agents() {
    REQUIRE(service.add("echo", [](const ByteVector& bytes) { return bytes; }, {rpc::Run::kInline}).ok());
    REQUIRE(server->serve(service).ok());
    auto connected = peer.connect();
    drive([&] { return connected.done(); });
    REQUIRE(connected.wait().has_value());
  }
  ~Agents() {
    CHECK(client->close(Nanos(1)).code() != Code::kInternal);
    CHECK(server->close(Nanos(1)).code() != Code::kInternal);
  }
  template <class Done>
  void drive(Done done) {
    while (!done()) {
      client->poll(Nanos::zero());
      server->poll(Nanos::zero());
    }
  }
  template <class Begin>
  void repeat(std::uint64_t under_way, Begin begin) {
    const std::uint64_t all = wanted_operations();
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    drive([&] {
      while (begun < all && begun - ended < under_way) {
        ++begun;
        begin([&](bool good) {
          ++ended;
          right += good ? 1 : 0;
        });
      }
      return ended == all;
    });
    CHECK(right == all);
  }

  std::unique_ptr<PeerAgent> server = start_agent("server");
  std::unique_ptr<PeerAgent> client = start_agent("client");
  rpc::Service service{"bench"};
  Peer peer = client->peer(server->address());
  std::uint64_t right = 0;
};

void agent_echo(std::uint64_t under_way) {
  Agents agents;
  const ByteVector data(64, std::byte{7});
  agents.repeat(under_way, [&](auto ended) {
    agents.peer.call<ByteVector>("bench", "echo", data).then([&data, ended](Result<ByteVector> reply) {
      ended(reply && *reply == data);
    });
  });
}

TEST_CASE("agent_echo_shm") { agent_echo(1); }

TEST_CASE("agent_echoes_shm") { agent_echo(64); }

TEST_CASE("agent_writes_shm") {
  Agents agents;
  auto from = agents.client->allocate(4096, Rights::kLocal);
  auto to = agents.server->allocate(4096, Rights::kReadWrite);
  REQUIRE((from && to));
  REQUIRE(agents.server->publish("memory", *to).ok());
  auto looked_up = agents.peer.lookup_region("memory");
  agents.drive([&] { return looked_up.done(); });
  const auto remote = looked_up.wait();
  REQUIRE(remote.has_value());
  agents.repeat(16, [&](auto ended) {
    const Copy copy{.local = *from, .remote = *remote, .length_bytes = 64};
    agents.peer.write({&copy, 1}).then([ended](const Result<None>& result) { ended(result.has_value()); });
  });
}

}  // namespace
}  // namespace slime::testing
