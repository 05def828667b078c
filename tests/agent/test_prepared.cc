// Batches that are bound once and posted many times.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/str.h"
#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

constexpr std::uint64_t kBytes = 64 << 10;
constexpr std::uint64_t kBlock = 1000;
constexpr std::uint64_t kBlocks = 20;

// Agent a, which prepares, and agent b with the region "buffer".
struct Prepared {
  Prepared() : a(start("a")), b(start("b")), peer(a->peer(b->address())) {
    theirs = take(b->allocate(kBytes, Rights::kReadWrite));
    REQUIRE(b->publish("buffer", theirs).ok());
    mine = take(a->allocate(kBytes, Rights::kLocal));
    remote = take(peer.region("buffer"));
  }
  // Block i is the i-th of `mine` and the i-th from the end of `theirs`.
  [[nodiscard]] std::vector<Copy> reversed() const {
    std::vector<Copy> out;
    for (std::uint64_t i = 0; i < kBlocks; ++i)
      out.push_back({mine, i * kBlock, remote, (kBlocks - 1 - i) * kBlock, kBlock});
    return out;
  }
  void fill_theirs(int seed) const {
    meet_b();
    for (std::uint64_t i = 0; i < kBytes; ++i)
      theirs.data()[i] = static_cast<std::byte>(seed + static_cast<int>(i / kBlock));
    meet_b();
  }
  // Orders this thread with b's loop, which sends the memory or has written it. The sockets do that
  // as well, but the thread sanitizer does not see it.
  void meet_b() const { static_cast<void>(b->info()); }
  // What block i of `mine` has in each byte, or -1 where they differ.
  [[nodiscard]] int value_of(std::uint64_t i) const {
    const std::byte* data = mine.data() + i * kBlock;
    const bool same = std::all_of(data, data + kBlock, [data](std::byte each) { return each == *data; });
    return same ? static_cast<int>(*data) : -1;
  }

  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  Peer peer;
  MemoryRegion theirs;
  MemoryRegion mine;
  RemoteRegion remote;
};

Code post(const PreparedBatch& batch) { return code_of(batch.post().wait(kSoon)); }

TEST_CASE("a batch that is bound once reads what the peer has at each post") {
  const Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  CHECK(batch.size() == kBlocks);
  CHECK(batch.length_bytes() == kBlocks * kBlock);
  for (int seed = 0; seed < 100; ++seed) {
    pair.fill_theirs(seed);
    REQUIRE(batch.post().wait(kSoon).status().to_string() == "ok");
    for (std::uint64_t i = 0; i < kBlocks; ++i)
      REQUIRE(pair.value_of(i) == seed + static_cast<int>(kBlocks - 1 - i));
  }
}

TEST_CASE("posts of one batch may be under way at once") {
  Prepared pair;
  std::atomic<int> notes{0};
  pair.b->on_imm([&](const Peer&, std::uint32_t) { ++notes; });
  const auto batch = take(pair.peer.prepare(Transfer::kWrite, pair.reversed()));
  std::fill_n(pair.mine.data(), kBlocks * kBlock, std::byte{5});
  std::vector<Future<None>> posts;
  posts.reserve(100);
  for (std::uint32_t i = 0; i < 100; ++i) posts.push_back(i % 2 == 0 ? batch.post() : batch.post_with_imm(i));
  for (Future<None>& each : posts) REQUIRE(each.wait(kSoon).status().to_string() == "ok");
  pair.meet_b();
  CHECK(std::all_of(pair.theirs.data(), pair.theirs.data() + kBlocks * kBlock,
                    [](std::byte each) { return each == std::byte{5}; }));
  CHECK(eventually([&] { return notes.load() == 50; }));
}

TEST_CASE("a post of some blocks moves these, in any order, and no other") {
  const Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  pair.fill_theirs(100);
  const std::array<std::uint32_t, 3> some{17, 3, 9};
  REQUIRE(batch.post(some).wait(kSoon).has_value());
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const bool posted = std::find(some.begin(), some.end(), i) != some.end();
    CHECK(pair.value_of(i) == (posted ? 100 + static_cast<int>(kBlocks - 1 - i) : 0));
  }
}

TEST_CASE("a post of no block, and of one that the batch has not, is refused") {
  const Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  CHECK(code_of(batch.post(std::span<const std::uint32_t>{}).wait(kSoon)) == Code::kInvalidArgument);
  const std::array<std::uint32_t, 2> beyond{0, kBlocks};
  const auto refused = batch.post(beyond).wait(kSoon);
  CHECK(code_of(refused) == Code::kInvalidArgument);
  CHECK(refused.status().text().find("block 20 of a batch of 20") != std::string::npos);
}

