#include <doctest/doctest.h>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

// One of everything that can wait on a channel.
struct Everything {
  Reply small, large, unsent, receive;
  Done message, ping;
  Outcome<transport::RemoteRegion> region;

  void start(Link& link, Channel& channel) {
    channel.call({"test", "hold", link.in(60s)}, encode_arguments(), small.handler());
    channel.call({"test", "hold", link.in(60s)}, pattern(100'000), large.handler());
    channel.recv(3, link.in(60s), receive.receiver());
    channel.send(4, pattern(50'000), link.in(60s), message.handler());
    channel.ping(link.in(60s), ping.handler());
    channel.lookup_region("none", link.in(60s), region.handler());
  }
  [[nodiscard]] bool done() const {
    return small.done() && large.done() && receive.done() && message.done() && ping.done() && region.done();
  }
  void check_once() const {
    CHECK(small.calls == 1);
    CHECK(large.calls == 1);
    CHECK(receive.calls == 1);
    CHECK(message.calls == 1);
    CHECK(ping.calls == 1);
    CHECK(region.calls == 1);
  }
};

}  // namespace

TEST_CASE("a lost connection ends everything once, with the peer's name and the cause") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    Link link(sim);
    Everything ours, theirs;
    ours.start(link, link.a());
    theirs.start(link, link.b());
    sim.pass(std::chrono::microseconds(10 * seed));
    sim.cut(link.pair);
    REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
    CHECK(ours.done());
    CHECK(theirs.done());
    ours.check_once();
    theirs.check_once();
    CHECK(ours.small.status().code() == Code::kUnavailable);
    CHECK(ours.small.status().text().find("b: ") == 0);
    CHECK(ours.small.status().text().find("lost") != std::string::npos);
    CHECK(ours.small.status().maybe_executed());
    CHECK(link.owners[0].reason.code() == Code::kUnavailable);
    CHECK(link.a().closed());
    CHECK(link.a().counters().lent_buffers == 0);
    CHECK(link.a().counters().calls_in_flight == 0);
    CHECK(link.a().counters().queued_frames == 0);
    // What comes later is refused, and what handlers answer now is dropped.
    Reply after;
    link.a().call({"test", "add", link.in(5s)}, encode_arguments(1, 2), after.handler());
    REQUIRE(link.until([&] { return after.done(); }));
    CHECK(after.status().code() == Code::kUnavailable);
    CHECK(!after.status().maybe_executed());
    for (Request& request : link.held) request.reply(encode_value(1));
    link.held.clear();
    sim.settle();
    ours.check_once();
  }
}

TEST_CASE("calls that never left are not executed when the connection is lost") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(1, 1));
  sim.freeze_b(link.pair);
  Reply sent, queued;
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), sent.handler());
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), queued.handler());
  sim.pass(1ms);
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  CHECK(sent.status().maybe_executed());
  CHECK(!queued.status().maybe_executed());
}

TEST_CASE("a graceful close finishes what is in flight on both sides and refuses the rest") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply ours, theirs, receive, after, after_theirs;
  link.a().call({"test", "hold", link.in(20s)}, pattern(100'000), ours.handler());
  link.b().call({"test", "hold", link.in(20s)}, encode_arguments(), theirs.handler());
  link.a().recv(1, link.in(60s), receive.receiver());
  REQUIRE(link.until([&] { return link.held.size() == 2; }));
  link.a().close(10s);
  CHECK(!link.a().ready());
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), after.handler());
  REQUIRE(link.until([&] { return after.done(); }));
  CHECK(after.status().code() == Code::kCancelled);
  CHECK(!after.status().maybe_executed());
  REQUIRE(link.until([&] { return !link.b().ready(); }));
  link.b().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), after_theirs.handler());
  REQUIRE(link.until([&] { return after_theirs.done(); }));
  CHECK(after_theirs.status().code() == Code::kUnavailable);
  CHECK(!after_theirs.status().maybe_executed());
  CHECK(!ours.done());
  CHECK(!theirs.done());
  for (Request& request : link.held) request.reply(pattern(70'000));
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(ours.value->has_value());
  CHECK(theirs.value->has_value());
  CHECK(receive.status().code() == Code::kCancelled);
  CHECK(link.owners[0].reason.ok());
  CHECK(link.owners[1].reason.code() == Code::kUnavailable);
  CHECK(link.owners[1].reason.text() == "a closed the connection");
}

TEST_CASE("requests that cross a close are refused unexecuted, never lost") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    Link link(sim);
    Reply crossing;
    link.b().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), crossing.handler());
    sim.pass(std::chrono::microseconds(seed));
    link.a().close(10s);
    REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
    REQUIRE(crossing.done());
    if (crossing.value->has_value()) continue;
    CHECK(crossing.status().code() == Code::kUnavailable);
    CHECK(!crossing.status().maybe_executed());
  }
}

