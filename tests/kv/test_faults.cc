// Peers that die or freeze: every call ends by its timeout, and never with a success for bytes that
// did not arrive.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/kv/caches.h"
#include "tests/support/process.h"

namespace slime::kv::faults_test {
namespace {

using namespace slime::kv::test;
using slime::test::Process;

const Geometry kLarge{.layers = 2, .blocks = 8, .block_tokens = 256, .heads = 2, .head_bytes = 4096};
const Ids kAll{0, 1, 2, 3, 4, 5, 6, 7};

// A cache of this process, and one in a child.
struct World {
  World() : local(kLarge), child(take(Process::spawn({slime::test::program_beside_this("kv_test_peer")}))) {
    address = take(child.read_line(kSoon));
  }
  Result<Remote> connected(Nanos timeout = kSoon) {
    return connect(local.agent->peer(address), local.cache, {}, timeout);
  }
  Side local;
  Process child;
  std::string address;
};

}  // namespace

TEST_CASE("a peer that is killed ends writes, reads and connects with unavailable") {
  World world;
  const Remote remote = take(world.connected());
  REQUIRE(remote.write_blocks(kAll, kAll, {.request = 1}).wait(kSoon).has_value());
  REQUIRE(world.child.kill().ok());
  REQUIRE(world.child.wait(kSoon).has_value());
  CHECK(remote.write_blocks(kAll, kAll, {.timeout = kSoon}).wait().status().code() == Code::kUnavailable);
  CHECK(remote.read_blocks(kAll, kAll, {.timeout = kSoon}).wait().status().code() == Code::kUnavailable);
  CHECK(world.connected(patient(seconds(2))).status().code() == Code::kUnavailable);
}

TEST_CASE("a peer that is frozen ends a write that tells it, and a connect, at their timeout") {
  World world;
  const Remote remote = take(world.connected());
  REQUIRE(world.child.stop().ok());
  const Nanos timeout = milliseconds(300);
  Move move = remote.write_blocks(kAll, kAll, {.request = 1, .timeout = timeout});
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  CHECK((status.code() == Code::kDeadlineExceeded || status.code() == Code::kUnavailable));
  CHECK(!status.wait_timeout());
  CHECK(move.progress().layers_done == 0);
  CHECK(!world.connected(timeout).has_value());
}

TEST_CASE("a peer that is frozen keeps no destructor for more than two seconds") {
  auto world = std::make_unique<World>();
  Remote remote = take(world->connected());
  REQUIRE(world->child.stop().ok());
  const auto took = [](auto drop) {
    const TimePoint began = steady_clock().now();
    drop();
    return steady_clock().now() - began;
  };
  const Nanos bound = patient(seconds(2));
  CHECK(took([&] { remote = Remote(); }) < bound);
  CHECK(took([&] { world->local.cache = Cache(); }) < bound);
  CHECK(took([&] { world->local.agent.reset(); }) < bound);
}

TEST_CASE("a peer that dies during transfers leaves no success for bytes that did not arrive") {
  World world;
  const Remote remote = take(world.connected());
  std::vector<Move> moves;
  for (int i = 0; i < 20; ++i) moves.push_back(remote.read_blocks(kAll, kAll, {.timeout = kSoon}));
  REQUIRE(world.child.kill().ok());
  for (Move& move : moves) {
    const auto end = move.wait(kSoon);
    CHECK(!end.status().wait_timeout());
    const MoveProgress progress = move.progress();
    CHECK(end.has_value() == (progress.bytes_done == progress.bytes_total));
  }
  CHECK(remote.read_blocks(kAll, kAll, {.timeout = kSoon}).wait().status().code() == Code::kUnavailable);
}

}  // namespace slime::kv::faults_test