TEST_CASE("blocks as arrays of offsets and as strides move the same bytes") {
  const Prepared pair;
  pair.fill_theirs(10);
  const std::array<std::uint64_t, 3> here{2 * kBlock, 0, 5 * kBlock};
  const std::array<std::uint64_t, 3> there{kBlock, 7 * kBlock, 3 * kBlock};
  REQUIRE(post(take(pair.peer.prepare(
              Transfer::kRead, BlockOffsets{pair.mine, here, pair.remote, there, kBlock}))) == Code::kOk);
  CHECK(pair.value_of(2) == 11);
  CHECK(pair.value_of(0) == 17);
  CHECK(pair.value_of(5) == 13);
  // every second block of theirs, one behind the other
  const auto strided = take(pair.peer.prepare(
      Transfer::kRead, BlockStrides{pair.mine, 0, kBlock, pair.remote, kBlock, 2 * kBlock, 8, kBlock}));
  REQUIRE(post(strided) == Code::kOk);
  for (std::uint64_t i = 0; i < 8; ++i) CHECK(pair.value_of(i) == 10 + static_cast<int>(1 + 2 * i));
}

TEST_CASE("what no post could move is refused when it is bound, and the block is named") {
  Prepared pair;
  const auto refused = [&](Transfer transfer, const Copy& copy) {
    const Copy good{pair.mine, 0, pair.remote, 0, kBlock};
    const auto batch = pair.peer.prepare(transfer, std::vector<Copy>{good, copy});
    CHECK(batch.status().text().find("block 1: ") != std::string::npos);
    return batch.status().code();
  };
  CHECK(refused(Transfer::kRead, {pair.mine, kBytes - 10, pair.remote, 0, 11}) == Code::kInvalidArgument);
  CHECK(refused(Transfer::kRead, {pair.mine, 0, pair.remote, kBytes - 10, 11}) == Code::kInvalidArgument);
  CHECK(refused(Transfer::kRead, {pair.mine, 0, RemoteRegion(), 0, 1}) == Code::kInvalidArgument);
  CHECK(refused(Transfer::kRead, {MemoryRegion(), 0, pair.remote, 0, 1}) == Code::kInvalidArgument);
  CHECK(refused(Transfer::kRead, {pair.theirs, 0, pair.remote, 0, 1}) == Code::kInvalidArgument);
  const auto readable = take(pair.b->allocate(kBytes, Rights::kRemoteRead));
  REQUIRE(pair.b->publish("readable", readable).ok());
  const auto read_only = take(pair.peer.region("readable"));
  CHECK(refused(Transfer::kWrite, {pair.mine, 0, read_only, 0, 1}) == Code::kPermissionDenied);
  auto closed = take(pair.a->allocate(kBytes, Rights::kLocal));
  REQUIRE(closed.close().ok());
  CHECK(refused(Transfer::kRead, {closed, 0, pair.remote, 0, 1}) == Code::kInvalidArgument);
}

TEST_CASE("the refusal of a block names the peer whose region does not take it") {
  Prepared pair;
  const auto text = [&](Transfer transfer, const RemoteRegion& remote, std::uint64_t offset) {
    return pair.peer.prepare(transfer, std::vector<Copy>{{pair.mine, 0, remote, offset, 11}}).status().text();
  };
  const std::string name(pair.peer.name());
  CHECK(text(Transfer::kRead, pair.remote, kBytes - 10).ends_with(str(" bytes of ", name)));
  const std::vector<Copy> beyond{{pair.mine, 0, pair.remote, kBytes - 10, 11}};
  const auto outside = pair.peer.write(beyond).wait();
  CHECK(outside.status().text().ends_with(" bytes of b"));  // the name that the peer gave itself
  const auto readable = take(pair.b->allocate(kBytes, Rights::kRemoteRead));
  REQUIRE(pair.b->publish("readable", readable).ok());
  const auto read_only = take(pair.peer.region("readable"));
  CHECK(text(Transfer::kWrite, read_only, 0).find(str(name, " does not allow")) != std::string::npos);
  const auto denied = pair.peer.fetch_add(read_only, 0, 1).wait();
  CHECK(denied.status().text() ==
        "b does not allow both reading and writing, which atomics need, on the remote region");
}

