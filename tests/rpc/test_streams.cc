#include <doctest/doctest.h>

#include <numeric>

#include "base/str.h"
#include "rpc/interceptor.h"
#include "tests/rpc/stream_fixture.h"

// Streams between two healthy ends: order, credits, half-close, large messages.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

LinkOptions with_window(std::size_t window, std::uint64_t bytes = rpc::limits::kStreamBytes) {
  LinkOptions options;
  options.a.streams = options.b.streams = {.window = window, .window_bytes = bytes};
  return options;
}

// How many of these are done, once nothing moves any more.
std::size_t accepted(StreamLink& link, const std::vector<Future<None>>& writes) {
  link.fixture.settle();
  std::size_t out = 0;
  for (const auto& write : writes) out += write.done() ? 1 : 0;
  return out;
}

struct Watch final : ServerInterceptor {
  Status before(ServerCall&) override {
    ++began;
    return {};
  }
  void after(const CallInfo&, const Status& outcome, const CallTiming&) override {
    CHECK(outcome.ok());
    ++ended;
  }
  int began = 0;
  int ended = 0;
};

}  // namespace

TEST_CASE("an interceptor of the server sees a stream begin and end, which runs on between") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  const auto watch = std::make_shared<Watch>();
  link.servers[1]->add_interceptor(watch);
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  CHECK(watch->began == 1);
  CHECK(link.wait(stream.write(5)).has_value());
  CHECK(link.get(served.read()) == 5);
  CHECK(link.wait(served.write(6)).has_value());
  CHECK(link.get(stream.read()) == 6);
  CHECK(watch->ended == 0);
  served.finish(7);
  CHECK(link.get(stream.finish()) == 7);
  CHECK(watch->ended == 1);
  link.check_clean();
}

TEST_CASE("reads that are given up give their messages back to the next read") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  {
    auto dropped = stream.read();  // this read waits
  }
  auto cancelled = stream.read();
  cancelled.cancel();
  CHECK(link.wait(std::move(cancelled)).status().code() == Code::kCancelled);
  for (int i = 0; i < 3; ++i) CHECK(link.wait(served.write(i)).has_value());
  {
    auto first = stream.read();
    auto second = stream.read();
    REQUIRE(link.until([&] { return first.done() && second.done(); }));
  }
  auto late = stream.read();
  REQUIRE(link.until([&] { return late.done(); }));
  late.cancel();
  CHECK(late.wait().status().code() == Code::kCancelled);
  for (int i = 0; i < 3; ++i) CHECK(link.get(stream.read()) == i);
  CHECK(link.a().counters().receives_given_back >= 3);
  served.finish(0);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("a read that waits gets what another one gives back, also behind the end") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  auto first = stream.read();
  auto second = stream.read();
  CHECK(link.wait(served.write(1)).has_value());
  REQUIRE(link.until([&] { return first.done(); }));
  CHECK_FALSE(second.done());
  first = {};
  CHECK(link.get(std::move(second)) == 1);
  auto last = stream.read();
  CHECK(link.wait(served.write(2)).has_value());
  REQUIRE(link.until([&] { return last.done(); }));
  served.finish(0);
  CHECK(link.get(stream.read()) == std::nullopt);
  last = {};
  CHECK(link.get(stream.read()) == 2);
  CHECK(link.get(stream.read()) == std::nullopt);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("messages go both ways in order, the ends close one after the other, the result comes last") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  CHECK(served.info().peer == "a");
  for (int i = 0; i < 200; ++i) {
    auto written = stream.write(i);
    CHECK(link.get(served.read()) == i);
    CHECK(link.wait(std::move(written)).has_value());
    CHECK(link.wait(served.write(-i)).has_value());
    CHECK(link.get(stream.read()) == -i);
  }
  stream.close_writing();
  CHECK(link.get(served.read()) == std::nullopt);
  CHECK(link.get(served.read()) == std::nullopt);
  CHECK(link.wait(stream.write(1)).status().code() == Code::kInvalidArgument);
  CHECK(link.wait(served.write(7)).has_value());  // the other direction goes on
  served.close_writing();
  CHECK(link.get(stream.read()) == 7);
  CHECK(link.get(stream.read()) == std::nullopt);
  auto result = stream.finish();
  link.fixture.settle();
  CHECK_FALSE(result.done());
  served.finish(42);
  CHECK(link.get(std::move(result)) == 42);
  CHECK(link.wait(served.write(8)).status().code() == Code::kAborted);
  link.check_clean();
}

TEST_CASE("a method that closes its writing still reads") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  served.close_writing();
  CHECK(link.get(stream.read()) == std::nullopt);
  CHECK(link.wait(stream.write(5)).has_value());
  CHECK(link.get(served.read()) == 5);
  served.finish(1);
  CHECK(link.get(stream.finish()) == 1);
  link.check_clean();
}

