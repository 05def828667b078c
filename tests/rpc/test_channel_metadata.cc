#include <doctest/doctest.h>

#include "rpc/codec/frame.h"
#include "rpc/interceptor.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/rpc/forger.h"

// What travels with a call besides its arguments, and what is told of its time.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

std::shared_ptr<CallContext> with_metadata(std::string_view key, std::string_view value,
                                           Need need = Need::kRequired) {
  auto context = std::make_shared<CallContext>();
  REQUIRE(context->metadata.set(key, value, need).ok());
  return context;
}

std::shared_ptr<CallContext> timed() {
  auto context = std::make_shared<CallContext>();
  context->timed = true;
  return context;
}

Result<Payload> call(Link& link, const std::shared_ptr<CallContext>& context, std::string_view service,
                     std::string_view method, ByteVector body, Nanos within = 20s) {
  Reply reply;
  link.a().call({service, method, link.in(within), context}, std::move(body), reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  REQUIRE(reply.calls == 1);
  return std::move(*reply.value);
}

// Serves "meta" on side 1: "get" answers the value of a key, or "-"; "size" the number of bytes it
// got.
void add_meta(Link& link) {
  Service service("meta");
  REQUIRE(service
              .add("get",
                   [](const CallInfo& info, const std::string& key) {
                     return std::string(info.metadata(key).value_or("-"));
                   },
                   {Run::kInline})
              .ok());
  REQUIRE(service
              .add("size",
                   [](const CallInfo& info, const ByteVector& bytes) {
                     return bytes.size() + info.metadata("token").value_or("").size();
                   },
                   {Run::kInline})
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
}

void check_sum(const CallTiming& timing) {
  CHECK(timing.queue >= Nanos::zero());
  CHECK(timing.handler >= Nanos::zero());
  CHECK(timing.network >= Nanos::zero());
  CHECK(timing.queue + timing.handler + timing.network == timing.total);
}

}  // namespace

TEST_CASE("metadata of a call is there for its handler, by name and by number, and for no other call") {
  SimFixture sim(kSeed);
  Link link(sim);
  add_meta(link);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    const auto context = with_metadata("token", "s3cret");
    REQUIRE(context->metadata.set("größe", "välue\nof two lines").ok());
    CHECK(value_of<std::string>(call(link, context, "meta", "get", encode_arguments("token"))) == "s3cret");
    const auto again = with_metadata("größe", "välue\nof two lines");
    CHECK(value_of<std::string>(call(link, again, "meta", "get", encode_arguments("größe"))) ==
          "välue\nof two lines");
    CHECK(value_of<std::string>(link.call_raw("meta", "get", encode_arguments("token"))) == "-");
  }
  CHECK(link.a().idle());
}

