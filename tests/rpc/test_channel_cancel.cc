#include <doctest/doctest.h>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/support/settings.h"

// Cancelled calls, as their handlers see them.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

// A call of "hold" that side 1 has and has not answered.
struct Held {
  explicit Held(Link& link, ByteVector body = {}) {
    ticket = link.a().call({"test", "hold", link.in(60s)}, std::move(body), reply.handler());
    REQUIRE(link.until([&] { return link.held.size() == 1; }));
  }
  Reply reply;
  Ticket ticket;
};

void check_clean(Link& link) {
  link.held.clear();
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  CHECK(link.b().counters().lent_buffers == 0);
  CHECK(link.servers[1]->counters().running == 0);
}

}  // namespace

TEST_CASE("a handler sees that its caller has cancelled, and its answer is dropped") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Held held(link);
  CHECK_FALSE(link.held[0].cancelled());
  link.a().cancel(held.ticket);
  REQUIRE(link.until([&] { return link.held[0].cancelled(); }));
  CHECK(held.reply.status().code() == Code::kCancelled);
  CHECK(held.reply.status().maybe_executed());
  link.held[0].reply(pattern(100'000));  // which is not even offered
  REQUIRE(link.until([&] { return link.b().idle(); }));
  CHECK(held.reply.calls == 1);
  check_clean(link);
}

TEST_CASE("who asked to be told of a cancel is told once, and at once if it has come") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Held held(link);
  int told = 0;
  link.held[0].on_cancel([&] { ++told; });
  link.held[0].on_cancel([&] { ++told; });
  REQUIRE(link.until([&] { return link.a().counters().calls_in_flight == 1; }));
  CHECK(told == 0);
  link.a().cancel(held.ticket);
  REQUIRE(link.until([&] { return told == 2; }));
  link.held[0].on_cancel([&] { ++told; });
  CHECK(told == 3);
  check_clean(link);
  CHECK(told == 3);
}

TEST_CASE("an answered request is not cancelled any more") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Held held(link);
  int told = 0;
  link.held[0].on_cancel([&] { ++told; });
  link.held[0].reply(encode_value(1));
  link.held.clear();
  REQUIRE(link.until([&] { return held.reply.done(); }));
  link.a().cancel(held.ticket);
  link.channels[0].reset();
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  CHECK(told == 0);
}

TEST_CASE("a lost connection cancels what its caller asked") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Held held(link);
  int told = 0;
  link.held[0].on_cancel([&] { ++told; });
  link.a().reset(Status(Code::kUnavailable, "gone"));
  REQUIRE(link.until([&] { return told == 1; }));
  CHECK(link.held[0].cancelled());
  link.held.clear();
}

TEST_CASE("a request is cancelled once its deadline has passed, of which no frame tells") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  link.a().call({"test", "hold", link.in(50ms)}, {}, reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  CHECK_FALSE(link.held[0].cancelled());
  REQUIRE(link.until([&] { return reply.done(); }));
  REQUIRE(link.until([&] { return link.held[0].cancelled(); }));
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  check_clean(link);
}

TEST_CASE("a large request that is cancelled while it is read does not reach its handler") {
  const std::uint64_t end = kSeed + static_cast<std::uint64_t>(test::scaled(20));
  for (std::uint64_t seed = kSeed; seed < end; ++seed) {
    CAPTURE(seed);
    SimFixture sim(seed);
    Link link(sim);
    Reply reply;
    const Ticket ticket = link.a().call({"test", "hold", link.in(60s)}, pattern(40 << 20), reply.handler());
    REQUIRE(link.until([&] { return link.b().counters().requests == 1; }));
    REQUIRE(link.held.empty());
    link.a().cancel(ticket);
    REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
    CHECK(link.held.empty());
    CHECK(reply.status().code() == Code::kCancelled);
    check_clean(link);
  }
}

TEST_CASE("nothing is left of thousands of cancelled calls, wherever they were") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(4, 16));
  Rng rng(kSeed);
  int told = 0;
  const int rounds = test::scaled(500);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t before = link.b().counters().requests;
    std::vector<std::unique_ptr<Reply>> replies;
    std::vector<Ticket> tickets;
    for (int i = 0; i < 20; ++i) {
      replies.push_back(std::make_unique<Reply>());
      tickets.push_back(link.a().call({"test", rng.below(2) == 0 ? "hold" : "raw", link.in(60s)},
                                      pattern(rng.below(20'000)), replies.back()->handler()));
    }
    const std::uint64_t wanted = before + rng.below(20);
    REQUIRE(link.until([&] { return link.b().counters().requests >= wanted; }));
    for (Request& request : link.held) request.on_cancel([&] { ++told; });
    for (const Ticket ticket : tickets) link.a().cancel(ticket);
    REQUIRE(link.until([&] {
      return std::all_of(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); });
    }));
    link.held.clear();
  }
  CHECK(told > 0);
  // Requests that were on their way when they were cancelled still reach their handler.
  REQUIRE(link.until([&] {
    link.held.clear();
    return link.a().idle() && link.b().idle();
  }));
  check_clean(link);
}