TEST_CASE("a producer without a consumer stops after the window, whichever side it is") {
  for (const std::size_t window : {1U, 2U, 7U, 64U}) {
    CAPTURE(window);
    SimFixture sim(kSeed);
    StreamLink link(sim, with_window(window));
    auto stream = link.open<Ints>("ints");
    auto& served = link.taken();
    std::vector<Future<None>> up;
    std::vector<Future<None>> down;
    for (int i = 0; i < 200; ++i) {
      up.push_back(stream.write(i));
      down.push_back(served.write(i));
    }
    CHECK(accepted(link, up) == window);
    CHECK(accepted(link, down) == window);
    // Each message that is read lets at most one more in, and all of them come.
    for (int i = 0; i < 200; ++i) {
      CHECK(link.get(served.read()) == i);
      CHECK(link.get(stream.read()) == i);
      CHECK(accepted(link, up) <= window + static_cast<std::size_t>(i) + 1);
    }
    CHECK(accepted(link, up) == 200);
    CHECK(accepted(link, down) == 200);
    served.finish(0);
    CHECK(link.get(stream.finish()) == 0);
    link.check_clean();
  }
}

TEST_CASE("more writes than may wait are refused, and the stream goes on") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(1));
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i <= rpc::limits::kStreamWaiting + 1; ++i) writes.push_back(stream.write(1));
  link.fixture.settle();
  CHECK(writes[0].done());
  REQUIRE(writes.back().done());
  CHECK(writes.back().wait().status().code() == Code::kResourceExhausted);
  std::vector<Future<std::optional<int>>> reads;
  for (std::size_t i = 0; i < rpc::limits::kStreamWaiting; ++i) CHECK(link.get(served.read()) == 1);
  served.finish(0);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("reads may wait before anything is written, and get it in order") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(4));
  auto stream = link.open<Ints>("ints");
  auto& served = link.taken();
  std::vector<Future<std::optional<int>>> reads;
  reads.reserve(50);
  for (int i = 0; i < 50; ++i) reads.push_back(stream.read());
  for (int i = 0; i < 40; ++i) CHECK(link.wait(served.write(i)).has_value());
  served.finish(3);
  for (int i = 0; i < 50; ++i) {
    const auto value = link.get(std::move(reads[static_cast<std::size_t>(i)]));
    CHECK(value == (i < 40 ? std::optional(i) : std::nullopt));
  }
  CHECK(link.get(stream.finish()) == 3);
  link.check_clean();
}

