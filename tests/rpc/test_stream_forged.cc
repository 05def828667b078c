#include <doctest/doctest.h>

#include "rpc/stream.h"
#include "tests/rpc/forger.h"

// Streams against a peer that sends what it likes.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kStreamFeatures = wire::kFeatureCancel | wire::kFeatureStreams;

// A forger to whom "x.ints" is served, which keeps its streams, with a window of 4.
struct StreamForger : Forger {
  explicit StreamForger(Fixture& f)
      : Forger(f, {.peer_name = "forger", .max_calls = 100, .streams = {.window = 4}}) {
    Service service("x");
    REQUIRE(service
                .add("ints",
                     [this](ServerStream<int, int, int> stream) {
                       kept.push_back(std::make_unique<ServerStream<int, int, int>>(std::move(stream)));
                     },
                     {.run = Run::kInline})
                .ok());
    REQUIRE(server.add(service).ok());
    hello({.max_requests = 100, .optional_features = kStreamFeatures, .max_payload_bytes = 1 << 20});
  }
  ~StreamForger() { kept.clear(); }
  void open(std::uint64_t id) {
    FrameHeader request = header(FrameType::kRequest, id);
    request.flags = wire::kFlagStream;
    request.value = wire::kNoDeadline;
    send(request, wire::encode_names("x", "ints"), encode_arguments());
  }
  void say(FrameType type, std::uint64_t id, std::uint64_t value = 0, std::uint8_t flags = 0,
           const ByteVector& body = {}) {
    FrameHeader frame = header(type, id);
    frame.value = value;
    frame.flags = flags;
    send(frame, {}, body);
  }
  void data(std::uint64_t id, std::uint8_t flags = 0) {
    say(FrameType::kData, id, 0, flags, encode_value(1));
  }
  // Memory that is not there: only a release may name it.
  void offer(std::uint64_t id, std::uint8_t flags = 0) {
    wire::Offer offered;
    offered.lease = {9, 9};
    offered.length_bytes = 1000;
    offered.region.id = {1, 1};
    offered.region.length_bytes = 1000;
    offered.region.rights = transport::Rights::kRemoteRead;
    offered.region.key = transport::PackedKey(as_bytes("eight by"));
    say(FrameType::kData, id, 0, static_cast<std::uint8_t>(flags | wire::kFlagRendezvous), offered.encode());
  }
  // How many frames of that type have come.
  std::size_t count(FrameType type) {
    std::size_t out = 0;
    for (const auto& message : received.messages)
      out += wire::decode_frame(message)->header.type == type ? 1 : 0;
    return out;
  }
  // The channel is as it was: it answers, and was not reset.
  void check_works() {
    const std::size_t before = count(FrameType::kPong);
    send(header(FrameType::kPing, kId));
    REQUIRE(fixture.until([&] { return count(FrameType::kPong) == before + 1; }));
    CHECK(owner.closed == 0);
  }
  // A stream from the channel to the forger, whose id it returns.
  std::uint64_t ask(std::shared_ptr<StreamEnd> end, Reply& reply, std::size_t message) {
    ticket = channel->stream({"any", "thing", fixture.now() + 20s}, {}, std::move(end), reply.handler());
    const FrameHeader request = wait(message);
    CHECK(request.type == FrameType::kRequest);
    CHECK(request.flags == wire::kFlagStream);
    return request.id;
  }
  std::vector<std::unique_ptr<ServerStream<int, int, int>>> kept;
  Ticket ticket;
};

}  // namespace

TEST_CASE("a window of credits is given, more of it as messages are read, and one message beyond it resets") {
  SimFixture sim(kSeed);
  StreamForger forger(sim);
  forger.open(kId);
  const FrameHeader credit = forger.wait(1);
  CHECK(credit.type == FrameType::kCredit);
  CHECK(credit.flags == wire::kFlagFromHandler);
  CHECK(credit.value == 4);
  for (int i = 0; i < 4; ++i) forger.data(kId);
  auto first = forger.kept[0]->read();
  auto second = forger.kept[0]->read();
  CHECK(forger.wait(2).value == 6);
  forger.data(kId);
  forger.data(kId);
  forger.check_works();
  forger.data(kId);
  forger.expect_reset(Code::kCorrupt);
  CHECK(forger.kept[0]->read().wait().status().code() == Code::kUnavailable);
}

