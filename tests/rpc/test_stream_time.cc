#include <doctest/doctest.h>

#include "tests/rpc/stream_fixture.h"

// Tests the time limits of streams.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

LinkOptions with_idle(Nanos a, Nanos b) {
  LinkOptions options;
  options.a.streams.idle_timeout = a;
  options.b.streams.idle_timeout = b;
  return options;
}

bool says(const Status& status, std::string_view part) {
  return status.text().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a stream ends after 30 s without a message, the first one included, and says so") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  int cancelled = 0;
  link.taken().request().on_cancel([&] { ++cancelled; });
  auto read = stream.read();
  sim.pass(29s);
  CHECK_FALSE(read.done());
  sim.pass(2s);
  REQUIRE(read.done());
  const Status status = read.wait().status();
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(says(status,
             "the stream was idle: no message went to or came from b for 30 s (idle_timeout); 0 messages"));
  CHECK(link.wait(stream.finish()).status().maybe_executed());
  CHECK(cancelled == 1);
  link.check_clean();
}

TEST_CASE("messages keep a stream going, and it has no deadline of its own") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  auto& served = link.taken();
  for (int i = 0; i < 20; ++i) {
    auto read = stream.read();
    sim.pass(29s);
    CHECK(link.wait(served.write(i)).has_value());
    CHECK(link.get(std::move(read)) == i);
  }
  auto read = stream.read();
  sim.pass(31s);
  REQUIRE(read.done());
  CHECK(says(read.wait().status(), "20 messages had come"));
  link.check_clean();
}

TEST_CASE("what the caller writes keeps a stream going as well") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  auto& served = link.taken();
  for (int i = 0; i < 10; ++i) {
    sim.pass(29s);
    CHECK(link.wait(stream.write(i)).has_value());
    CHECK(link.get(served.read()) == i);
  }
  served.finish(7);
  CHECK(link.get(stream.finish()) == 7);
  link.check_clean();
}

TEST_CASE("messages that wait for the caller's own user are no pause of the peer's") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  auto& served = link.taken();
  CHECK(link.wait(served.write(1)).has_value());
  sim.pass(300s);
  CHECK(link.get(stream.read()) == 1);
  served.finish(7);
  CHECK(link.get(stream.finish()) == 7);
  link.check_clean();
}

TEST_CASE("a reader that is slower than half a window in the timeout keeps its writer going") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  auto& served = link.taken();
  std::vector<Future<None>> writes;
  for (int i = 0; i < 80; ++i) writes.push_back(served.write(i));  // more than the window
  for (int i = 0; i < 80; ++i) {
    CHECK(link.get(stream.read()) == i);
    sim.pass(20s);
  }
  for (auto& write : writes) CHECK(link.wait(std::move(write)).has_value());
  served.finish(7);
  CHECK(link.get(stream.finish()) == 7);
  link.check_clean();
}

TEST_CASE("a handler that waits for a caller that stands still is ended by its own side") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_idle(30s, Nanos::max()));  // 30 s at the server, none at the caller
  auto stream = link.open<Ints>("ints", 1, Nanos::max());
  auto& served = link.taken();
  link.fixture.settle();
  sim.freeze_b(link.pair);
  std::vector<Future<None>> writes;
  for (int i = 0; i < 200; ++i) writes.push_back(served.write(i));
  sim.pass(29s);
  CHECK_FALSE(writes.back().done());
  sim.pass(32s);
  REQUIRE(writes.back().done());
  const Status status = writes.back().wait().status();
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(says(status, "for 30 s (idle_timeout) its caller neither wrote nor read"));
  sim.thaw_b(link.pair);
  link.ints.clear();
  stream.cancel();
  link.check_clean();
}

TEST_CASE("what a handler does between two messages is bounded by its caller alone") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_idle(Nanos::max(), 1s));
  auto stream = link.open<Ints>("ints", 0, Nanos::max());
  auto& served = link.taken();
  sim.pass(600s);
  CHECK(link.wait(served.write(1)).has_value());
  CHECK(link.get(stream.read()) == 1);
  served.finish(7);
  CHECK(link.get(stream.finish()) == 7);
  link.check_clean();
}

TEST_CASE("a handler whose caller gave a deadline may wait as long as that") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_idle(Nanos::max(), 1s));
  auto stream = link.open<Ints>("ints", 0, 100s);
  auto read = link.taken().read();
  sim.pass(90s);
  CHECK_FALSE(read.done());
  sim.pass(20s);
  CHECK(link.wait(std::move(read)).status().code() == Code::kDeadlineExceeded);
  const Status status = link.wait(stream.finish()).status();
  CHECK(says(status, "the deadline of the whole stream to b passed before its end; 0 messages had come"));
  link.check_clean();
}