TEST_CASE("what was written before the result is read behind it, small and large") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(20, 1 << 20));
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 20; ++i) writes.push_back(served.write(pattern(i % 2 == 0 ? 10 : 300'000, i)));
  served.finish(9);
  auto result = stream.finish();
  for (std::size_t i = 0; i < 20; ++i) {
    const auto value = link.get(stream.read());
    REQUIRE(value.has_value());
    CHECK(*value == pattern(i % 2 == 0 ? 10 : 300'000, i));
  }
  CHECK(link.get(stream.read()) == std::nullopt);
  CHECK(link.get(std::move(result)) == 9);
  link.check_clean();
}

TEST_CASE("large messages are read out of the writer's memory no further than the window's bytes") {
  SimFixture sim(kSeed);
  constexpr std::size_t kSize = 100'000;
  StreamLink link(sim, with_window(50, 3 * (kSize + 100)));
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  std::vector<Future<None>> writes;
  for (std::size_t i = 0; i < 30; ++i) writes.push_back(stream.write(pattern(kSize, i)));
  // Three lie here unread; three more wait in the memory of the writer.
  CHECK(accepted(link, writes) == 6);
  CHECK(link.a().counters().lent_buffers == 3);
  for (std::size_t i = 0; i < 30; ++i) {
    const auto value = link.get(served.read());
    REQUIRE(value.has_value());
    CHECK(*value == pattern(kSize, i));
    CHECK(link.a().counters().lent_buffers <= 3);
  }
  CHECK(accepted(link, writes) == 30);
  served.finish(0);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("a message that is larger than the window's bytes goes alone; small ones behind it wait") {
  SimFixture sim(kSeed);
  StreamLink link(sim, with_window(8, 1000));
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  const std::vector<std::size_t> sizes{10, 3 << 20, 20, 30, 1 << 20, 2 << 20, 5};
  std::vector<Future<None>> writes;
  writes.reserve(sizes.size());
  for (const std::size_t size : sizes) writes.push_back(stream.write(pattern(size)));
  for (const std::size_t size : sizes) {
    const auto value = link.get(served.read());
    REQUIRE(value.has_value());
    CHECK(*value == pattern(size));
  }
  served.finish(0);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("a message that the peer does not take is refused, and the stream goes on") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_payload_bytes = 50'000;
  StreamLink link(sim, options);
  auto stream = link.open<Blobs>("blobs");
  auto& served = link.taken_blobs();
  const auto refused = link.wait(stream.write(pattern(60'000)));
  CHECK(refused.status().code() == Code::kInvalidArgument);
  CHECK(link.wait(stream.write(pattern(40'000))).has_value());
  CHECK(link.get(served.read()) == pattern(40'000));
  served.finish(0);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("a message that does not convert is an error of that read") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open<Stream<std::string, int, int>>("ints");
  auto& served = link.taken();
  CHECK(link.wait(stream.write("no number")).has_value());
  CHECK(link.wait(served.read()).status().code() == Code::kInvalidArgument);
  CHECK(link.wait(served.write(3)).has_value());
  served.finish(0);
  CHECK(link.get(stream.read()) == 3);
  CHECK(link.get(stream.finish()) == 0);
  link.check_clean();
}

TEST_CASE("many streams of both sides run at once, beside calls, over few credits") {
  for (std::uint64_t seed = kSeed; seed < kSeed + 5; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    LinkOptions options = with_credits(4, 8);
    options.a.streams = options.b.streams = {.window = 5, .window_bytes = 20'000};
    StreamLink link(sim, options);
    constexpr std::size_t kStreams = 20;
    std::vector<Blobs> streams;
    for (std::size_t i = 0; i < kStreams; ++i)
      streams.push_back(link.open<Blobs>("blobs", i % 2 == 0 ? 0 : 1));
    link.taken_blobs(kStreams - 1);
    std::vector<Future<None>> writes;
    std::vector<std::unique_ptr<Reply>> replies;
    for (std::size_t n = 0; n < 20; ++n) {
      for (std::size_t i = 0; i < kStreams; ++i) {
        writes.push_back(streams[i].write(pattern(n % 5 == 0 ? 12'000 : 50, n)));
        writes.push_back(link.blobs[i]->write(pattern(n % 7 == 0 ? 12'000 : 50, n)));
      }
      replies.push_back(std::make_unique<Reply>());
      link.a().call({"test", "add", link.in(30s)}, encode_arguments(1, static_cast<int>(n)),
                    replies.back()->handler());
    }
    // The calls do not wait for the streams, of which no message has been read.
    REQUIRE(link.until([&] {
      return std::all_of(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); });
    }));
    for (std::size_t n = 0; n < 20; ++n) {
      for (std::size_t i = 0; i < kStreams; ++i) {
        CHECK(link.get(link.blobs[i]->read()) == pattern(n % 5 == 0 ? 12'000 : 50, n));
        CHECK(link.get(streams[i].read()) == pattern(n % 7 == 0 ? 12'000 : 50, n));
      }
    }
    for (std::size_t i = 0; i < kStreams; ++i) {
      link.blobs[i]->finish(static_cast<int>(i));
    }
    for (auto& stream : streams) CHECK(link.wait(stream.finish()).has_value());
    link.check_clean();
  }
}

TEST_CASE("a method that does not stream refuses a stream, and one that streams refuses a call") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  auto stream = link.open_on<Ints>("test", "add", 0, 20s, 2, 3);
  auto write = stream.write(1);
  const Status plain = link.wait(stream.finish()).status();
  CHECK(plain.code() == Code::kInvalidArgument);
  CHECK(plain.text() == "test.add does not stream: call it without a stream");
  CHECK_FALSE(plain.maybe_executed());
  CHECK(link.wait(stream.read()).status().code() == Code::kInvalidArgument);
  CHECK_FALSE(link.wait(std::move(write)).has_value());
  const auto refused = link.call_raw("streams", "ints", encode_arguments());
  CHECK(refused.status().code() == Code::kInvalidArgument);
  CHECK_FALSE(refused.status().maybe_executed());
  auto unknown = link.open<Ints>("nothing");
  CHECK(link.wait(unknown.read()).status().code() == Code::kNotFound);
  CHECK(link.wait(unknown.finish()).status().code() == Code::kNotFound);
  link.check_clean();
}

TEST_CASE("reflection says of a method what it reads and writes") {
  SimFixture sim(kSeed);
  StreamLink link(sim);
  Service service("typed");
  REQUIRE(service.add("up", [](ServerStream<std::string, None>&, int) { return 1.5; }).ok());
  REQUIRE(service
              .add("down", [](ServerStream<None, std::vector<int>, bool>, const std::string&) {},
                   {.run = Run::kInline})
              .ok());
  const MethodInfo& up = service.methods().find("up")->second->info;
  CHECK(up.reads == "str");
  CHECK(up.writes.empty());
  CHECK(up.result == "float");
  CHECK(up.parameters.size() == 1);
  const MethodInfo& down = service.methods().find("down")->second->info;
  CHECK(down.reads.empty());
  CHECK(down.writes == "list[int]");
  CHECK(down.result == "bool");
  REQUIRE(link.servers[1]->add(service).ok());
  const auto info = value_of<ServiceInfo>(
      link.call_raw("slime.Reflection", "service", encode_arguments(std::string("typed"))));
  CHECK(info.methods[0].writes == "list[int]");
  CHECK(info.methods[1].reads == "str");
}
