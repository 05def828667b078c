#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/agent/agents.h"

namespace slime::atomics_test {
namespace {

using namespace test;

// `b` has numbers, `a` reaches it by address.
struct Pair {
  explicit Pair(Progress progress = Progress::kThread)
      : a(start("a", progress)), b(start("b")), peer(a->peer(b->address())) {
    numbers = take(b->allocate(4096, Rights::kReadWrite));
    REQUIRE(b->publish("numbers", numbers).ok());
    remote = take(peer.region("numbers"));
  }
  // While no other test uses it.
  std::uint64_t number(std::size_t i) const {
    std::uint64_t out = 0;
    std::memcpy(&out, numbers.data() + 8 * i, sizeof out);
    return out;
  }
  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  Peer peer;
  MemoryRegion numbers;
  RemoteRegion remote;
};

void atomics_work(Pair& pair) {
  CHECK(take(pair.peer.fetch_add(pair.remote, 16, 40).wait(kSoon)) == 0);
  CHECK(take(pair.peer.fetch_add(pair.remote, 16, 2).wait(kSoon)) == 40);
  CHECK(take(pair.peer.compare_swap(pair.remote, 16, 41, 7).wait(kSoon)) == 42);
  CHECK(pair.number(2) == 42);
  CHECK(take(pair.peer.compare_swap(pair.remote, 16, 42, 7).wait(kSoon)) == 42);
  CHECK(pair.number(2) == 7);
  CHECK(pair.number(1) == 0);
  CHECK(pair.number(3) == 0);
  CHECK(number_in(to_json(pair.peer.info()), "atomics") == 4);
}

TEST_CASE("fetch_add and compare_swap tell what was there before") {
  Pair pair;
  atomics_work(pair);
}

TEST_CASE("the same atomics where the caller drives the loop") {
  Pair pair(Progress::kCaller);
  atomics_work(pair);
}

TEST_CASE("adders in several agents, their owner among them, lose nothing") {
  Pair pair;
  auto third = start("third");
  Peer from_third = third->peer(pair.b->address());
  Peer from_owner = pair.b->peer(pair.b->address());
  const RemoteRegion remotes[] = {pair.remote, take(from_third.region("numbers")),
                                  take(from_owner.region("numbers"))};
  Peer peers[] = {pair.peer, from_third, from_owner};
  const int each = scaled(400);
  std::vector<std::vector<std::uint64_t>> seen(6);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        auto old = peers[t % 3].fetch_add(remotes[t % 3], 0, 1).wait(kSoon);
        if (old) seen[t].push_back(*old);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& values : seen) {
    CHECK(std::is_sorted(values.begin(), values.end()));
    all.insert(all.end(), values.begin(), values.end());
  }
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == seen.size() * static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == i);
  CHECK(pair.number(0) == all.size());
}

