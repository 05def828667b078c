// Proofs of keys on a channel, and the end of a channel that its owner expels the peer from.
#include <doctest/doctest.h>

#include "rpc/codec/frame.h"
#include "tests/rpc/forger.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

wire::Hello hello_with(std::uint64_t features) {
  return {.max_requests = 100, .optional_features = features, .max_payload_bytes = 1 << 20};
}

const Status kReason(Code::kUnauthenticated, "its key was revoked");

}  // namespace

TEST_CASE("a proof goes as it is to a peer that takes proofs, and to no other one") {
  for (const bool takes : {true, false}) {
    CAPTURE(takes);
    SimFixture sim(kSeed);
    Forger forger(sim);
    CHECK_FALSE(forger.channel->takes_proofs());
    forger.hello(hello_with(takes ? wire::kFeatureProofs : 0));
    forger.send(Forger::header(FrameType::kPing, kId));
    CHECK(forger.wait(1).type == FrameType::kPong);
    CHECK(forger.channel->takes_proofs() == takes);
    forger.channel->prove(as_bytes("a proof"));
    forger.send(Forger::header(FrameType::kPing, kId));
    if (takes) CHECK(as_text(forger.frame(2).body) == "a proof");
    CHECK(forger.wait(takes ? 3 : 2).type == FrameType::kPong);
  }
}

TEST_CASE("a proof overtakes what waits for the peer's credits") {
  SimFixture sim(kSeed);
  std::vector<std::unique_ptr<Reply>> replies;  // outlive the channel
  Forger forger(sim, {.peer_name = "forger"}, {.base_credits = 4, .max_credits = 4});
  forger.hello(hello_with(wire::kFeatureProofs));
  forger.send(Forger::header(FrameType::kPing, kId));
  CHECK(forger.wait(1).type == FrameType::kPong);
  while (forger.channel->counters().queued_frames < 10) {
    replies.push_back(std::make_unique<Reply>());
    forger.channel->call({"s", "t", kNever}, {}, replies.back()->handler());
  }
  const std::size_t asked = replies.size();
  forger.channel->prove(as_bytes("first"));
  forger.channel->prove(as_bytes("second"));
  REQUIRE(sim.until([&] { return forger.received.messages.size() == 2 + asked + 2; }));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < forger.received.messages.size(); ++i)
    if (forger.frame(i).header.type == FrameType::kProof) places.push_back(i);
  REQUIRE(places.size() == 2);
  CHECK(places[1] < 2 + asked - 5);
  CHECK(as_text(forger.frame(places[0]).body) == "first");
  CHECK(as_text(forger.frame(places[1]).body) == "second");
}

TEST_CASE("who expels a peer tells it why, and what is in flight fails with the same") {
  for (const bool takes : {true, false}) {
    CAPTURE(takes);
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello(hello_with(takes ? wire::kFeatureProofs : 0));
    forger.send(Forger::header(FrameType::kPing, kId));
    CHECK(forger.wait(1).type == FrameType::kPong);
    Reply before;
    forger.channel->call({"any", "thing", kNever}, {}, before.handler());
    CHECK(forger.wait(2).type == FrameType::kRequest);
    forger.channel->expel(kReason);
    Reply after;
    forger.channel->call({"any", "thing", kNever}, {}, after.handler());
    if (takes) {
      const wire::Frame told = forger.frame(3);
      CHECK(told.header.type == FrameType::kProof);
      CHECK(told.header.code == static_cast<std::uint8_t>(Code::kUnauthenticated));
      CHECK(wire::error_text_of(told) == "its key was revoked");
    }
    forger.expect_reset(Code::kUnauthenticated);
    for (Reply* reply : {&before, &after}) {
      CHECK(reply->status().code() == Code::kUnavailable);
      CHECK(reply->status().text() == "forger: unauthenticated: its key was revoked");
    }
    CHECK(before.status().maybe_executed());
    CHECK_FALSE(after.status().maybe_executed());
  }
}

TEST_CASE("an expelled peer that does nothing about it is cut off in time") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello(hello_with(wire::kFeatureProofs));
  forger.send(Forger::header(FrameType::kPing, kId));
  CHECK(forger.wait(1).type == FrameType::kPong);
  const TimePoint began = sim.now();
  forger.channel->expel(kReason);
  forger.expect_reset(Code::kUnauthenticated);
  CHECK(sim.now() - began <= rpc::limits::kExpelBound + 1s);
}

TEST_CASE("a side that is expelled ends with the reason that it was told") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello(hello_with(wire::kFeatureProofs));
  FrameHeader header = Forger::header(FrameType::kProof, 0);
  header.code = static_cast<std::uint8_t>(Code::kUnauthenticated);
  forger.send(header, as_bytes("your key was revoked"));
  forger.expect_reset(Code::kUnauthenticated);
  CHECK(forger.owner.reason.text().find("it ended the connection: your key was revoked") !=
        std::string::npos);
}

TEST_CASE("a proof on a channel whose owner has no keys ends it") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello(hello_with(wire::kFeatureProofs));
  forger.send(Forger::header(FrameType::kProof, 0), {}, as_bytes("a proof"));
  forger.expect_reset(Code::kCorrupt);
}
