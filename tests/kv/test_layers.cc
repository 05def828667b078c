// Notifications of layers that have arrived.
#include <doctest/doctest.h>

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kv/move_state.h"
#include "tests/kv/caches.h"

namespace slime::kv::layers_test {
namespace {

using namespace slime::kv::test;

// Keeps what on_layer() reports.
struct Seen {
  using All = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  explicit Seen(Cache& cache) {
    cache.on_layer([this](std::uint32_t layer, std::uint64_t request) {
      const MutexLock lock(mutex);
      all.emplace_back(layer, request);
    });
  }
  All take_all() {
    const MutexLock lock(mutex);
    return std::exchange(all, {});
  }
  Mutex mutex;
  All all SLIME_GUARDED_BY(mutex);
};

Geometry deep(std::uint32_t degree = 1, std::uint32_t rank = 0) {
  Geometry out = small(2, degree, rank);
  out.first_layer = 3;
  out.layers = 20;
  return out;
}

}  // namespace

TEST_CASE("the peer hears of each layer once, in order, before the write ends") {
  Side prefill(deep());
  Side decode(deep());
  Seen seen(decode.cache);
  REQUIRE(
      prefill.connect_to(decode).write_blocks(Ids{0, 1}, Ids{2, 3}, {.request = 77}).wait(kSoon).has_value());
  Seen::All wanted;
  for (std::uint32_t layer = 3; layer < 23; ++layer) wanted.emplace_back(layer, 77);
  CHECK(seen.take_all() == wanted);
}

TEST_CASE("layers that are written one by one are told in the order of the writes") {
  Side prefill(deep());
  Side decode(deep());
  Seen seen(decode.cache);
  const Remote remote = prefill.connect_to(decode);
  std::vector<Move> moves;
  Seen::All wanted;
  for (std::uint32_t layer = 3; layer < 23; ++layer) {
    moves.push_back(remote.write_blocks(Ids{0, 5}, Ids{2, 3}, {.layer = layer, .request = 5}));
    wanted.emplace_back(layer, 5);
  }
  for (Move& move : moves) REQUIRE(move.wait(kSoon).has_value());
  CHECK(seen.take_all() == wanted);
}

TEST_CASE("a layer has arrived when all ranks have written their heads") {
  Side first(deep(2, 0));
  Side second(deep(2, 1));
  Side decode(deep());
  Seen seen(decode.cache);
  REQUIRE(first.connect_to(decode).write_blocks(Ids{0}, Ids{0}, {.request = 1}).wait(kSoon).has_value());
  CHECK(seen.take_all().empty());
  CHECK(decode.cache.wait_layer(1, 3, milliseconds(1)).code() == Code::kDeadlineExceeded);
  REQUIRE(second.connect_to(decode).write_blocks(Ids{0}, Ids{0}, {.request = 1}).wait(kSoon).has_value());
  CHECK(seen.take_all().size() == 20);
  CHECK(decode.cache.wait_layer(1, 22, kSoon).ok());
}

TEST_CASE("threads wait for a layer that arrives later") {
  Side prefill(deep());
  Side decode(deep());
  const auto wait = [&] { return decode.cache.wait_layer(4, 10, kSoon).code(); };
  auto one = std::async(std::launch::async, wait);
  auto other = std::async(std::launch::async, wait);
  REQUIRE(prefill.connect_to(decode).write_blocks(Ids{0}, Ids{0}, {.request = 4}).wait(kSoon).has_value());
  CHECK(one.get() == Code::kOk);
  CHECK(other.get() == Code::kOk);
}

TEST_CASE("a thread that waits for a layer drives the loop of its agent") {
  Side prefill(deep());
  Side decode(deep(), Progress::kCaller);
  auto writes = std::async(std::launch::async, [&] {
    const auto remote = connect(prefill.agent->peer(decode.agent->address()), prefill.cache, {}, kSoon);
    return remote ? remote->write_blocks(Ids{0}, Ids{0}, {.request = 4, .timeout = kSoon}).wait().status()
                  : remote.status();
  });
  CHECK(decode.cache.wait_layer(4, 22, kSoon).ok());
  while (writes.wait_for(Nanos::zero()) != std::future_status::ready) decode.agent->poll(milliseconds(1));
  CHECK(writes.get().ok());
}

TEST_CASE("a request that is forgotten begins anew") {
  Side prefill(deep());
  Side decode(deep());
  const Remote remote = prefill.connect_to(decode);
  REQUIRE(remote.write_blocks(Ids{0}, Ids{0}, {.layer = 5, .request = 4}).wait(kSoon).has_value());
  decode.cache.forget(4);
  CHECK(decode.cache.wait_layer(4, 5, milliseconds(1)).code() == Code::kDeadlineExceeded);
  REQUIRE(remote.write_blocks(Ids{0}, Ids{0}, {.layer = 5, .request = 4}).wait(kSoon).has_value());
  CHECK(decode.cache.wait_layer(4, 5, kSoon).ok());
}

TEST_CASE("a cache that remembers too many requests refuses the next at its writer") {
  Side prefill(deep());
  Side decode(deep());
  for (std::uint64_t request = 0; request < limits::kRequests; ++request)
    static_cast<void>(decode.cache.wait_layer(request, 3, Nanos::zero()));
  const Remote remote = prefill.connect_to(decode);
  const MoveOptions options{.layer = 3, .request = 1 << 20};
  CHECK(remote.write_blocks(Ids{0}, Ids{0}, options).wait(kSoon).status().code() == Code::kResourceExhausted);
  decode.cache.forget(0);
  CHECK(remote.write_blocks(Ids{0}, Ids{0}, options).wait(kSoon).has_value());
}

TEST_CASE("a peer's wrong words about heads and layers are refused") {
  Side prefill(deep());
  Side decode(deep());
  Peer peer = prefill.agent->peer(decode.agent->address());
  using Words = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // layer, first head, heads
  for (const auto& [layer, first, heads] : {Words{2, 0, 1}, Words{23, 0, 1}, Words{3, 0, 0}, Words{3, 0, 3},
                                            Words{3, 2, 1}, Words{3, UINT32_MAX, 2}, Words{3, 1, UINT32_MAX}})
    CHECK(peer.call<void>("kv.cache", "arrived", 1, layer, first, heads).wait(kSoon).status().code() ==
          Code::kInvalidArgument);
}

TEST_CASE("waits end when the cache is closed, and for a layer that it lacks") {
  Side decode(deep());
  CHECK(decode.cache.wait_layer(1, 2, kSoon).code() == Code::kInvalidArgument);
  auto waits = std::async(std::launch::async, [&] { return decode.cache.wait_layer(1, 3, kSoon).code(); });
  REQUIRE(decode.cache.close().ok());
  CHECK(waits.get() == Code::kUnavailable);
}

TEST_CASE("writes that end in another order are told in the order of their begin") {
  std::vector<std::uint32_t> told;
  const auto notifier = std::make_shared<Notifier>(
      [&](std::uint64_t, std::uint32_t layer, Nanos, const std::function<void(Status)>& done) {
        told.push_back(layer);
        done({});
      });
  const auto move = std::make_shared<Move::State>(nullptr, 3, 1, seconds(1));
  std::vector<std::shared_ptr<Notifier::Entry>> entries;
  for (std::uint32_t layer = 0; layer < 3; ++layer) entries.push_back(notifier->add(7, move, layer));
  notifier->ended(7, entries[2], {});
  notifier->ended(7, entries[1], {});
  CHECK(told.empty());
  notifier->ended(7, entries[0], {});
  CHECK(told == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(move->future().wait(kSoon).has_value());
}

TEST_CASE("after a layer that failed no later layer of the write is told") {
  int told = 0;
  const auto notifier = std::make_shared<Notifier>(
      [&](std::uint64_t, std::uint32_t, Nanos, const std::function<void(Status)>& done) {
        ++told;
        done({});
      });
  const auto move = std::make_shared<Move::State>(nullptr, 2, 1, seconds(1));
  Future<None> end = move->future();
  const auto first = notifier->add(7, move, 0);
  const auto second = notifier->add(7, move, 1);
  notifier->ended(7, second, {});
  notifier->ended(7, first, Status(Code::kUnavailable, "gone"));
  CHECK(told == 0);
  CHECK(end.wait(kSoon).status().text() == "gone");
}

}  // namespace slime::kv::layers_test