TEST_CASE("compare_swap makes a lock that one of many has at a time") {
  Pair pair;
  const int each = scaled(40);
  std::uint64_t guarded = 0;  // the thread sanitizer would see two threads here
  std::vector<std::thread> threads;
  for (std::uint64_t owner = 1; owner <= 3; ++owner) {
    threads.emplace_back([&, owner] {
      for (int i = 0; i < each;) {
        const auto old = pair.peer.compare_swap(pair.remote, 8, 0, owner).wait(kSoon);
        if (!old) return;
        if (*old != 0) continue;
        ++guarded;
        ++i;
        if (!pair.peer.compare_swap(pair.remote, 8, owner, 0).wait(kSoon)) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(guarded == 3 * static_cast<std::uint64_t>(each));
}

TEST_CASE("thousands of atomics at once are queued, and all end well") {
  Pair pair;
  const int count = scaled(6000);  // more than the endpoint takes
  std::vector<Future<std::uint64_t>> futures;
  for (int i = 0; i < count; ++i) futures.push_back(pair.peer.fetch_add(pair.remote, 24, 1));
  std::vector<std::uint64_t> values;
  for (auto& future : futures) values.push_back(take(future.wait(kSoon)));
  std::sort(values.begin(), values.end());
  for (int i = 0; i < count; ++i)
    REQUIRE(values[static_cast<std::size_t>(i)] == static_cast<std::uint64_t>(i));
  CHECK(pair.number(3) == static_cast<std::uint64_t>(count));
}

TEST_CASE("more atomics than an agent has room for are refused, the others end well") {
  Pair pair;
  REQUIRE(pair.peer.disconnect().ok());
  Peer absent = pair.a->peer("127.0.0.1:1").wait_for_ready();  // no process listens there
  std::vector<Future<std::uint64_t>> futures;
  Code refusal = Code::kOk;
  for (int i = 0; i < 70'000 && refusal == Code::kOk; ++i) {
    futures.push_back(absent.fetch_add(pair.remote, 0, 1, seconds(30)));
    if (futures.back().done()) refusal = code_of(futures.back().wait(kSoon));
  }
  CHECK(refusal == Code::kResourceExhausted);
  CHECK(futures.size() > 60'000);
  for (auto& future : futures) future.cancel();
  for (auto& future : futures) CHECK_FALSE(future.wait(kSoon).has_value());
  futures.clear();
  // What was refused may be asked again.
  CHECK(eventually([&] {
    const auto again = take(pair.peer.region("numbers"));
    return pair.peer.fetch_add(again, 0, 1).wait(kSoon).has_value();
  }));
}

TEST_CASE("what an atomic names is checked: alignment, range, rights, regions of others") {
  Pair pair;
  CHECK(code_of(pair.peer.fetch_add(pair.remote, 4, 1).wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(pair.peer.compare_swap(pair.remote, 9, 0, 1).wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(pair.peer.fetch_add(pair.remote, 4096, 1).wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(pair.peer.fetch_add(pair.remote, ~std::uint64_t{7}, 1).wait(kSoon)) ==
        Code::kInvalidArgument);
  CHECK(code_of(pair.peer.fetch_add(RemoteRegion(), 0, 1).wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(Peer().fetch_add(pair.remote, 0, 1).wait()) == Code::kInvalidArgument);
  CHECK(code_of(Peer().compare_swap(pair.remote, 0, 1, 2).wait()) == Code::kInvalidArgument);
  for (const Rights rights : {Rights::kRemoteRead, Rights::kRemoteWrite}) {
    auto region = take(pair.b->allocate(64, rights));
    REQUIRE(pair.b->publish("weak", region).ok());
    const auto weak = take(pair.peer.region("weak"));
    CHECK(code_of(pair.peer.fetch_add(weak, 0, 1).wait(kSoon)) == Code::kPermissionDenied);
    CHECK(region.close().ok());
    CHECK(eventually([&] { return code_of(pair.peer.region("weak")) == Code::kNotFound; }));
  }
  for (std::size_t i = 0; i < 512; ++i) CHECK(pair.number(i) == 0);
  CHECK(take(pair.peer.fetch_add(pair.remote, 4088, 1).wait(kSoon)) == 0);
}

TEST_CASE("after a reconnect the old description answers kAborted, a closed region an error") {
  Pair pair;
  CHECK(take(pair.peer.fetch_add(pair.remote, 0, 1).wait(kSoon)) == 0);
  REQUIRE(pair.peer.disconnect().ok());
  CHECK(code_of(pair.peer.fetch_add(pair.remote, 0, 1).wait(kSoon)) == Code::kAborted);
  const auto again = take(pair.peer.region("numbers"));
  CHECK(take(pair.peer.fetch_add(again, 0, 1).wait(kSoon)) == 1);
  CHECK(pair.numbers.close().ok());
  CHECK_FALSE(pair.peer.fetch_add(again, 0, 1).wait(kSoon).has_value());
  CHECK(pair.number(0) == 2);
}

TEST_CASE("an agent that closes ends its atomics, each once") {
  Pair pair;
  std::vector<Future<std::uint64_t>> futures;
  for (int i = 0; i < 2000; ++i) futures.push_back(pair.peer.fetch_add(pair.remote, 0, 1));
  pair.a->close(Nanos::zero()).ignore();
  std::uint64_t succeeded = 0;
  std::uint64_t possible = 0;
  for (auto& future : futures) {
    REQUIRE(future.done());
    const auto old = future.wait(kSoon);
    succeeded += old ? 1 : 0;
    possible += old || old.error().maybe_executed() ? 1 : 0;
  }
  CHECK(pair.b->close().ok());
  CHECK(pair.number(0) >= succeeded);
  CHECK(pair.number(0) <= possible);
  const auto late = pair.peer.fetch_add(pair.remote, 0, 1).wait(kSoon);
  CHECK(code_of(late) == Code::kUnavailable);
  CHECK_FALSE(late.status().maybe_executed());
}

TEST_CASE("writes that a close cuts off say that they may have been executed, reads do not") {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  Pair pair;
  auto whole = take(pair.b->allocate(64 * kBlock, Rights::kReadWrite));
  REQUIRE(pair.b->publish("whole", whole).ok());
  const RemoteRegion remote = take(pair.peer.region("whole"));
  auto mine = take(pair.a->allocate(kBlock, Rights::kReadWrite));
  std::memset(mine.data(), 1, kBlock);
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 64; ++i) {
    const Copy copy{mine, 0, remote, i * kBlock, kBlock};
    writes.push_back(pair.peer.write({&copy, 1}));
  }
  const Copy back{mine, 0, remote, 0, kBlock};
  auto read = pair.peer.read({&back, 1});
  pair.a->close(Nanos::zero()).ignore();
  const auto got = read.wait(kSoon);
  if (!got) CHECK_FALSE(got.status().maybe_executed());
  CHECK(pair.b->close().ok());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const auto outcome = writes[i].wait(kSoon);
    if (outcome || outcome.status().maybe_executed()) continue;
    const std::byte* const block = whole.data() + i * kBlock;
    CHECK(std::all_of(block, block + kBlock, [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace slime::atomics_test
