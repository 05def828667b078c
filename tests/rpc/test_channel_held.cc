// A channel that its owner holds until it is ready for the peer's requests.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

LinkOptions with_b_held(LinkOptions options = {}) {
  options.b.held = true;
  return options;
}

}  // namespace

TEST_CASE("a held channel says hello and pings; all other frames wait for resume()") {
  SimFixture sim(kSeed);
  Link link(sim, with_b_held());  // has waited for both hellos
  Reply sum, message;
  Done sent, ours, theirs;
  Outcome<transport::RemoteRegion> found;
  link.a().lookup_region("weights", link.in(20s), found.handler());
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(2, 3), sum.handler());
  link.a().send(7, pattern(10), link.in(20s), sent.handler());
  link.a().ping(link.in(5s), ours.handler());
  link.b().ping(link.in(5s), theirs.handler());
  REQUIRE(link.until([&] { return ours.done() && theirs.done(); }));
  CHECK(ours.status.ok());
  CHECK(theirs.status.ok());
  sim.settle();
  CHECK_FALSE(found.done());
  CHECK_FALSE(sum.done());
  CHECK_FALSE(sent.done());
  CHECK_FALSE(link.b().idle());
  CHECK(link.b().counters().requests == 0);

  ByteVector memory = pattern(5000);
  auto region = sim.device(1).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  link.owners[1].regions["weights"] = region->describe();
  link.b().resume();
  CHECK(link.b().counters().requests == 0);  // the frames are handled in a later turn
  REQUIRE(link.until([&] { return found.done() && sum.done() && sent.done(); }));
  CHECK(found.value->has_value());
  CHECK(value_of<int>(*sum.value) == 5);
  CHECK(sent.status.ok());
  link.b().recv(7, link.in(20s), message.receiver());
  REQUIRE(link.until([&] { return message.done(); }));
  CHECK(message.value->has_value());
  CHECK(value_of<int>(link.call("add", 3, 4)) == 7);
  CHECK(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("a held channel keeps the credits of what waits; nothing is lost or out of order") {
  SimFixture sim(kSeed);
  std::vector<std::unique_ptr<Done>> sent;  // outlive the channel
  Link link(sim, with_b_held(with_credits(4, 4)));
  for (std::uint64_t i = 0; i < 20; ++i) {
    sent.push_back(std::make_unique<Done>());
    link.a().send(1, pattern(10, i), link.in(20s), sent.back()->handler());
  }
  sim.settle();
  CHECK(link.a().counters().queued_frames >= 10);
  CHECK(std::none_of(sent.begin(), sent.end(), [](const auto& each) { return each->done(); }));
  link.b().resume();
  for (std::uint64_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    Reply message;
    link.b().recv(1, link.in(20s), message.receiver());
    REQUIRE(link.until([&] { return message.done(); }));
    REQUIRE(message.value->has_value());
    const ByteVector expected = pattern(10, i);
    CHECK(std::equal(expected.begin(), expected.end(), (*message.value)->bytes().begin(),
                     (*message.value)->bytes().end()));
  }
  REQUIRE(link.until(
      [&] { return std::all_of(sent.begin(), sent.end(), [](const auto& each) { return each->done(); }); }));
}

TEST_CASE("the time in a held channel counts against the deadline of a request") {
  SimFixture sim(kSeed);
  Reply reply, endless;  // outlive the channel
  Link link(sim, with_b_held());
  const TimePoint deadline = link.in(20s);
  link.a().call({"test", "hold", deadline}, pattern(1), reply.handler());
  link.a().call({"test", "hold", kNever}, pattern(1), endless.handler());
  sim.pass(5s);
  link.b().resume();
  REQUIRE(link.until([&] { return link.held.size() == 2; }));
  CHECK(link.held[0].info().deadline >= deadline);
  CHECK(link.held[0].info().deadline < deadline + 1s);
  CHECK(link.held[1].info().deadline == kNever);
  link.held.clear();  // answers both
  REQUIRE(link.until([&] { return reply.done() && endless.done(); }));
}

TEST_CASE("closing a held channel refuses the requests that wait") {
  SimFixture sim(kSeed);
  Link link(sim, with_b_held());
  Reply refused;
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), refused.handler());
  sim.settle();
  CHECK_FALSE(refused.done());
  link.b().close(10s);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  REQUIRE(refused.done());
  CHECK(refused.status().code() == Code::kUnavailable);
  CHECK_FALSE(refused.status().maybe_executed());
  CHECK(link.owners[1].reason.ok());
}

TEST_CASE("a peer that closes waits for a held channel, up to its bound") {
  SimFixture sim(kSeed);
  Link link(sim, with_b_held());
  const TimePoint start = sim.now();
  link.a().close(1s);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(sim.now() - start >= 1s);
  CHECK(sim.now() - start < 2s);
}

TEST_CASE("frames that wait in a held channel are dropped when the connection ends") {
  SimFixture sim(kSeed);
  Link link(sim, with_b_held());
  Reply lost;
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), lost.handler());
  sim.settle();
  link.a().reset(Status(Code::kUnavailable, "gone"));
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(lost.done());
  link.b().resume();
  sim.settle();
  CHECK(link.b().counters().requests == 0);
}
