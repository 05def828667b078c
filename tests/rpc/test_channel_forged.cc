#include <doctest/doctest.h>

#include "base/str.h"
#include "rpc/codec/frame.h"
#include "tests/rpc/forger.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

TEST_CASE("the names of a method get a number, which the reply tells, and calls by number work") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  const ByteVector names = wire::encode_names("s", "one");
  forger.send(Forger::header(FrameType::kRequest, kId), names, encode_arguments());
  const FrameHeader first = forger.wait(1);
  CHECK(first.type == FrameType::kReply);
  CHECK(first.id == kId);
  CHECK(first.method == 1);
  FrameHeader by_number = Forger::header(FrameType::kRequest, kId + 1);
  by_number.method = 1;
  by_number.value = wire::kNoDeadline;
  forger.send(by_number, {}, encode_arguments());
  const FrameHeader second = forger.wait(2);
  CHECK(second.id == kId + 1);
  CHECK(second.code == 0);
  // Names that are not served get no number.
  forger.send(Forger::header(FrameType::kRequest, kId), wire::encode_names("s", "two"), encode_arguments());
  const FrameHeader third = forger.wait(3);
  CHECK(third.code == static_cast<std::uint8_t>(Code::kNotFound));
  CHECK(third.method == 0);
  REQUIRE(forger.server.remove("s").ok());
  by_number.id = kId + 2;
  forger.send(by_number, {}, encode_arguments());
  CHECK(forger.wait(4).code == static_cast<std::uint8_t>(Code::kNotFound));
}

TEST_CASE("a cancel of what is not there is no error, and a peer without the feature gets none") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello({.max_requests = 100, .optional_features = 0, .max_payload_bytes = 1 << 20});
  for (const std::uint64_t id : {kId, kId + 1, std::uint64_t{7} << 32 | 0xffffffff})
    forger.send(Forger::header(FrameType::kCancel, id));
  forger.send(Forger::header(FrameType::kPing, kId));
  CHECK(forger.wait(1).type == FrameType::kPong);
  Reply reply;
  const Ticket ticket =
      forger.channel->call({"any", "thing", forger.fixture.now() + 10s}, {}, reply.handler());
  CHECK(forger.wait(2).type == FrameType::kRequest);
  forger.channel->cancel(ticket);
  forger.send(Forger::header(FrameType::kPing, kId));
  CHECK(forger.wait(3).type == FrameType::kPong);
  CHECK(reply.status().code() == Code::kCancelled);
}

TEST_CASE("a peer says in its hello whether its notifications leave credits to messages") {
  for (const std::uint64_t features :
       {wire::kOptionalFeatures & ~wire::kFeatureMessageCredits, std::uint64_t{0}, wire::kOptionalFeatures}) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello({.max_requests = 100, .optional_features = features, .max_payload_bytes = 1 << 20});
    forger.send(Forger::header(FrameType::kPing, kId));
    CHECK(forger.wait(1).type == FrameType::kPong);
    CHECK(forger.channel->peer_leaves_message_credits() == (features == wire::kOptionalFeatures));
  }
}

TEST_CASE("the first frame must be a hello of our version, and only the first") {
  {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.send(Forger::header(FrameType::kPing, kId));
    forger.expect_reset(Code::kCorrupt);
  }
  {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello();
    forger.hello();
    forger.expect_reset(Code::kCorrupt);
  }
  {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello({.major = wire::kProtocolMajor + 1, .max_requests = 1, .max_payload_bytes = 1});
    forger.expect_reset(Code::kUnimplemented);
    CHECK(forger.owner.ready == 0);
  }
  {
    SimFixture sim(kSeed);
    Forger forger(sim);
    const std::uint64_t unknown = std::uint64_t{1} << 63;
    forger.hello({.max_requests = 1, .required_features = unknown, .max_payload_bytes = 1});
    forger.expect_reset(Code::kUnimplemented);
  }
  {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello({.max_requests = 1, .optional_features = ~std::uint64_t{0}, .max_payload_bytes = 1});
    forger.send(Forger::header(FrameType::kPing, kId));
    CHECK(forger.wait(1).type == FrameType::kPong);
    CHECK(forger.owner.ready == 1);
  }
}