TEST_CASE("what a peer says wrongly of a stream resets") {
  const auto resets = [](auto forge) {
    SimFixture sim(kSeed);
    StreamForger forger(sim);
    forger.open(kId);
    forger.wait(1);
    forge(forger);
    forger.expect_reset(Code::kCorrupt);
    REQUIRE(sim.until([&] { return forger.channel->counters().streams == 0; }));
  };
  const auto handler = wire::kFlagFromHandler;
  SUBCASE("a message after the end") {
    resets([](auto& f) { f.say(FrameType::kEnd, kId), f.data(kId); });
  }
  SUBCASE("a second end") {
    resets([](auto& f) { f.say(FrameType::kEnd, kId), f.say(FrameType::kEnd, kId); });
  }
  SUBCASE("credits of nothing") {
    resets([](auto& f) { f.say(FrameType::kCredit, kId, 0); });
  }
  SUBCASE("fewer credits") {
    resets([](auto& f) { f.say(FrameType::kCredit, kId, 5), f.say(FrameType::kCredit, kId, 4); });
  }
  SUBCASE("an id that never was") {
    resets([](auto& f) { f.data(kId + 1); });
  }
  SUBCASE("an earlier use of the id") {
    resets([](auto& f) { f.data(kId - (std::uint64_t{1} << 32)); });
  }
  SUBCASE("a stream of ours that never was") {
    resets([&](auto& f) { f.data(Handle{0, 1}.packed(), handler); });
  }
  SUBCASE("the same stream once more") {
    resets([](auto& f) { f.open(kId); });
  }
  SUBCASE("an offer that is none") {
    resets([](auto& f) { f.say(FrameType::kData, kId, 0, wire::kFlagRendezvous, encode_value(1)); });
  }
}

TEST_CASE("what a peer says wrongly of a stream that we opened resets") {
  const auto resets = [](auto forge) {
    SimFixture sim(kSeed);
    StreamForger forger(sim);
    forger.check_works();
    Reply reply;
    const auto end = std::make_shared<StreamEnd>(nullptr, true);
    const std::uint64_t id = forger.ask(end, reply, 2);
    CHECK(forger.wait(3).value == 4);
    forge(forger, id);
    forger.expect_reset(Code::kCorrupt);
    CHECK(reply.status().code() == Code::kUnavailable);
    CHECK(end->write({}).wait().status().code() == Code::kUnavailable);
  };
  const auto handler = wire::kFlagFromHandler;
  SUBCASE("a message beyond the credits") {
    resets([&](auto& f, std::uint64_t id) {
      for (int i = 0; i < 5; ++i) f.data(id, handler);
    });
  }
  SUBCASE("a message after the end") {
    resets([&](auto& f, std::uint64_t id) {
      f.say(FrameType::kEnd, id, 0, handler);
      f.data(id, handler);
    });
  }
  SUBCASE("as if the forger had opened it") {
    resets([](auto& f, std::uint64_t id) { f.data(id); });
  }
  SUBCASE("a later use of the id") {
    resets([&](auto& f, std::uint64_t id) { f.data(id + (std::uint64_t{1} << 32), handler); });
  }
}

TEST_CASE("a frame of a stream for a plain call resets") {
  SimFixture sim(kSeed);
  StreamForger forger(sim);
  forger.check_works();
  Reply reply;
  forger.channel->call({"any", "thing", sim.now() + 20s}, {}, reply.handler());
  const std::uint64_t id = forger.wait(2).id;
  forger.say(FrameType::kCredit, id, 3, wire::kFlagFromHandler);
  forger.expect_reset(Code::kCorrupt);
}

