#include <doctest/doctest.h>

#include "base/str.h"
#include "tests/rpc/stream_fixture.h"

// How streams end before both sides are done.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace stream_endings_test {
namespace {

// A stream of which both sides wait for everything that there is to wait for.
struct Waiting {
  explicit Waiting(StreamLink& l, Nanos within = 40s) : link(l), stream(l.open<Ints>("ints", 0, within)) {
    auto& served = link.taken();
    served.request().on_cancel([this] { ++cancelled; });
    reads.push_back(stream.read());
    served_reads.push_back(served.read());
  }
  // Fills the window, more than once.
  void fill() {
    for (int i = 0; i < 100; ++i) {
      served_writes.push_back(link.taken().write(i));
    }
  }
  void check_ended(Code caller, Code handler) {
    for (auto& read : reads) CHECK(link.wait(std::move(read)).status().code() == caller);
    for (auto& read : served_reads) CHECK(link.wait(std::move(read)).status().code() == handler);
    CHECK(link.wait(stream.finish()).status().code() == caller);
    // Once it is over, everything says so.
    CHECK(link.wait(stream.read()).status().code() == caller);
    CHECK(link.wait(link.taken().write(1)).status().code() == handler);
    CHECK(link.wait(link.taken().read()).status().code() == handler);
  }
  StreamLink& link;
  Ints stream;
  int cancelled = 0;
  std::vector<Future<std::optional<int>>> reads;
  std::vector<Future<std::optional<int>>> served_reads;
  std::vector<Future<None>> served_writes;
};

LinkOptions with_window(std::size_t window) {
  LinkOptions options;
  options.a.streams = options.b.streams = {.window = window};
  return options;
}

}  // namespace

TEST_CASE("a caller that cancels ends both sides, and the handler is told") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  Waiting waiting(link);
  waiting.stream.cancel();
  waiting.check_ended(Code::kCancelled, Code::kCancelled);
  CHECK(waiting.cancelled == 1);
  CHECK(link.taken().request().cancelled());
  link.taken().finish(1);  // the caller has gone
  link.check_clean();
}

TEST_CASE("a stream that is dropped is cancelled, one that is finishing is not") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(2));
  auto dropped = std::make_unique<Ints>(link.open<Ints>("ints"));
  link.taken();
  dropped.reset();
  CHECK(link.wait(link.taken().read()).status().code() == Code::kCancelled);
  // No reader takes what the method writes, and the method ends all the same.
  auto finishing = std::make_unique<Ints>(link.open<Ints>("ints"));
  auto& served = link.taken(1);
  auto result = finishing->finish();
  finishing.reset();
  for (int i = 0; i < 50; ++i) CHECK(link.wait(served.write(i)).has_value());
  CHECK(link.get(served.read()) == std::nullopt);
  served.finish(5);
  CHECK(link.get(std::move(result)) == 5);
  link.check_clean();
}

TEST_CASE("a deadline ends a stream on both sides") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  Waiting waiting(link, 50ms);
  waiting.check_ended(Code::kDeadlineExceeded, Code::kDeadlineExceeded);
  link.check_clean();
}

TEST_CASE("of several streams each ends at its own deadline") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto late = link.open<Ints>("ints", 0, 90ms);
  auto early = link.open<Ints>("ints", 0, 30ms);
  auto never = link.open<Ints>("ints", 0, Nanos::max());
  link.taken(2);
  CHECK(link.wait(link.ints[1]->read()).status().code() == Code::kDeadlineExceeded);
  auto read = link.ints[2]->read();
  CHECK(link.wait(link.ints[0]->read()).status().code() == Code::kDeadlineExceeded);
  link.fixture.settle();
  CHECK_FALSE(read.done());
  CHECK(link.wait(never.write(4)).has_value());
  CHECK(link.get(std::move(read)) == 4);
  never.cancel();
  link.check_clean();
}

