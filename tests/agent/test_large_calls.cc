// Calls whose bodies are larger than a message, over shared memory: what a connection registers for
// them, and what it keeps.
#include <memory>
#include <string>

#include "rpc/codec/body_pool.h"
#include "rpc/codec/received.h"
#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

constexpr std::size_t kSizes[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20};

struct LargeCalls {
  LargeCalls() {
    rpc::Service service("bytes");
    REQUIRE(service.add("echo", [](ByteVector bytes) { return bytes; }).ok());
    REQUIRE(server->serve(service).ok());
  }
  static PeerAgentOptions over_shm(std::string name) {
    PeerAgentOptions options;
    options.name = std::move(name);
    options.provider = "shm";
    return options;
  }
  void call(const ByteVector& bytes, int times) {
    for (int i = 0; i < times; ++i)
      REQUIRE(take(peer.call<ByteVector>("bytes", "echo", bytes).wait(kSoon)) == bytes);
  }
  // A counter of both sides together.
  std::int64_t both(std::string_view counter) {
    return number_in(to_json(peer.info()), counter) +
           number_in(to_json(server->peer("client").info()), counter);
  }
  std::int64_t registered() { return both("registrations") + both("blocks_made"); }

  std::unique_ptr<PeerAgent> server = test::start(over_shm("server"));
  std::unique_ptr<PeerAgent> client = test::start(over_shm("client"));
  Peer peer = client->peer(server->address());
};

TEST_CASE("calls of a size that was seen before register no memory, on neither side") {
  constexpr int kCalls = 100;
  LargeCalls agents;
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    const ByteVector bytes(size, std::byte{7});
    agents.call(bytes, kCalls);
    const std::int64_t before = agents.registered();
    agents.call(bytes, kCalls);
    // An answer that is released late may make one block more.
    CHECK(agents.registered() - before <= kCalls / 20);
  }
  CHECK(agents.both("fetched_copies") == 0);  // of the kernel: all bytes were in mapped memory
}

TEST_CASE("an idle peer keeps at most 64 KiB after calls of all sizes") {
  LargeCalls agents;
  for (const std::size_t size : kSizes) agents.call(ByteVector(size, std::byte{7}), 5);
  CHECK(agents.both("block_bytes") > 1 << 20);
  CHECK(eventually([&] { return agents.both("block_bytes") <= 2 * (64 << 10); }));
  agents.call(ByteVector(300'000), 1);
}

TEST_CASE("an idle agent keeps no memory for large calls") {
  LargeCalls agents;
  agents.call(ByteVector(16 << 20, std::byte{7}), 5);
  CHECK(rpc::kept_body_bytes() >= 16 << 20);
  CHECK(rpc::kept_received_bytes() >= 16 << 20);
  CHECK(eventually([] { return rpc::kept_body_bytes() + rpc::kept_received_bytes() == 0; }));
  agents.call(ByteVector(16 << 20), 1);
}

}  // namespace
}  // namespace slime