TEST_CASE("a body that goes by rendezvous has its metadata, too") {
  SimFixture sim(kSeed);
  Link link(sim);
  add_meta(link);
  const ByteVector large = pattern(300'000);
  const auto context = with_metadata("token", std::string(4000, 'x'));
  CHECK(value_of<std::size_t>(call(link, context, "meta", "size", encode_arguments(large))) == 304'000);
}

TEST_CASE("metadata is bounded, has one value for a key, and is text") {
  Metadata metadata;
  CHECK(metadata.set("", "x").code() == Code::kInvalidArgument);
  CHECK(metadata.set("a\nb", "x").code() == Code::kInvalidArgument);
  CHECK(metadata.set("key", "\xff").code() == Code::kInvalidArgument);
  CHECK(metadata.set(std::string(256, 'k'), "x").code() == Code::kInvalidArgument);
  CHECK(metadata.set("key", std::string(rpc::limits::kMetadataBytes, 'x')).code() ==
        Code::kResourceExhausted);
  CHECK(metadata.empty());
  CHECK(metadata.set("key", "1").ok());
  CHECK(metadata.set("key", std::string(rpc::limits::kMetadataBytes - 3, 'x')).ok());
  CHECK(metadata.set("k", "").code() == Code::kResourceExhausted);
  CHECK(metadata.set("key", "2").ok());
  CHECK(metadata.get("key") == "2");
  CHECK_FALSE(metadata.get("Key").has_value());
  for (std::size_t i = 1; i < rpc::limits::kMetadataEntries; ++i)
    CHECK(metadata.set(std::to_string(i), "").ok());
  CHECK(metadata.set("more", "").code() == Code::kResourceExhausted);
  metadata.remove("key");
  CHECK(metadata.set("more", "").ok());
}

TEST_CASE("metadata that does not fit into a message beside the names is refused, and nothing is sent") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.port.slot_bytes = 1024;
  Link link(sim, std::move(options));
  const auto requests = link.b().counters().requests;
  const auto reply = call(link, with_metadata("token", std::string(2000, 'x')), "test", "echo",
                          encode_arguments(pattern(10)));
  CHECK(reply.status().code() == Code::kInvalidArgument);
  CHECK_FALSE(reply.status().maybe_executed());
  CHECK(link.b().counters().requests == requests);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
}

TEST_CASE("who asks learns where the time of a call went, by the simulated clock") {
  SimFixture sim(kSeed);
  Link link(sim);
  // The handler takes 5 ms of simulated time.
  const auto context = timed();
  Reply reply;
  link.a().call({"test", "hold", link.in(60s), context}, {}, reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.fixture.loop(1).add_timer(link.in(5ms), [&] {
    link.held[0].reply(encode_value(1));
    link.held.clear();
  });
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().ok());
  CHECK(context->timing.split);
  CHECK(context->timing.queue == Nanos::zero());
  CHECK(context->timing.handler >= 5ms);
  CHECK(context->timing.handler < 6ms);
  CHECK(context->timing.network > Nanos::zero());
  check_sum(context->timing);
  CHECK(link.a().idle());
  CHECK(link.b().idle());
}

TEST_CASE("the time that a large request takes to be read is the network's") {
  SimFixture sim(kSeed);
  Link link(sim);
  const auto context = timed();
  const ByteVector large = pattern(40 << 20);
  REQUIRE(call(link, context, "test", "echo", encode_arguments(large), 60s).has_value());
  CHECK(context->timing.split);
  CHECK(context->timing.queue == Nanos::zero());
  CHECK(context->timing.handler == Nanos::zero());
  CHECK(context->timing.network == context->timing.total);
}

TEST_CASE("a failed call that was answered tells its times, and the text of its error") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (const bool known : {true, false}) {
    const auto context = timed();
    const auto reply = known
                           ? call(link, context, "test", "fail", encode_arguments(6, std::string("too many")))
                           : call(link, context, "test", "missing", encode_arguments());
    CHECK(reply.status().code() == (known ? Code::kResourceExhausted : Code::kNotFound));
    CHECK(reply.status().maybe_executed() == known);
    if (known) CHECK(reply.status().text() == "too many");
    CHECK(context->timing.split);
    check_sum(context->timing);
  }
  const auto context = timed();
  const auto longest = call(link, context, "test", "fail", encode_arguments(6, std::string(5000, 'x')));
  CHECK(longest.status().text().size() == rpc::limits::kErrorTextBytes);
  CHECK(context->timing.split);
}

TEST_CASE("a call that is not answered has a total, and no split") {
  SimFixture sim(kSeed);
  Link link(sim);
  const auto context = timed();
  const auto reply = call(link, context, "test", "hold", {}, 50ms);
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  CHECK_FALSE(context->timing.split);
  CHECK(context->timing.total >= 50ms);
  CHECK(context->timing.network == context->timing.total);
  REQUIRE(link.held.size() == 1);
  link.held[0].reply({});
  link.held.clear();
  REQUIRE(link.until([&] { return link.a().counters().stale_replies == 1; }));
  CHECK(link.b().idle());
}