TEST_CASE("lists that are none are refused when they are bound") {
  const Prepared pair;
  const auto code = [&](const auto& blocks) {
    return pair.peer.prepare(Transfer::kRead, blocks).status().code();
  };
  CHECK(code(std::vector<Copy>{}) == Code::kInvalidArgument);
  const std::array<std::uint64_t, 2> two{0, 1};
  const std::array<std::uint64_t, 1> one{0};
  CHECK(code(BlockOffsets{pair.mine, two, pair.remote, one, 1}) == Code::kInvalidArgument);
  const auto strides = [&](std::uint64_t offset, std::uint64_t stride, std::uint64_t count) {
    return BlockStrides{pair.mine, 0, 0, pair.remote, offset, stride, count, 1};
  };
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  CHECK(code(strides(0, 1, 0)) == Code::kInvalidArgument);
  CHECK(code(strides(0, kMax / 2, 4)) == Code::kInvalidArgument);  // 2 * stride + offset wraps to small
  CHECK(code(strides(kMax, 1, 2)) == Code::kInvalidArgument);
  CHECK(code(strides(0, 0, kMax)) == Code::kInvalidArgument);
  CHECK(code(strides(0, 0, 3)) == Code::kOk);  // the same block three times
  CHECK(Peer().prepare(Transfer::kRead, std::vector<Copy>{}).status().code() == Code::kInvalidArgument);
  CHECK(code_of(PreparedBatch().post().wait(kSoon)) == Code::kInvalidArgument);
}

TEST_CASE("a batch that reads has no immediate") {
  const Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  CHECK(code_of(batch.post_with_imm(1).wait(kSoon)) == Code::kInvalidArgument);
}

TEST_CASE("after a reconnect a post is refused until the batch is bound to regions of the new connection") {
  Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  PreparedBatch copy;
  copy = batch;  // shares the binding
  REQUIRE(post(batch) == Code::kOk);
  REQUIRE(pair.peer.disconnect().ok());
  REQUIRE(eventually([&] { return !has_state(pair.peer, "ready"); }));
  CHECK(post(batch) == Code::kAborted);  // which connects anew
  CHECK(post(batch) == Code::kAborted);
  pair.fill_theirs(30);
  const std::array again{take(pair.peer.region("buffer"))};
  REQUIRE(batch.rebind(again).to_string() == "ok");
  CHECK(post(copy) == Code::kOk);
  CHECK(pair.value_of(0) == 30 + static_cast<int>(kBlocks - 1));
}

TEST_CASE("a batch of several regions is bound anew to as many, in the order of their blocks") {
  Prepared pair;
  auto other = take(pair.b->allocate(kBytes, Rights::kReadWrite));
  std::fill_n(other.data(), kBytes, std::byte{200});
  REQUIRE(pair.b->publish("other", other).ok());
  const auto second = take(pair.peer.region("other"));
  pair.fill_theirs(0);
  const std::vector<Copy> copies{{pair.mine, 0, second, 0, kBlock},
                                 {pair.mine, kBlock, pair.remote, 0, kBlock},
                                 {pair.mine, 2 * kBlock, second, kBlock, kBlock}};
  const auto batch = take(pair.peer.prepare(Transfer::kRead, copies));
  REQUIRE(batch.remotes().size() == 2);
  CHECK(batch.remotes()[0].id() == second.id());
  CHECK(batch.remotes()[1].id() == pair.remote.id());
  REQUIRE(post(batch) == Code::kOk);
  CHECK(pair.value_of(0) == 200);
  CHECK(pair.value_of(1) == 0);
  const std::array swapped{pair.remote, second};
  REQUIRE(batch.rebind(swapped).ok());
  REQUIRE(post(batch) == Code::kOk);
  CHECK(pair.value_of(0) == 0);
  CHECK(pair.value_of(1) == 200);
  CHECK(pair.value_of(2) == 1);
  CHECK(batch.rebind({&second, 1}).code() == Code::kInvalidArgument);
}

TEST_CASE("a batch that cannot be bound anew keeps what it had") {
  Prepared pair;
  const auto small = take(pair.b->allocate(kBlock, Rights::kReadWrite));
  REQUIRE(pair.b->publish("small", small).ok());
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  const auto too_small = take(pair.peer.region("small"));
  CHECK(batch.rebind({&too_small, 1}).code() == Code::kInvalidArgument);
  CHECK(post(batch) == Code::kOk);
}

