#include <algorithm>
#include <atomic>
#include <coroutine>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/agent/agents.h"

// Streams between agents, with handlers on threads that wait.
namespace slime::peer_streams_test {
namespace {

using namespace test;
using rpc::ServerStream;

rpc::Service streams() {
  rpc::Service service("streams");
  const auto added = [](const Status& status) { REQUIRE_MESSAGE(status.ok(), status.to_string()); };
  added(service.add("range", [](ServerStream<None, int>& out, int n) -> Status {
    for (int i = 0; i < n; ++i) {
      auto written = out.write(i).wait();
      if (!written) return std::move(written).error();
    }
    return {};
  }));
  added(service.add("sum", [](ServerStream<int, None>& in) -> Result<int> {
    int sum = 0;
    for (;;) {
      auto next = in.read().wait();
      if (!next) return std::move(next).error();
      if (!*next) return sum;
      sum += **next;
    }
  }));
  added(service.add("echo", [](ServerStream<ByteVector, ByteVector>& both) -> Result<std::size_t> {
    std::size_t bytes = 0;
    for (;;) {
      auto next = both.read().wait();
      if (!next) return std::move(next).error();
      if (!*next) return bytes;
      bytes += (*next)->size();
      auto written = both.write(**next).wait();
      if (!written) return std::move(written).error();
    }
  }));
  added(service.add("throws", [](ServerStream<None, int>& out) {
    out.write(1).wait().status().ignore();
    throw std::runtime_error("no more");
  }));
  return service;
}

// A handler that waits for its stream keeps a thread of the pool: calls beside it need others.
PeerAgentOptions with_workers(std::size_t workers) {
  PeerAgentOptions options;
  options.name = "b";
  options.server.workers = workers;
  return options;
}

struct Pair {
  explicit Pair(Progress progress = Progress::kThread)
      : a(start("a", progress)), b(start(with_workers(8))), peer(a->peer(b->address())) {
    rpc::Service service = streams();
    REQUIRE(b->serve(service).ok());
    rpc::Service calls = calculator();
    REQUIRE(b->serve(calls).ok());
  }
  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  Peer peer;
};

void streams_work(Pair& pair) {
  auto range = pair.peer.stream<None, int>("streams", "range", 3000);
  for (int i = 0; i < 3000; ++i) REQUIRE(take(range.read().wait(kSoon)) == i);
  CHECK(take(range.read().wait(kSoon)) == std::nullopt);
  CHECK(range.finish().wait(kSoon).has_value());

  auto sum = pair.peer.stream<int, None, int>("streams", "sum");
  for (int i = 0; i < 3000; ++i) REQUIRE(sum.write(i).wait(kSoon).has_value());
  CHECK(take(sum.finish().wait(kSoon)) == 3000 * 2999 / 2);

  auto echo = pair.peer.stream<ByteVector, ByteVector, std::size_t>("streams", "echo");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    const ByteVector message(i % 3 == 0 ? 700'000 + i : i, std::byte{7});
    bytes += message.size();
    REQUIRE(echo.write(message).wait(kSoon).has_value());
    REQUIRE(take(echo.read().wait(kSoon)) == message);
  }
  CHECK(take(echo.finish().wait(kSoon)) == bytes);

  auto throws = pair.peer.stream<None, int>("streams", "throws");
  CHECK(take(throws.read().wait(kSoon)) == 1);
  const auto end = throws.read().wait(kSoon);
  CHECK(code_of(end) == Code::kInternal);
  CHECK(end.status().text().find("no more") != std::string::npos);
  CHECK(take(pair.peer.call<int>("calc", "add", 1, 2).wait(kSoon)) == 3);
}

// A coroutine that counts what it reads.
struct Counting {
  struct promise_type {  // NOLINT(readability-identifier-naming): the language says so
    Counting get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};
Counting count(rpc::Stream<None, int>* stream, Promise<int> done) {
  int n = 0;
  for (;;) {
    auto next = co_await stream->read();
    if (!next || !*next) break;
    ++n;
  }
  done.complete(n);
}

}  // namespace

TEST_CASE("streams of all kinds, between agents with threads") {
  Pair pair;
  streams_work(pair);
}

TEST_CASE("streams of an agent that its callers drive") {
  Pair pair(Progress::kCaller);
  streams_work(pair);
}

TEST_CASE("streams from many threads at once, beside calls") {
  Pair pair;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Peer peer = pair.peer;
      auto echo = peer.stream<ByteVector, ByteVector, std::size_t>("streams", "echo");
      bool ok = true;
      for (std::size_t i = 0; i < 50 && ok; ++i) {
        const ByteVector message(i * 500, static_cast<std::byte>(t));
        ok = echo.write(message).wait(kSoon).has_value();
        auto back = echo.read().wait(kSoon);
        ok = ok && back.has_value() && *back == message;
        auto added = peer.call<int>("calc", "add", 1, static_cast<int>(i)).wait(kSoon);
        ok = ok && added.has_value() && *added == 1 + static_cast<int>(i);
      }
      ok = ok && echo.finish().wait(kSoon).has_value();
      right += ok ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("a coroutine reads a stream to its end") {
  Pair pair;
  auto range = pair.peer.stream<None, int>("streams", "range", 500);
  Promise<int> promise;
  auto done = promise.future();
  count(&range, std::move(promise));
  CHECK(take(done.wait(kSoon)) == 500);
}

TEST_CASE("a stream that is dropped sets its handler free, and an agent that closes ends its streams") {
  Pair pair;
  {
    auto range = pair.peer.stream<None, int>("streams", "range", 1 << 30);
    CHECK(take(range.read().wait(kSoon)) == 0);
  }
  CHECK(pair.b->drain(kSoon).ok());  // which waits for the handler
  auto refused = pair.peer.stream<int, None, int>("streams", "sum");
  CHECK(code_of(refused.finish().wait(kSoon)) == Code::kUnavailable);

  Pair other;
  auto sum = other.peer.stream<int, None, int>("streams", "sum");
  REQUIRE(sum.write(1).wait(kSoon).has_value());
  other.a->close(milliseconds(1)).ignore();
  CHECK_FALSE(sum.finish().wait(kSoon).has_value());
  CHECK_FALSE(sum.write(1).wait(kSoon).has_value());
  CHECK_FALSE(other.peer.stream<int, None, int>("streams", "sum").write(1).wait(kSoon).has_value());
  CHECK(code_of(Peer().stream<None, int>("streams", "range", 1).read().wait(kSoon)) != Code::kOk);
}

TEST_CASE("a stream to an absent peer ends with the reason") {
  auto a = start("a");
  auto stream = a->peer("127.0.0.1:1").stream<int, int>("streams", "sum");
  CHECK(code_of(stream.read().wait(kSoon)) == Code::kUnavailable);
  CHECK(code_of(stream.write(1).wait(kSoon)) == Code::kUnavailable);
  CHECK(code_of(stream.finish().wait(kSoon)) == Code::kUnavailable);
}

}  // namespace slime::peer_streams_test