TEST_CASE("a lost connection ends a stream on both sides") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  Waiting waiting(link);
  link.fixture.cut(link.pair);
  waiting.check_ended(Code::kUnavailable, Code::kUnavailable);
  CHECK(waiting.cancelled == 1);
}

TEST_CASE("a reset ends a stream on both sides, with messages and writes under way") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(3));
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 10; ++i) {
    writes.push_back(stream.write(pattern(i % 2 == 0 ? 100 : 200'000)));
    writes.push_back(served.write(pattern(i % 2 == 0 ? 100 : 200'000)));
  }
  auto result = stream.finish();
  for (int i = 0; i < 5; ++i) link.fixture.step();
  link.a().reset(Status(Code::kUnavailable, "gone"));
  CHECK(link.wait(std::move(result)).status().code() == Code::kUnavailable);
  for (auto& write : writes) static_cast<void>(link.wait(std::move(write)));
  CHECK(link.wait(served.write(pattern(1))).status().code() == Code::kUnavailable);
  CHECK(link.wait(stream.write(pattern(1))).status().code() == Code::kUnavailable);
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.b().counters().lent_buffers == 0);
}

TEST_CASE("a handler's error comes behind what it wrote, and ends the caller's writes") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(8));
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 20; ++i) writes.push_back(stream.write(pattern(10)));
  CHECK(link.wait(served.write(pattern(10))).has_value());
  CHECK(link.wait(served.write(pattern(500'000))).has_value());
  link.fixture.settle();
  served.fail(Status(Code::kPermissionDenied, "no more of that"));
  auto result = stream.finish();
  CHECK(link.get(stream.read()) == pattern(10));
  CHECK(link.get(stream.read()) == pattern(500'000));
  const auto end = link.wait(stream.read());
  CHECK(end.status().code() == Code::kPermissionDenied);
  CHECK(end.status().text() == "no more of that");
  CHECK(link.wait(std::move(result)).status().code() == Code::kPermissionDenied);
  for (std::size_t i = 8; i < 20; ++i)
    CHECK(link.wait(std::move(writes[i])).status().code() == Code::kPermissionDenied);
  link.check_clean();
}

TEST_CASE("a handler that drops its stream answers that, and a result ends writes that were not accepted") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(2));
  auto dropped = link.open<Ints>("ints");
  link.taken();
  link.ints.clear();
  const auto internal = link.wait(dropped.finish());
  CHECK(internal.status().code() == Code::kInternal);
  CHECK(internal.status().maybe_executed());
  auto stream = link.open<Ints>("ints");
  std::vector<Future<None>> writes;
  writes.reserve(5);
  for (int i = 0; i < 5; ++i) writes.push_back(stream.write(i));
  link.taken().finish(1);
  CHECK(link.get(stream.finish()) == 1);
  CHECK(link.wait(std::move(writes[4])).status().code() == Code::kAborted);
  link.check_clean();
}

TEST_CASE("the result waits for messages that the reader has no room for; a cancel ends that") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(2));
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  std::vector<Future<None>> writes;
  writes.reserve(10);
  for (int i = 0; i < 10; ++i) writes.push_back(served.write(i));
  served.finish(1);
  auto result = stream.finish();
  link.fixture.settle();
  CHECK_FALSE(result.done());
  CHECK(link.get(stream.read()) == 0);
  stream.cancel();
  CHECK(link.wait(std::move(result)).status().code() == Code::kCancelled);
  CHECK(link.wait(std::move(writes[9])).status().code() == Code::kCancelled);
  link.check_clean();
}

TEST_CASE("a graceful close lets streams end, and opens no more") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(4));
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  link.a().close(30s);
  auto refused = link.open<Ints>("ints");
  CHECK(link.wait(refused.finish()).status().code() == Code::kCancelled);
  for (int i = 0; i < 20; ++i) {
    auto written = stream.write(i);
    CHECK(link.get(served.read()) == i);
    CHECK(link.wait(std::move(written)).has_value());
    CHECK(link.wait(served.write(i)).has_value());
    CHECK(link.get(stream.read()) == i);
  }
  CHECK(link.owners[0].closed == 0);
  served.finish(6);
  CHECK(link.get(stream.finish()) == 6);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(link.owners[0].reason.ok());
}

TEST_CASE("a graceful close waits until large messages of an ended stream are read") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.a.streams = {.window = 8, .window_bytes = 1000};
  StreamLink link(sim, options);
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 3; ++i) CHECK(link.wait(served.write(pattern(100'000, i))).has_value());
  served.finish(1);
  CHECK(link.get(stream.finish()) == 1);
  link.a().close(30s);
  link.fixture.settle();
  CHECK(link.owners[0].closed == 0);
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(link.get(stream.read()) == pattern(100'000, i));
  }
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
}

TEST_CASE("the bound of a close ends streams that go on") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(4));
  Waiting waiting(link);
  waiting.fill();
  link.a().close(50ms);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(link.wait(waiting.stream.finish()).status().code() == Code::kCancelled);
  CHECK(link.wait(std::move(waiting.served_writes[99])).status().code() == Code::kUnavailable);
}

TEST_CASE("a channel that is destroyed ends its streams") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  Waiting waiting(link);
  link.channels[0].reset();
  CHECK(link.wait(waiting.stream.finish()).status().code() == Code::kUnavailable);
  CHECK(link.wait(std::move(waiting.served_reads[0])).status().code() == Code::kUnavailable);
}

TEST_CASE("nothing is left of many streams that end anywhere") {
  for (std::uint64_t seed = kSeed; seed < kSeed + 30; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    LinkOptions options = with_credits(4, 16);
    options.a.streams = options.b.streams = {.window = 3, .window_bytes = 30'000};
    StreamLink link(sim, options);
    Rng rng(seed);
    std::vector<Blobs> streams;
    std::vector<Future<None>> writes;
    std::vector<Future<std::optional<ByteVector>>> reads;
    std::vector<Future<int>> results;
    for (int round = 0; round < 300; ++round) {
      if (streams.size() < 10) streams.push_back(link.open<Blobs>("blobs", static_cast<int>(rng.below(2))));
      auto& stream = streams[rng.below(streams.size())];
      auto* const served = link.blobs.empty() ? nullptr : &link.blobs[rng.below(link.blobs.size())];
      switch (rng.below(9)) {
        case 0:
        case 1:
          writes.push_back(stream.write(pattern(rng.below(20'000))));
          break;
        case 2:
          reads.push_back(stream.read());
          break;
        case 3:
          if (rng.below(3) == 0) stream.cancel();
          break;
        case 4:
        case 5:
          if (served != nullptr) writes.push_back((*served)->write(pattern(rng.below(20'000))));
          break;
        case 6:
          if (served != nullptr) reads.push_back((*served)->read());
          break;
        case 7:
          if (served == nullptr || rng.below(3) != 0) break;
          if (rng.below(2) == 0)
            (*served)->finish(1);
          else
            (*served)->fail(Status(Code::kNotFound, "none"));
          link.blobs.erase(link.blobs.begin() + (served - link.blobs.data()));
          break;
        default:
          if (rng.below(3) == 0) streams.erase(streams.begin() + (&stream - streams.data()));
          break;
      }
      for (std::uint64_t i = rng.below(20); i > 0; --i) link.fixture.step();
    }
    streams.clear();
    for (auto& served : link.blobs) served->fail(Status(Code::kNotFound, "none"));
    link.blobs.clear();
    REQUIRE(link.until([&] {
      const auto done = [](const auto& future) { return future.done(); };
      return std::all_of(writes.begin(), writes.end(), done) && std::all_of(reads.begin(), reads.end(), done);
    }));
    link.check_clean();
  }
}

}  // namespace stream_endings_test