TEST_CASE("what no peer of ours sends resets the connection") {
  FrameHeader unknown_method = Forger::header(FrameType::kRequest, kId);
  unknown_method.method = 1;
  FrameHeader bad_offer = Forger::header(FrameType::kUserMessage, kId);
  bad_offer.flags = wire::kFlagRendezvous;
  const ByteVector bad_names = wire::encode_names("s", "a\nb");
  struct Case {
    FrameHeader header;
    Bytes text;
    Bytes body;
  };
  const Case cases[] = {{unknown_method, {}, {}},
                        {bad_offer, {}, as_bytes("no offer")},
                        {Forger::header(FrameType::kRequest, kId), bad_names, {}},
                        {Forger::header(FrameType::kCancel, 0), {}, {}},
                        {Forger::header(FrameType::kCancel, kId), {}, as_bytes("a body")},
                        {Forger::header(static_cast<FrameType>(77), kId), {}, {}}};
  for (const Case& each : cases) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello();
    forger.send(each.header, each.text, each.body);
    forger.expect_reset(Code::kCorrupt);
  }
}

TEST_CASE("answers that nobody waits for are counted, answers of another kind reset") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  forger.send(Forger::header(FrameType::kReply, kId));
  forger.send(Forger::header(FrameType::kUserAck, kId));
  forger.send(Forger::header(FrameType::kPong, kId));
  forger.send(Forger::header(FrameType::kRelease, kId));
  REQUIRE(sim.until([&] { return forger.channel->counters().stale_replies == 3; }));
  Reply reply;
  forger.channel->call({"x", "y", sim.now() + 20s}, {}, reply.handler());
  const FrameHeader request = forger.wait(1);
  forger.send(Forger::header(FrameType::kPong, request.id));
  forger.expect_reset(Code::kCorrupt);
  CHECK(reply.calls == 1);
}

TEST_CASE("a second reply to one call is stale") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  Reply reply;
  forger.channel->call({"x", "y", sim.now() + 20s}, {}, reply.handler());
  const FrameHeader request = forger.wait(1);
  for (int i = 0; i < 3; ++i) forger.send(Forger::header(FrameType::kReply, request.id), {}, encode_value(i));
  REQUIRE(sim.until([&] { return forger.channel->counters().stale_replies == 2; }));
  CHECK(reply.calls == 1);
  CHECK(value_of<int>(*reply.value) == 0);
}

TEST_CASE("offers of memory that is not there fail their call or message, and nothing else") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  ByteVector memory(100);
  auto region = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  wire::Offer offer;
  offer.lease = {9, 9};
  offer.region = region->describe();
  offer.length_bytes = 100;
  REQUIRE(region->close().ok());
  FrameHeader message = Forger::header(FrameType::kUserMessage, kId);
  message.flags = wire::kFlagRendezvous;
  forger.send(message, {}, offer.encode());
  const FrameHeader release = forger.wait(1);
  CHECK(release.type == FrameType::kRelease);
  CHECK(release.id == offer.lease.packed());
  const FrameHeader ack = forger.wait(2);
  CHECK(ack.type == FrameType::kUserAck);
  CHECK(ack.code != 0);
  FrameHeader request = Forger::header(FrameType::kRequest, kId);
  request.flags = wire::kFlagRendezvous;
  request.value = wire::kNoDeadline;
  forger.send(request, wire::encode_names("s", "raw"), offer.encode());
  CHECK(forger.wait(3).type == FrameType::kRelease);
  const FrameHeader reply = forger.wait(4);
  CHECK(reply.code != 0);
  CHECK((reply.flags & wire::kFlagMaybeExecuted) == 0);
  CHECK(!forger.channel->closed());
  CHECK(forger.channel->idle());
}

TEST_CASE("an announced length costs no memory before its bytes come") {
  SimFixture sim(kSeed);
  Forger forger(sim, {.peer_name = "forger", .max_payload_bytes = std::uint64_t{1} << 39});
  forger.hello();
  wire::Offer offer;
  offer.lease = {9, 9};
  offer.region.id = {1, 1};
  offer.region.rights = transport::Rights::kRemoteRead;
  offer.region.key = transport::PackedKey(as_bytes("eight by"));
  FrameHeader message = Forger::header(FrameType::kUserMessage, kId);
  message.flags = wire::kFlagRendezvous;
  std::size_t answers = 1;
  for (const std::uint64_t length :
       {std::uint64_t{1} << 62, std::uint64_t{1} << (kSanitized ? 31 : 38), std::uint64_t{1} << 30}) {
    offer.length_bytes = offer.region.length_bytes = length;
    forger.send(message, {}, offer.encode());
    CHECK(forger.wait(answers++).type == FrameType::kRelease);
    CHECK(forger.wait(answers++).code != 0);
  }
  CHECK(!forger.channel->closed());
}