TEST_CASE("frames that crossed the end of a stream are counted, and what they offer is released") {
  SimFixture sim(kSeed);
  StreamForger forger(sim);
  forger.open(kId);
  forger.wait(1);
  forger.kept[0]->finish(1);
  REQUIRE(sim.until([&] { return forger.count(FrameType::kReply) == 1; }));
  const std::uint64_t before = forger.channel->counters().stale_replies;
  forger.data(kId);
  forger.offer(kId);
  forger.say(FrameType::kCredit, kId, 9);
  forger.say(FrameType::kEnd, kId);
  forger.check_works();
  CHECK(forger.count(FrameType::kRelease) == 1);
  CHECK(forger.channel->counters().stale_replies == before + 4);

  Reply reply;
  const std::uint64_t id =
      forger.ask(std::make_shared<StreamEnd>(nullptr, true), reply, forger.received.messages.size());
  forger.channel->cancel(forger.ticket);
  REQUIRE(sim.until([&] { return forger.count(FrameType::kCancel) == 1; }));
  for (int i = 0; i < 2; ++i) forger.offer(id, wire::kFlagFromHandler);
  forger.say(FrameType::kCredit, id, 9, wire::kFlagFromHandler);
  forger.say(FrameType::kEnd, id, 0, wire::kFlagFromHandler);
  forger.check_works();
  CHECK(forger.count(FrameType::kRelease) == 3);
  CHECK(forger.channel->counters().stale_replies == before + 8);
  CHECK(reply.status().code() == Code::kCancelled);
}

TEST_CASE("frames that follow a stream which was refused are harmless") {
  SimFixture sim(kSeed);
  StreamForger forger(sim);
  forger.check_works();
  forger.channel->close(30s);
  forger.open(kId);
  REQUIRE(sim.until([&] { return forger.count(FrameType::kReply) == 1; }));  // refused
  forger.offer(kId);
  forger.check_works();
  CHECK(forger.count(FrameType::kRelease) == 1);
}

TEST_CASE("memory that cannot be read ends the stream, not the connection") {
  SimFixture sim(kSeed);
  StreamForger forger(sim);
  forger.open(kId);
  forger.wait(1);
  auto read = forger.kept[0]->read();
  forger.offer(kId);
  REQUIRE(sim.until([&] { return read.done() || forger.owner.closed > 0; }));
  CHECK_FALSE(read.wait().has_value());
  forger.kept.clear();
  if (forger.owner.closed > 0) return;
  REQUIRE(sim.until([&] { return forger.count(FrameType::kReply) == 1; }));
  CHECK(forger.count(FrameType::kRelease) == 1);
  forger.check_works();
}

TEST_CASE("a peer without streams gets no stream, whether its hello has come or not") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  Reply early;
  Reply late;
  const auto end = std::make_shared<StreamEnd>(nullptr, true);
  auto write = end->write(encode_value(1));
  auto read = end->read();
  forger.channel->stream({"any", "thing", sim.now() + 20s}, {}, end, early.handler());
  forger.hello(
      {.max_requests = 100, .optional_features = wire::kFeatureCancel, .max_payload_bytes = 1 << 20});
  REQUIRE(sim.until([&] { return early.done(); }));
  forger.channel->stream({"any", "thing", sim.now() + 20s}, {}, std::make_shared<StreamEnd>(nullptr, true),
                         late.handler());
  REQUIRE(sim.until([&] { return late.done(); }));
  for (const Reply* reply : {&early, &late}) {
    CHECK(reply->status().code() == Code::kUnimplemented);
    CHECK_FALSE(reply->status().maybe_executed());
  }
  REQUIRE(sim.until([&] { return write.done() && read.done(); }));
  CHECK(write.wait().status().code() == Code::kUnimplemented);
  CHECK(read.wait().status().code() == Code::kUnimplemented);
  forger.send(Forger::header(FrameType::kPing, kId));
  CHECK(forger.wait(1).type == FrameType::kPong);  // nothing came between the hello and this
}