TEST_CASE("a post after the local region was closed is refused, and touches nothing") {
  Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  REQUIRE(pair.mine.close().ok());
  CHECK(post(batch) == Code::kInvalidArgument);
}

TEST_CASE(
    "a region that its owner closed fails the next post with a code, and the connection with it at most") {
  Prepared pair;
  const auto batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
  REQUIRE(pair.theirs.close().ok());
  const auto failed = batch.post().wait(kSoon);
  INFO(failed.status().to_string());
  CHECK(!failed.has_value());
  auto anew = take(pair.b->allocate(kBytes, Rights::kReadWrite));
  REQUIRE(pair.b->publish("buffer", anew).ok());
  const std::array again{take(pair.peer.region("buffer"))};
  REQUIRE(batch.rebind(again).ok());
  CHECK(post(batch) == Code::kOk);
}

TEST_CASE("a batch keeps the deadline of the peer that made it, and each post may have its own") {
  Prepared pair;
  const auto batch =
      take(pair.peer.with_timeout(std::chrono::nanoseconds(1)).prepare(Transfer::kRead, pair.reversed()));
  CHECK(code_of(batch.post().wait(kSoon)) == Code::kDeadlineExceeded);
  const std::array again{take(pair.peer.region("buffer"))};
  REQUIRE(batch.rebind(again).ok());
  CHECK(code_of(batch.post(kSoon).wait(kSoon)) == Code::kOk);
}

// Runs an agent whose progress is its caller's, until stop().
class Driver {
 public:
  explicit Driver(PeerAgent& agent)
      : thread_([this, &agent] {
          while (!stopped_) agent.poll(milliseconds(1));
        }) {}
  ~Driver() { stop(); }
  void stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

bool says(const Status& status, std::string_view part) {
  return status.text().find(part) != std::string::npos;
}

TEST_CASE(
    "with a stall bound and no deadline a post ends when its peer falls silent, and others can follow") {
  if (provider() != "tcp") return;  // the kernel and an adapter do not need the peer
  std::vector<std::byte> memory(kBytes);
  const auto a = start("a");
  const auto b = start("b", Progress::kCaller);
  const auto theirs = take(b->register_memory(memory.data(), memory.size(), Rights::kReadWrite));
  REQUIRE(b->publish("buffer", theirs).ok());
  const auto mine = take(a->allocate(kBytes, Rights::kLocal));
  Peer peer = a->peer(b->address());
  Driver before(*b);
  const auto remote = take(peer.region("buffer"));
  const std::array copies{Copy{mine, 0, remote, 0, kBytes}};
  const auto batch = take(peer.prepare(Transfer::kWrite, copies));
  const PostOptions options(Nanos::max(), milliseconds(200));
  REQUIRE(code_of(batch.post(PostOptions(Nanos::max(), kSoon)).wait(kSoon)) == Code::kOk);
  before.stop();
  const TimePoint began = steady_clock().now();
  const auto stalled = batch.post(options).wait(kSoon);
  CHECK(steady_clock().now() - began >= milliseconds(200));
  INFO(stalled.status().to_string());
  CHECK(code_of(stalled) == Code::kDeadlineExceeded);
  CHECK(says(stalled.status(), "made no progress for 0.2 s"));
  const Driver after(*b);
  const std::array again{take(peer.region("buffer"))};
  REQUIRE(batch.rebind(again).ok());
  CHECK(code_of(batch.post(PostOptions(Nanos::max(), kSoon)).wait(kSoon)) == Code::kOk);
}

TEST_CASE("the stall bound ends a post that waits for credits of its peer, and the connection stays") {
  const Prepared pair;
  std::mutex mutex;
  std::vector<HeldCredit> held;
  pair.b->on_imm_queued([&](const Peer&, std::uint32_t, NotificationCredit& credit) {
    const std::lock_guard lock(mutex);
    held.push_back(credit.hold());
  });
  const auto batch = take(pair.peer.prepare(Transfer::kWrite, pair.reversed()));
  const PostOptions options(Nanos::max(), patient(seconds(1)));
  Result<None> last = None{};
  for (int i = 0; last.has_value() && i < 5000; ++i) last = batch.post_with_imm(1, options).wait(kSoon);
  INFO(last.status().to_string());
  CHECK(code_of(last) == Code::kDeadlineExceeded);
  CHECK(says(last.status(), "took no more operations, and made no progress for"));
  CHECK(post(batch) == Code::kOk);
  {
    const std::lock_guard lock(mutex);
    held.clear();
  }
  CHECK(code_of(batch.post_with_imm(1).wait(kSoon)) == Code::kOk);
  REQUIRE(pair.b->close().ok());  // before what its handler uses
}

TEST_CASE("a post with a stall bound and no deadline waits for a connection that long at most") {
  Prepared pair;
  const auto batch = take(pair.peer.wait_for_ready().prepare(Transfer::kRead, pair.reversed()));
  REQUIRE(pair.b->close().ok());
  REQUIRE(eventually([&] { return !has_state(pair.peer, "ready"); }));
  CHECK(code_of(batch.post(PostOptions(Nanos::max(), milliseconds(50))).wait(kSoon)) ==
        Code::kDeadlineExceeded);
}

TEST_CASE("a batch outlives its agent, and its posts then fail") {
  PreparedBatch batch;
  {
    const Prepared pair;
    batch = take(pair.peer.prepare(Transfer::kRead, pair.reversed()));
    REQUIRE(post(batch) == Code::kOk);
    REQUIRE(pair.a->close().ok());
  }
  CHECK(!batch.post().wait(kSoon).has_value());
}

// ------------------------------------------------------------------------------- blocks by number

TEST_CASE("blocks by number are read and written, wherever they lie on the two sides") {
  Prepared pair;
  pair.fill_theirs(1);
  // two blocks that follow each other on both sides, one that only follows on one side, one alone
  const std::vector<std::uint64_t> here{0, 1, 5, 7};
  const std::vector<std::uint64_t> there{10, 11, 12, 3};
  take(pair.peer.read_blocks({pair.mine, pair.remote, here, there, kBlock}).wait());
  for (std::size_t i = 0; i < here.size(); ++i)
    CHECK(pair.value_of(here[i]) == 1 + static_cast<int>(there[i]));
  CHECK(pair.value_of(2) == 0);

  std::memset(pair.mine.data(), 77, kBytes);
  take(pair.peer.write_blocks({pair.mine, pair.remote, here, there, kBlock}).wait());
  pair.meet_b();
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const bool written = std::find(there.begin(), there.end(), i) != there.end();
    CHECK(pair.theirs.data()[i * kBlock] == static_cast<std::byte>(written ? 77 : 1 + static_cast<int>(i)));
    CHECK(pair.theirs.data()[i * kBlock + kBlock - 1] ==
          static_cast<std::byte>(written ? 77 : 1 + static_cast<int>(i)));
  }
}

