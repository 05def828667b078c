#include <algorithm>
#include <array>
#include <atomic>
#include <coroutine>
#include <cstring>
#include <numeric>

#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

// Two agents without a registry: `b` has what a peer has, `a` reaches it by address.
struct Pair {
  explicit Pair(Progress progress = Progress::kThread)
      : a(start("a", progress)), b(start("b")), peer(a->peer(b->address())) {
    rpc::Service service = calculator();
    REQUIRE(b->serve(service).ok());
    theirs = take(b->allocate(64 << 10, Rights::kReadWrite));
    REQUIRE(b->publish("buffer", theirs).ok());
    mine = take(a->allocate(64 << 10, Rights::kLocal));
  }
  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  Peer peer;
  MemoryRegion theirs;
  MemoryRegion mine;
};

void fill(MutableBytes bytes, int first) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(first + static_cast<int>(i) * 7);
}

void everything_works(Pair& pair) {
  const auto remote = take(pair.peer.region("buffer"));
  CHECK(remote.length_bytes() == 64 << 10);
  // write at one offset, read back to another
  fill(pair.mine.bytes(), 3);
  const Copy out{pair.mine, 100, remote, 5000, 30000};
  REQUIRE(pair.peer.write({&out, 1}).wait(kSoon).status().to_string() == "ok");
  CHECK(std::memcmp(pair.theirs.data() + 5000, pair.mine.data() + 100, 30000) == 0);
  const Copy in{pair.mine, 33000, remote, 5000, 30000};
  REQUIRE(pair.peer.read({&in, 1}).wait(kSoon).has_value());
  CHECK(std::memcmp(pair.mine.data() + 33000, pair.mine.data() + 100, 30000) == 0);
  // a call with a value, with large bytes, with an error
  CHECK(take(pair.peer.call<std::int64_t>("calc", "add", 40, 2).wait(kSoon)) == 42);
  const ByteVector large(300'000, std::byte{7});
  CHECK(take(pair.peer.call<ByteVector>("calc", "echo", large).wait(kSoon)) == large);
  const auto refused = pair.peer.call<std::int64_t>("calc", "fail", "no entry").wait(kSoon);
  CHECK(code_of(refused) == Code::kPermissionDenied);
  CHECK(refused.status().text().find("no entry") != std::string::npos);
  CHECK(code_of(pair.peer.call<int>("calc", "missing").wait(kSoon)) == Code::kNotFound);
  // messages both ways: b answers on the connection that a opened
  REQUIRE(pair.peer.send(7, as_bytes("to b")).wait(kSoon).has_value());
  Peer back = pair.b->peer("a");
  CHECK(as_text(take(back.recv(7).wait(kSoon)).bytes()) == "to b");
  auto answer = back.send(8, as_bytes("to a"));
  CHECK(as_text(take(pair.peer.recv(8).wait(kSoon)).bytes()) == "to a");
  CHECK(answer.wait(kSoon).has_value());
}

TEST_CASE("two agents by address: regions, reads, writes, messages and calls") {
  Pair pair;
  everything_works(pair);
}

TEST_CASE("the same where the caller drives the loop") {
  Pair pair(Progress::kCaller);
  everything_works(pair);
}

TEST_CASE("both sides use the one connection, opened by either") {
  Pair pair;
  rpc::Service service = calculator();
  REQUIRE(pair.a->serve(service).ok());
  REQUIRE(pair.peer.connect().wait(kSoon).has_value());
  CHECK(take(pair.b->peer("a").call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(take(pair.b->peer("a").call<std::string>("calc", "caller").wait(kSoon)) == "b");
  CHECK(take(pair.a->peer("b").call<std::string>("calc", "caller").wait(kSoon)) == "a");
  CHECK(number_in(to_json(pair.a->info()), "connections") == 1);
  CHECK(number_in(to_json(pair.b->info()), "connections") == 1);
  CHECK(number_in(to_json(pair.a->info()), "connections_made") == 1);
  CHECK(number_in(to_json(pair.b->info()), "connections_made") == 1);
}

TEST_CASE("a batch is one operation, and its notification comes once, after all bytes") {
  Pair pair;
  std::atomic<int> notes{0};
  std::atomic<std::uint32_t> value{0};
  std::atomic<bool> whole{false};
  std::string from;
  pair.b->on_imm([&](Peer peer, std::uint32_t imm) {
    value = imm;
    whole = std::all_of(pair.theirs.data(), pair.theirs.data() + 1000,
                        [](std::byte b) { return b == std::byte{9}; });
    from = peer.name();
    ++notes;
  });
  std::fill_n(pair.mine.data(), 1000, std::byte{9});
  const auto remote = take(pair.peer.region("buffer"));
  std::vector<Copy> batch;
  for (std::uint64_t i = 0; i < 10; ++i) batch.push_back({pair.mine, i * 100, remote, (9 - i) * 100, 100});
  REQUIRE(pair.peer.write_with_imm(batch, 0xfeedU).wait(kSoon).has_value());
  REQUIRE(eventually([&] { return notes.load() == 1; }));
  CHECK(value.load() == 0xfeedU);
  CHECK(whole.load());
  CHECK(from == "a");
}

TEST_CASE("thousands of operations at once are queued and all end well") {
  Pair pair;
  const auto remote = take(pair.peer.region("buffer"));
  std::vector<Future<None>> futures;
  const int count = scaled(6000);  // more than the endpoint takes
  for (int i = 0; i < count; ++i) {
    const Copy copy{pair.mine, 0, remote, 0, 64};
    futures.push_back(i % 3 == 0 ? pair.peer.write_with_imm({&copy, 1}, 1) : pair.peer.read({&copy, 1}));
  }
  for (auto& future : futures) {
    const auto result = future.wait(kSoon);
    REQUIRE_MESSAGE(result.has_value(), result.status().to_string());
  }
}

TEST_CASE("what a block names is checked: range, rights, regions of others") {
  Pair pair;
  const auto remote = take(pair.peer.region("buffer"));
  const Copy beyond{pair.mine, 0, remote, (64 << 10) - 10, 20};
  CHECK(code_of(pair.peer.write({&beyond, 1}).wait(kSoon)) == Code::kInvalidArgument);
  const MemoryRegion none;
  const Copy empty{none, 0, remote, 0, 20};
  CHECK(code_of(pair.peer.write({&empty, 1}).wait(kSoon)) == Code::kInvalidArgument);
  const RemoteRegion nothing;
  const Copy nowhere{pair.mine, 0, nothing, 0, 20};
  CHECK(code_of(pair.peer.write({&nowhere, 1}).wait(kSoon)) == Code::kInvalidArgument);
  const Copy foreign{pair.theirs, 0, remote, 0, 20};
  CHECK(code_of(pair.peer.write({&foreign, 1}).wait(kSoon)) == Code::kInvalidArgument);
  auto readable = take(pair.b->allocate(4096, Rights::kRemoteRead));
  REQUIRE(pair.b->publish("readable", readable).ok());
  const auto read_only = take(pair.peer.region("readable"));
  const Copy forbidden{pair.mine, 0, read_only, 0, 20};
  CHECK(code_of(pair.peer.write({&forbidden, 1}).wait(kSoon)) == Code::kPermissionDenied);
  CHECK(pair.peer.read({&forbidden, 1}).wait(kSoon).has_value());  // and the connection lives
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLIME_TEST_ENDS_WITHOUT_MEMORY true
#elif defined(__has_feature)
#define SLIME_TEST_ENDS_WITHOUT_MEMORY (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SLIME_TEST_ENDS_WITHOUT_MEMORY false
#endif

// The sanitizers end the process instead of throwing std::bad_alloc.
TEST_CASE("a message that does not fit into memory is refused" *
          doctest::skip(SLIME_TEST_ENDS_WITHOUT_MEMORY)) {
  auto agent = start("a");
  const std::byte first{};
  // No byte is read: there is no memory for the copy.
  const Bytes huge(&first, std::size_t{1} << 60);
  CHECK(code_of(agent->peer("nobody").send(0, huge).wait(kSoon)) == Code::kResourceExhausted);
}

TEST_CASE("names of regions: unknown, taken, taken back, closed") {
  Pair pair;
  CHECK(code_of(pair.peer.region("unknown")) == Code::kNotFound);
  auto other = take(pair.b->allocate(4096, Rights::kRemoteRead));
  CHECK(pair.b->publish("buffer", other).code() == Code::kAlreadyExists);
  CHECK(pair.b->publish("buffer", pair.theirs).ok());
  CHECK(pair.b->publish("bad name", other).code() == Code::kInvalidArgument);
  auto local = take(pair.b->allocate(4096, Rights::kLocal));
  CHECK(pair.b->publish("local", local).code() == Code::kInvalidArgument);
  CHECK(pair.a->publish("foreign", other).code() == Code::kInvalidArgument);

  CHECK(pair.peer.region("buffer").has_value());
  CHECK(pair.b->unpublish("buffer").ok());
  CHECK(pair.b->unpublish("buffer").code() == Code::kNotFound);
  CHECK(eventually([&] { return code_of(pair.peer.region("buffer")) == Code::kNotFound; }));

  REQUIRE(pair.b->publish("other", other).ok());
  const auto remote = take(pair.peer.region("other"));
  CHECK(other.close().ok());
  CHECK(other.close().ok());
  CHECK(pair.b->publish("other", other).code() == Code::kInvalidArgument);
  CHECK(eventually([&] { return code_of(pair.peer.region("other")) == Code::kNotFound; }));
  const Copy copy{pair.mine, 0, remote, 0, 64};
  CHECK_FALSE(pair.peer.read({&copy, 1}).wait(kSoon).has_value());
  // The connection lives, or a new one takes its place at once: a NIC's refusal breaks it.
  CHECK(take(pair.peer.call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) == 2);
}

TEST_CASE("callbacks get outcomes on the loop, and may start more") {
  Pair pair;
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> status{-1};
  REQUIRE(pair.peer.connect().wait(kSoon).has_value());
  // What is waited for comes after this: an outcome that is there already is given to the caller at
  // once.
  pair.peer.recv(7).then([&](Result<Payload> first) {
    CHECK(first.has_value());
    CHECK(code_of(pair.peer.region("buffer")) == Code::kInvalidArgument);  // would wait for itself
    CHECK(pair.a->close().code() == Code::kInvalidArgument);
    pair.peer.call<std::int64_t>("calc", "add", 3, 10).then([&](Result<std::int64_t> second) {
      sum = take(std::move(second));
      status = 0;
    });
  });
  CHECK(pair.b->peer("a").send(7, as_bytes("go")).wait(kSoon).has_value());
  REQUIRE(eventually([&] { return status.load() == 0; }));
  CHECK(sum.load() == 13);
}

// A coroutine that is not awaited: runs until its first co_await, then on the completing thread.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached add_twice(Peer peer, Promise<std::int64_t> out) {
  auto first = co_await peer.call<std::int64_t>("calc", "add", 20, 1);
  if (!first) {
    out.complete(first.status());
    co_return;
  }
  auto second = co_await peer.call<std::int64_t>("calc", "add", *first, *first);
  out.complete(std::move(second));
}

TEST_CASE("futures can be awaited by coroutines") {
  Pair pair;
  Promise<std::int64_t> promise;
  auto future = promise.future();
  add_twice(pair.peer, std::move(promise));
  CHECK(take(future.wait(kSoon)) == 42);
}

TEST_CASE("cancelled calls and receives end with kCancelled, and the peer stays usable") {
  std::atomic<bool> release{false};  // outlives the agents, whose handler uses it
  Pair pair;
  rpc::Service slow("slow");
  REQUIRE(slow.add("wait",
                   [&release] {
                     release.wait(false);
                     return 1;
                   })
              .ok());
  REQUIRE(pair.b->serve(slow).ok());
  auto call = pair.peer.raw().call("slow", "wait", rpc::encode_arguments());
  auto recv = pair.peer.recv(99);
  auto never = pair.a->peer("nobody").recv(1);  // waits for a peer that does not come
  CHECK_FALSE(call.wait_done(milliseconds(20)));
  call.cancel();
  recv.cancel();
  never.cancel();
  CHECK(code_of(call.wait(kSoon)) == Code::kCancelled);
  CHECK(code_of(recv.wait(kSoon)) == Code::kCancelled);
  CHECK(code_of(never.wait(kSoon)) == Code::kCancelled);
  release = true;
  release.notify_all();
  CHECK(take(pair.peer.call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) == 2);
}

TEST_CASE("an agent can be its own peer") {
  auto agent = start("self");
  rpc::Service service = calculator();
  REQUIRE(agent->serve(service).ok());
  Peer self = agent->peer(agent->address());
  CHECK(take(self.call<std::int64_t>("calc", "add", 2, 3).wait(kSoon)) == 5);
  CHECK(take(agent->peer("self").call<std::int64_t>("calc", "add", 2, 3).wait(kSoon)) == 5);
}

TEST_CASE("a peer says what it serves, and while it drains that it does") {
  Pair pair;
  const auto services = take(pair.peer.services().wait(kSoon));
  REQUIRE(services.size() == 3);
  CHECK(services[0].name == "calc");
  REQUIRE(services[0].methods.size() == 4);
  CHECK(services[0].methods[0].name == "add");
  CHECK(services[0].methods[0].parameters.size() == 2);
  CHECK(services[0].methods[0].parameters[0].type == "int");
  CHECK(services[0].methods[0].result == "int");
  CHECK(services[0].methods[1].name == "caller");
  CHECK(services[0].methods[1].parameters.empty());
  const auto health = [&] {
    return pair.peer.call<std::string>(rpc::kHealthService, "check", "").wait(kSoon);
  };
  CHECK(take(health()) == "serving");
  REQUIRE(pair.b->drain(kSoon).ok());
  CHECK(take(health()) == "draining");
  CHECK(code_of(pair.peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == Code::kUnavailable);
  rpc::Service reserved("slime.mine");
  REQUIRE(reserved.add("m", [] {}).ok());
  CHECK(pair.b->serve(reserved).code() == Code::kInvalidArgument);
}

TEST_CASE("a receive waits for a peer that comes later") {
  auto a = start("a");
  auto b = start("b");
  auto message = b->peer("a").recv(5);
  CHECK_FALSE(message.wait_done(milliseconds(5)));
  REQUIRE(a->peer(b->address()).send(5, as_bytes("here I am")).wait(kSoon).has_value());
  CHECK(as_text(take(message.wait(kSoon)).bytes()) == "here I am");
}

TEST_CASE("an empty peer answers instead of crashing") {
  Peer none;
  CHECK(code_of(none.connect().wait()) == Code::kInvalidArgument);
  CHECK(code_of(none.region("x")) == Code::kInvalidArgument);
  CHECK(none.info().name.empty());
}

}  // namespace
}  // namespace slime