TEST_CASE("both close at once") {
  SimFixture sim(kSeed);
  Link link(sim);
  link.a().close(10s);
  link.b().close(10s);
  link.a().close(10s);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(link.owners[0].reason.ok());
  CHECK(link.owners[1].reason.ok());
}

TEST_CASE("a close that is not drained in time cancels what is left") {
  SimFixture sim(kSeed);
  Link link(sim);
  Everything left;
  left.start(link, link.a());
  REQUIRE(link.until([&] { return link.held.size() == 2; }));
  const TimePoint start = sim.now();
  link.a().close(1s);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  CHECK(sim.now() - start < 2s);
  CHECK(sim.now() - start >= 1s);
  left.check_once();
  CHECK(left.small.status().code() == Code::kCancelled);
  CHECK(left.small.status().maybe_executed());
  CHECK(left.ping.status.ok());
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  link.held.clear();
}

TEST_CASE("a close does not wait for a peer that is frozen longer than its bound") {
  SimFixture sim(kSeed);
  Link link(sim);
  sim.freeze_b(link.pair);
  const TimePoint start = sim.now();
  link.a().close(2s);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  CHECK(sim.now() - start < 3s);
}

TEST_CASE("a reset tells both sides why") {
  SimFixture sim(kSeed);
  Link link(sim);
  Everything left;
  left.start(link, link.a());
  link.a().reset(Status(Code::kAborted, "another instance answers now"));
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  left.check_once();
  CHECK(left.small.status().code() == Code::kUnavailable);
  CHECK(left.small.status().text() == "b: aborted: another instance answers now");
  CHECK(link.owners[1].reason.code() == Code::kUnavailable);
}

TEST_CASE("destroying a channel ends everything, without a word to the owner") {
  SimFixture sim(kSeed);
  Link link(sim);
  Everything left;
  left.start(link, link.a());
  sim.pass(30us);
  link.channels[0].reset();
  CHECK(left.done());
  left.check_once();
  CHECK(link.owners[0].closed == 0);
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  for (Request& request : link.held) request.reply(encode_value(1));
}

TEST_CASE("destroying both channels in the middle of large transfers, at any moment") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    Link link(sim);
    Everything ours, theirs;
    ours.start(link, link.a());
    theirs.start(link, link.b());
    sim.pass(std::chrono::microseconds(20 * seed));
    link.channels[seed % 2].reset();
    sim.pass(std::chrono::microseconds(seed));
    link.channels[1 - seed % 2].reset();
    CHECK(ours.done());
    CHECK(theirs.done());
    ours.check_once();
    theirs.check_once();
    link.held.clear();
  }
}

TEST_CASE("answers after the channel is gone are dropped") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  link.a().call({"test", "hold", link.in(60s)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.channels[1].reset();
  link.held[0].reply(pattern(100'000));
  link.held.clear();
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  CHECK(reply.calls == 1);
  CHECK(reply.status().code() == Code::kUnavailable);
}

TEST_CASE("messages that had come can be received after the connection is lost") {
  SimFixture sim(kSeed);
  Link link(sim);
  Done sent;
  link.a().send(1, pattern(10), link.in(20s), sent.handler());
  REQUIRE(link.until([&] { return sent.done(); }));
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  Reply there, none;
  link.b().recv(1, link.in(20s), there.receiver());
  link.b().recv(1, link.in(20s), none.receiver());
  REQUIRE(link.until([&] { return there.done() && none.done(); }));
  CHECK(there.value->has_value());
  CHECK(none.status().code() == Code::kUnavailable);
}

TEST_CASE("a peer that takes nothing for too long is reset, not waited for") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.port.base_credits = 64;  // more than the simulated link holds
  Link link(sim, options);
  sim.freeze_b(link.pair);
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < 200; ++i) {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"test", "raw", link.in(300s)}, pattern(8000), replies.back()->handler());
  }
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  for (const auto& reply : replies) {
    CHECK(reply->calls == 1);
    CHECK(reply->status().code() == Code::kUnavailable);
  }
}

TEST_CASE("two agents that reconnect start anew") {
  SimFixture sim(kSeed);
  Link link(sim);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  // connect() opens no ports: the hosts are the same.
  link.connect();
  CHECK(value_of<int>(link.call("add", 3, 4)) == 7);
}