TEST_CASE("blocks by number count from an offset on each side") {
  Prepared pair;
  pair.fill_theirs(1);
  const std::vector<std::uint64_t> ids{0, 2};
  take(pair.peer
           .read_blocks({.local = pair.mine,
                         .remote = pair.remote,
                         .local_ids = ids,
                         .remote_ids = ids,
                         .block_bytes = kBlock,
                         .local_offset = 3 * kBlock,
                         .remote_offset = 5 * kBlock})
           .wait());
  CHECK(pair.value_of(3) == 6);
  CHECK(pair.value_of(5) == 8);
  CHECK(pair.value_of(4) == 0);
}

TEST_CASE("blocks by number that are wrong are refused, and the first wrong one is named") {
  Prepared pair;
  const auto refused = [&](const std::vector<std::uint64_t>& here, const std::vector<std::uint64_t>& there,
                           std::uint64_t bytes, std::uint64_t offset = 0) {
    const auto result = pair.peer.write_blocks({pair.mine, pair.remote, here, there, bytes, offset}).wait();
    CHECK(code_of(result) == Code::kInvalidArgument);
    return std::string(result.status().text());
  };
  CHECK(refused({0, 1}, {0}, kBlock) == "2 local blocks, and 1 remote ones");
  CHECK(refused({0}, {0}, 0) == "blocks of 0 bytes");
  CHECK(refused({0, 65, 66}, {0, 1, 2}, kBlock) ==
        "block 1: number 65 of 1000 bytes from offset 0 is not inside the local region of 65536 bytes");
  CHECK(refused({0, 1}, {0, ~std::uint64_t{0}}, kBlock)
            .find("is not inside the remote region of 65536 bytes of ") != std::string::npos);
  CHECK(refused({0}, {0}, kBlock, kBytes + 1).find("block 0: ") == 0);
  CHECK(refused({0}, {0}, ~std::uint64_t{0}).find("block 0: ") == 0);
}

}  // namespace
}  // namespace slime