TEST_CASE("thousands of timed calls with metadata that are cancelled, answered and lost leave nothing") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(4, 16));
  Rng rng(kSeed);
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t before = link.b().counters().requests;
    std::vector<std::unique_ptr<Reply>> replies;
    std::vector<Ticket> tickets;
    for (int i = 0; i < 20; ++i) {
      replies.push_back(std::make_unique<Reply>());
      const auto context = with_metadata("token", std::string(rng.below(500), 't'));
      context->timed = rng.below(2) == 0;
      tickets.push_back(link.a().call({"test", rng.below(3) == 0 ? "hold" : "raw", link.in(60s), context},
                                      pattern(rng.below(20'000)), replies.back()->handler()));
    }
    const std::uint64_t wanted = before + rng.below(20);
    REQUIRE(link.until([&] { return link.b().counters().requests >= wanted; }));
    for (std::size_t i = 0; i < link.held.size(); i += 2) link.held[i].reply(encode_value(1));
    for (const Ticket ticket : tickets) link.a().cancel(ticket);
    REQUIRE(link.until([&] {
      return std::all_of(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); });
    }));
    link.held.clear();
  }
  // Requests that were on their way when they were cancelled still reach their handler.
  REQUIRE(link.until([&] {
    link.held.clear();
    return link.a().idle() && link.b().idle();
  }));
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
}

// ------------------------------------------------------------------------- peers that are no Slime

namespace {

struct Stranger : Forger {
  using Forger::Forger;
  void hello(std::uint64_t features) {
    Forger::hello({.max_requests = 100, .optional_features = features, .max_payload_bytes = 1 << 20});
    REQUIRE(fixture.until([&] { return owner.ready == 1; }));
  }
};

}  // namespace

TEST_CASE(
    "a peer without the feature gets no metadata: what needs some is refused, what does not goes without") {
  // Before its hello, where the call waits for it, and after.
  for (const bool early : {true, false}) {
    CAPTURE(early);
    SimFixture sim(kSeed);
    Stranger peer(sim);
    if (!early) peer.hello(wire::kFeatureCancel);
    Reply needed;
    Reply optional;
    Reply asked;
    const TimePoint deadline = sim.now() + 60s;
    peer.channel->call({"s", "needed", deadline, with_metadata("token", "x")}, {}, needed.handler());
    peer.channel->call({"s", "optional", deadline, with_metadata("traceparent", "x", Need::kOptional)}, {},
                       optional.handler());
    const auto context = timed();
    peer.channel->call({"s", "timed", deadline, context}, {}, asked.handler());
    if (early) peer.hello(wire::kFeatureCancel);
    REQUIRE(sim.until([&] { return needed.done(); }));
    CHECK(needed.status().code() == Code::kUnimplemented);
    CHECK_FALSE(needed.status().maybe_executed());
    const wire::Frame first = peer.frame(1);
    CHECK(first.method == "optional");
    CHECK(first.header.flags == 0);
    CHECK(first.text.size() == wire::encode_names("s", "optional").size());
    const wire::Frame second = peer.frame(2);
    CHECK(second.method == "timed");
    CHECK(second.header.flags == 0);
    for (const wire::Frame& frame : {first, second}) {
      wire::FrameHeader reply;
      reply.type = wire::FrameType::kReply;
      reply.id = frame.header.id;
      peer.send(reply, {}, encode_value(1));
    }
    REQUIRE(sim.until([&] { return optional.done() && asked.done(); }));
    CHECK(asked.status().ok());
    CHECK_FALSE(context->timing.split);
    CHECK(context->timing.total > Nanos::zero());
    CHECK(peer.channel->counters().queued_frames == 0);
  }
}

