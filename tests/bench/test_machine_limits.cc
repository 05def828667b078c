// What figures are set against: the right thing, and one that does what it is said to do.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "bench/figures.h"
#include "bench/machine_limits.h"
#include "bench/pages.h"
#include "bench/raw.h"
#include "bench/raw_copy.h"

namespace slime::bench::machine_limits_test {
namespace {

const Nanos kShort = std::chrono::milliseconds(2);

Pages pages(std::size_t bytes) {
  auto made = Pages::create(bytes);
  REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
  return std::move(*made);
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

TEST_CASE("what went through shared memory is set against shared memory, what went over TCP against TCP") {
  for (const char* bench : {"rpc", "notify", "bulk", "blocks"}) {
    for (const std::uint32_t inflight : {1U, 16U}) {
      for (const char* memory : {"slime", "foreign"}) {
        Options options;
        options.bench = bench;
        options.inflight = inflight;
        options.memory = memory;
        CAPTURE(bench);
        CAPTURE(inflight);
        const Limit shared = choose_limit(options, "shm");
        CHECK_FALSE(contains(shared.name, "TCP"));
        CHECK(shared.kind != LimitKind::kTcpEcho);
        CHECK(shared.kind != LimitKind::kTcpStream);
        const Limit socket = choose_limit(options, "tcp");
        CHECK(contains(socket.name, "TCP"));
        CHECK(socket.figure == shared.figure);
      }
    }
  }
}

TEST_CASE("each kind of transfer in shared memory has a limit of its own") {
  Options options;
  options.bench = "bulk";
  CHECK(choose_limit(options, "shm").kind == LimitKind::kMemcpy);
  options.cold = true;
  CHECK(choose_limit(options, "shm").kind == LimitKind::kPlainMemcpy);
  options.memory = "foreign";
  CHECK(choose_limit(options, "shm").kind == LimitKind::kProcessVm);
  options.memory = "slime";
  options.cold = false;
  options.bench = "blocks";
  CHECK(choose_limit(options, "shm").kind == LimitKind::kPlainMemcpy);
}

TEST_CASE("small calls are set against two cache lines, larger ones against an echo of the bytes") {
  Options options;
  CHECK(choose_limit(options, "shm").kind == LimitKind::kPingPong);
  options.size = 4096;
  CHECK(choose_limit(options, "shm").kind == LimitKind::kRing);
  CHECK(choose_limit(options, "shm").figure == "p50_us");
  options.inflight = 2;
  CHECK(choose_limit(options, "shm").figure == "ops_per_s");
}

TEST_CASE("a limit waits as what it is a limit of does, and says so") {
  Options options;
  options.mode = "caller";
  CHECK(contains(choose_limit(options, "shm").name, "spinning"));
  CHECK(contains(choose_limit(options, "tcp").name, "spinning"));
  options.mode = "thread";
  CHECK(contains(choose_limit(options, "shm").name, "spinning"));
  options.inflight = 2;
  CHECK(contains(choose_limit(options, "shm").name, "blocked"));
  CHECK(contains(choose_limit(options, "tcp").name, "blocked"));
}

TEST_CASE("cold blocks: each block of both pools once, in another order on each side") {
  Options options;
  options.bench = "bulk";
  options.cold = true;
  options.size = 4096;
  options.count = 16;
  options.pool_bytes = 4096 * 1000;
  const std::vector<Block> blocks = block_list(options);
  CHECK(blocks.size() == 992);  // a whole number of batches
  std::set<std::uint64_t> local;
  std::set<std::uint64_t> remote;
  std::size_t in_order = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    local.insert(blocks[i].local);
    remote.insert(blocks[i].remote);
    CHECK(blocks[i].local % 4096 == 0);
    CHECK(blocks[i].remote + 4096 <= options.pool_bytes);
    if (i > 0 && blocks[i].local == blocks[i - 1].local + 4096) ++in_order;
  }
  CHECK(local.size() == blocks.size());
  CHECK(remote.size() == blocks.size());
  CHECK(in_order < 20);
}

TEST_CASE("every way to copy copies") {
  constexpr std::size_t kSize = 64 << 10;
  const Pages local = pages(4 * kSize);
  const Pages remote = pages(4 * kSize);
  const std::vector<Block> blocks = {{0, 3 * kSize}, {kSize, 0}};
  for (const CopyWay way : {CopyWay::kGlibc, CopyWay::kStreaming, CopyWay::kInterleaved}) {
    if (!can_copy(way, kSize)) continue;
    Rng(1).fill(local.bytes());
    std::ranges::fill(remote.bytes(), std::byte{0});
    CHECK(copy_speed({blocks, kSize, true}, local.data(), remote.data(), way, kShort) > 0);
    CHECK(std::equal(local.data(), local.data() + kSize, remote.data() + 3 * kSize));
    CHECK(std::equal(local.data() + kSize, local.data() + 2 * kSize, remote.data()));
    CHECK(remote.data()[kSize] == std::byte{0});
    Rng(2).fill(remote.bytes());
    CHECK(copy_speed({blocks, kSize, false}, local.data(), remote.data(), way, kShort) > 0);
    CHECK(std::equal(local.data(), local.data() + kSize, remote.data() + 3 * kSize));
  }
}

TEST_CASE("a size that a way cannot copy is not copied in that way") {
  CHECK(can_copy(CopyWay::kGlibc, 7));
  CHECK_FALSE(can_copy(CopyWay::kStreaming, 100));
  CHECK_FALSE(can_copy(CopyWay::kInterleaved, 4096));
}

TEST_CASE("process_vm moves the blocks between two address spaces") {
  const Pages local = pages(16384);
  const Pages remote = pages(16384);
  Rng(3).fill(local.bytes());
  const std::vector<Block> blocks = {{0, 8192}, {4096, 0}};
  const auto speed = process_vm_speed({blocks, 4096, true}, local.data(), getpid(),
                                      reinterpret_cast<std::uintptr_t>(remote.data()), 2, kShort);
  REQUIRE_MESSAGE(speed.has_value(), speed.status().to_string());
  CHECK(*speed > 0);
  CHECK(std::equal(local.data(), local.data() + 4096, remote.data() + 8192));
  CHECK(std::equal(local.data() + 4096, local.data() + 8192, remote.data()));
}

TEST_CASE("the ring brings back what was sent, spinning and asleep") {
  for (const bool spin : {true, false}) {
    for (const std::uint32_t slots : {1U, 16U}) {
      for (const std::uint64_t size : {0U, 56U, 64U, 5000U}) {
        const RingShape shape{.size = size, .slots = slots, .spin = spin};
        auto memory = Pages::create_shared(shape.memory_bytes());
        REQUIRE(memory.has_value());
        auto other = Pages::open_shared(getpid(), memory->fd(), shape.memory_bytes());
        REQUIRE_MESSAGE(other.has_value(), other.status().to_string());
        std::thread server([&] { serve_ring(*memory, shape); });
        const auto echo = ring_echo(*other, shape, kShort);
        server.join();
        REQUIRE_MESSAGE(echo.has_value(), echo.status().to_string());
        CHECK(echo->ops_per_s > 0);
        CHECK(echo->p50_us > 0);
      }
    }
  }
}

TEST_CASE("raw TCP: echo, stream and connect") {
  const Busy busy = std::make_shared<std::atomic<int>>(0);
  for (const bool spin : {true, false}) {
    const TcpShape shape{.size = 64, .inflight = 4, .spin = spin};
    const auto port = serve_tcp(TcpRole::kEcho, shape, busy);
    REQUIRE(port.has_value());
    const auto echo = tcp_echo(*port, shape, kShort);
    REQUIRE_MESSAGE(echo.has_value(), echo.status().to_string());
    CHECK(echo->ops_per_s > 0);
  }
  const TcpShape stream{.size = 65536, .socket_bytes = 1 << 20, .region_bytes = 1 << 20};
  const auto port = serve_tcp(TcpRole::kReceive, stream, busy);
  REQUIRE(port.has_value());
  const auto speed = tcp_stream(*port, stream, kShort);
  REQUIRE_MESSAGE(speed.has_value(), speed.status().to_string());
  CHECK(*speed > 0);
  for (int now = busy->load(); now != 0; now = busy->load())
    busy->wait(now);  // each ended with its connection
  const auto accepting = serve_tcp(TcpRole::kAccept, {.size = 64}, std::make_shared<std::atomic<int>>(0));
  REQUIRE(accepting.has_value());
  const auto spent_us = tcp_connections(*accepting, {.size = 64}, 3);
  REQUIRE_MESSAGE(spent_us.has_value(), spent_us.status().to_string());
  CHECK(*spent_us > 0);
}

TEST_CASE(
    "figures are medians of rounds, with their spread and the ratio of the medians, that of a limit the best "
    "of its ways") {
  CHECK(median({}) == 0);
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  Figures figures;
  for (const double value : {10.0, 30.0, 20.0}) figures.add("p50_us", value);
  for (const double value : {5.0, 4.0, 10.0}) figures.add_limit(value, "steady");
  for (const double value : {1.0, 9.0, 9.0}) figures.add_limit(value, "lucky once");
  nlohmann::json out;
  Limit limit;
  limit.name = "something";
  limit.figure = "p50_us";
  limit.less_is_better = true;
  figures.put(out, limit);
  CHECK(out["p50_us"] == 20);
  CHECK(out["spread"]["p50_us"] == nlohmann::json{10, 30});
  CHECK(out["limit"]["value"] == 5);
  CHECK(out["limit"]["spread"] == nlohmann::json{4, 10});
  CHECK(out["limit"]["variant"] == "steady");
  CHECK(out["ratio_to_limit"] == 4);
  CHECK(out["ratio_spread"] == nlohmann::json{2, 7.5});
}

}  // namespace
}  // namespace slime::bench::machine_limits_test