TEST_CASE("a region reply that is none resets") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  Outcome<transport::RemoteRegion> region;
  forger.channel->lookup_region("r", sim.now() + 20s, region.handler());
  const FrameHeader lookup = forger.wait(1);
  forger.send(Forger::header(FrameType::kRegionReply, lookup.id), {}, as_bytes("nonsense"));
  forger.expect_reset(Code::kCorrupt);
  CHECK(region.calls == 1);
  CHECK(region.status().code() == Code::kUnavailable);
}

TEST_CASE("a request after closing resets") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  forger.send(Forger::header(FrameType::kClosing, 0));
  forger.send(Forger::header(FrameType::kPing, kId));
  REQUIRE(sim.until([&] { return forger.owner.closed == 1; }));
  CHECK(forger.owner.reason.code() == Code::kUnavailable);
}

TEST_CASE("a peer that says closing and never closes is closed") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  Reply reply;
  forger.channel->call({"x", "y", sim.now() + 50s}, {}, reply.handler());
  CHECK(forger.wait(1).type == FrameType::kRequest);
  forger.send(Forger::header(FrameType::kClosing, 0));
  CHECK(forger.wait(2).type == FrameType::kClosing);
  REQUIRE(sim.until([&] { return forger.owner.closed == 1; }));
  CHECK(reply.status().code() == Code::kUnavailable);
  CHECK(forger.owner.reason.text() == "forger closed the connection");
}

TEST_CASE("a peer that asks and never takes the answers is reset, at a bound") {
  SimFixture sim(kSeed);
  Forger forger(sim, {.peer_name = "forger", .max_calls = 100});
  forger.received.hold = true;  // gives no slot back, so no credit
  forger.hello();
  for (int i = 0; i < 5000 && forger.owner.closed == 0; ++i) {
    forger.send(Forger::header(FrameType::kPing, kId));
    sim.step();
    CHECK(forger.channel->counters().queued_frames <= 400);
  }
  forger.expect_reset(Code::kResourceExhausted);
  forger.received.held.clear();
}

TEST_CASE("random frames after the hello end in a reset at worst") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    Forger forger(sim);
    Rng rng(seed);
    forger.hello();
    Reply reply;
    forger.channel->call({"x", "y", sim.now() + 1s}, pattern(20'000), reply.handler());
    for (int i = 0; i < 30 && forger.owner.closed == 0; ++i) {
      FrameHeader header;
      header.type = static_cast<FrameType>(rng.below(18));
      header.flags = static_cast<std::uint8_t>(rng.below(3) | (rng.chance(1, 3) ? wire::kFlagStream : 0) |
                                               (rng.chance(1, 3) ? wire::kFlagFromHandler : 0));
      header.code = rng.chance(1, 3) ? static_cast<std::uint8_t>(rng.below(20)) : 0;
      header.method = static_cast<std::uint32_t>(rng.below(2));
      header.id = rng.chance(1, 2) ? Handle{0, 1}.packed()
                                   : Handle{static_cast<std::uint32_t>(rng.below(3)), 1}.packed();
      header.value = rng.chance(1, 2) ? 0 : rng.next();
      ByteVector text = rng.chance(1, 2) ? wire::encode_names("s", "raw") : ByteVector{};
      ByteVector body = pattern(rng.below(150), rng.next());
      if (rng.chance(1, 3)) {
        wire::Offer offer;
        offer.lease = {1, 1};
        offer.length_bytes = 1 + rng.below(1000);
        offer.region.id = {static_cast<std::uint32_t>(rng.below(3)), 1};
        offer.region.length_bytes = 1000;
        offer.region.rights = transport::Rights::kRemoteRead;
        offer.region.key = transport::PackedKey(as_bytes("eight by"));
        body = offer.encode();
      }
      forger.send(header, text, body);
    }
    sim.pass(3s);
    CHECK(reply.calls == 1);
  }
}