TEST_CASE("a peer without the feature gets none with a call of any kind, before its hello and after") {
  for (const bool early : {true, false}) {
    for (const Need need : {Need::kRequired, Need::kOptional}) {
      CAPTURE(early);
      CAPTURE(static_cast<int>(need));
      SimFixture sim(kSeed);
      Stranger peer(sim);
      const std::uint64_t others = wire::kOptionalFeatures & ~wire::kFeatureMetadata;
      if (!early) peer.hello(others);
      std::array<Reply, 2> replies;
      Done left;
      const auto spec = [&](std::string_view method) {
        return CallSpec{"s", method, sim.now() + 60s, with_metadata("k", "v", need)};
      };
      peer.channel->call_one_way(spec("m1"), {}, left.handler());
      peer.channel->stream(spec("m2"), {}, std::make_shared<StreamEnd>(nullptr, true), replies[0].handler());
      peer.channel->call_attached(spec("m3"), encode_attached_arguments(Attachment(pattern(10))),
                                  replies[1].handler());
      if (early) peer.hello(others);
      REQUIRE(sim.until([&] { return left.done(); }));
      if (need == Need::kRequired) {
        REQUIRE(sim.until([&] { return replies[0].done() && replies[1].done(); }));
        for (const Status& status : {left.status, replies[0].status(), replies[1].status()}) {
          CHECK(status.code() == Code::kUnimplemented);
          CHECK(status.text().find("metadata") != std::string::npos);
          CHECK_FALSE(status.maybe_executed());
        }
        CHECK(peer.channel->idle());
        CHECK(peer.received.messages.size() == 1);  // its hello
        continue;
      }
      CHECK(left.status.ok());
      std::size_t next = 1;
      for (int i = 1; i <= 3; ++i) {
        wire::Frame frame = peer.frame(next++);
        while (frame.header.type == wire::FrameType::kCredit) frame = peer.frame(next++);  // of the stream
        CHECK(frame.method == "m" + std::to_string(i));
        CHECK((frame.header.flags & wire::kFlagMetadata) == 0);
        CHECK(frame.text.size() == wire::encode_names("s", "m1").size());
        wire::FrameHeader reply;
        reply.type = wire::FrameType::kReply;
        reply.id = frame.header.id;
        peer.send(reply, {}, encode_value(1));
      }
      REQUIRE(sim.until([&] { return replies[0].done() && replies[1].done(); }));
      CHECK(replies[0].status().ok());
      CHECK(replies[1].status().ok());
      CHECK(peer.channel->counters().queued_frames == 0);
    }
  }
}

TEST_CASE("malformed metadata from a peer resets the connection") {
  SimFixture sim(kSeed);
  Stranger peer(sim);
  peer.hello(wire::kOptionalFeatures);
  wire::FrameHeader request;
  request.type = wire::FrameType::kRequest;
  request.flags = wire::kFlagMetadata;
  request.id = kId;
  ByteVector text = wire::encode_names("s", "m");
  text.insert(text.end(), {std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0}});
  peer.send(request, text, {});
  peer.expect_reset(Code::kCorrupt);
}

TEST_CASE("times that nobody asked for reset the connection, and lies about them stay within the total") {
  for (const bool asked : {false, true}) {
    CAPTURE(asked);
    SimFixture sim(kSeed);
    Stranger peer(sim);
    peer.hello(wire::kOptionalFeatures);
    const auto context = asked ? timed() : with_metadata("k", "v");
    Reply reply;
    peer.channel->call({"s", "m", sim.now() + 60s, context}, {}, reply.handler());
    wire::FrameHeader answer;
    answer.type = wire::FrameType::kReply;
    answer.flags = wire::kFlagTiming;
    answer.id = peer.wait(1).id;
    const wire::ServerTimes times{~std::uint64_t{0}, 5};
    peer.send(answer, std::as_bytes(std::span(&times, 1)), encode_value(1));
    REQUIRE(sim.until([&] { return reply.done(); }));
    if (!asked) {
      peer.expect_reset(Code::kCorrupt);
      continue;
    }
    CHECK(reply.status().ok());
    CHECK(context->timing.queue == context->timing.total);
    check_sum(context->timing);
  }
}
