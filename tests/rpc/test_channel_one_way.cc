#include <doctest/doctest.h>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"

// One-way calls: the caller wants no answer.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

// Side 0 tells side 1; true: it has left.
Status tell(Link& link, std::string_view method, ByteVector body, Nanos within = 60s) {
  Done done;
  link.a().call_one_way({"test", method, link.in(within)}, {std::move(body)}, done.handler());
  CHECK(!done.done());
  REQUIRE(link.until([&] { return done.done(); }));
  CHECK(done.calls == 1);
  return done.status;
}

std::uint64_t failed(Link& link) { return link.a().counters().one_way_failed; }

// The first call of a method names it, and is answered.
void introduce(Link& link, std::string_view method) {
  REQUIRE(tell(link, method, {}).ok());
  REQUIRE(link.until([&] { return !link.held.empty(); }));
  link.held.back().reply(encode_value(None{}));
  link.held.clear();
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

}  // namespace

TEST_CASE("a one-way call ends when it has left, and its handler runs once") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (std::size_t i = 1; i <= 3; ++i) {  // by name, then by number
    REQUIRE(tell(link, "hold", pattern(100, i)).ok());
    REQUIRE(link.until([&] { return link.held.size() == i; }));
    CHECK(std::ranges::equal(link.held.back().body(), pattern(100, i)));
  }
  for (Request& request : link.held) request.reply(encode_value(1));
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.b().counters().requests == 3);
  CHECK(failed(link) == 0);
  CHECK(link.owners[0].one_way_failures.empty());
}

TEST_CASE("a one-way call that succeeds is not answered") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  const auto before = link.b().endpoint().counters().messages_sent;
  for (int i = 0; i < 10; ++i) REQUIRE(tell(link, "hold", {}).ok());
  REQUIRE(link.until([&] { return link.held.size() == 10; }));
  for (Request& request : link.held) request.reply(encode_value(1));
  link.held.clear();
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.b().endpoint().counters().messages_sent == before);
  CHECK(link.a().counters().calls_in_flight == 0);
  CHECK(link.a().counters().stale_replies == 0);
}

TEST_CASE("the failure of a one-way call is told to the owner, by name and by number") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (std::size_t i = 1; i <= 3; ++i) {
    REQUIRE(tell(link, "fail", encode_arguments(static_cast<int>(Code::kNotFound), "no such thing")).ok());
    REQUIRE(link.until([&] { return failed(link) == i; }));
    REQUIRE(link.owners[0].one_way_failures.size() == i);
    CHECK(link.owners[0].one_way_failures.back().code() == Code::kNotFound);
    CHECK(link.owners[0].one_way_failures.back().text() == "test.fail: no such thing");
    CHECK(link.owners[0].one_way_failures.back().maybe_executed());
  }
  REQUIRE(tell(link, "nothing of the kind", {}).ok());
  REQUIRE(link.until([&] { return failed(link) == 4; }));
  CHECK_FALSE(link.owners[0].one_way_failures.back().maybe_executed());
}

TEST_CASE("a large one-way call is read by its peer, which gives the memory back") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  REQUIRE(tell(link, "hold", pattern(3 << 20)).ok());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  CHECK(std::ranges::equal(link.held[0].body(), pattern(3 << 20)));
  link.held.clear();  // dropped: that is a failure
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().lent_buffers == 0);
  REQUIRE(link.until([&] { return failed(link) == 1; }));
}

TEST_CASE("who makes a one-way call and closes in good order loses none") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  std::vector<Done> told(5);
  for (Done& each : told)
    link.a().call_one_way({"test", "hold", link.in(60s)}, {pattern(200'000)}, each.handler());
  link.a().close(60s);
  REQUIRE(link.until([&] { return link.held.size() == 5; }));
  for (const Done& each : told) CHECK(each.status.ok());
  CHECK(link.owners[0].closed == 0);  // it waits for the handlers
  for (Request& request : link.held) request.reply(encode_value(1));
  link.held.clear();
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(link.owners[1].reason.ok() == false);
  CHECK(link.owners[0].reason.ok());
}

TEST_CASE("the handler of a one-way call does not see its caller go, only its deadline pass") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  REQUIRE(tell(link, "hold", {}, 1s).ok());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  int told = 0;
  link.held[0].on_cancel([&] { ++told; });
  link.a().reset(Status(Code::kUnavailable, "gone"));
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  CHECK_FALSE(link.held[0].cancelled());
  REQUIRE(link.until([&] { return link.held[0].cancelled(); }));
  CHECK(told == 0);
  link.held.clear();
}

TEST_CASE("a one-way call that has not left can be cancelled, and waits for no credit beyond its deadline") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(2, 2));
  introduce(link, "hold");
  // Requests that are held on the loop do not hold credits, so the loop of the receiver stands
  // still.
  std::vector<Done> told(64);
  Ticket last;
  for (Done& each : told)
    last = link.a().call_one_way({"test", "hold", link.in(60s)}, {pattern(64)}, each.handler());
  link.a().cancel(last);
  REQUIRE(link.until([&] { return std::ranges::all_of(told, &Done::done); }));
  CHECK(told.back().status.code() == Code::kCancelled);
  CHECK_FALSE(told.back().status.maybe_executed());
  REQUIRE(link.until([&] { return link.held.size() == 63; }));
  for (const auto& each : std::span(told).first(63)) CHECK(each.status.ok());
  Done late;
  link.a().call_one_way({"test", "hold", link.in(-1ns)}, {}, late.handler());
  REQUIRE(link.until([&] { return late.done(); }));
  CHECK(late.status.code() == Code::kDeadlineExceeded);
  for (Request& request : link.held) request.reply(encode_value(1));
  link.held.clear();
}

TEST_CASE("requests beyond those that a peer takes unanswered are refused, and the reports are bounded") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_calls = 8;
  Link link(sim, options);
  introduce(link, "hold");
  for (int i = 0; i < 20; ++i) REQUIRE(tell(link, "hold", {}).ok());
  REQUIRE(link.until([&] { return link.held.size() == 8 && failed(link) == 12; }));
  CHECK(link.owners[0].one_way_failures.back().code() == Code::kResourceExhausted);
  CHECK_FALSE(link.owners[0].one_way_failures.back().maybe_executed());
  link.held.clear();
  REQUIRE(link.until([&] { return failed(link) == 20; }));  // dropped
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
}

namespace {

AttachedBody attached(std::shared_ptr<ByteVector> bytes) {
  AttachedBody request = encode_attached_arguments(Attachment(*bytes, bytes));
  return request;
}

}  // namespace

TEST_CASE("a one-way call that lends attachments ends when its peer has read them, by name and by number") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    auto bytes = std::make_shared<ByteVector>(pattern(300'000, i));
    sim.freeze_b(link.pair);
    Done done;
    link.a().call_one_way({"test", "hold", link.in(60s)}, attached(bytes), done.handler());
    sim.pass(1s);
    CHECK(!done.done());
    sim.thaw_b(link.pair);
    REQUIRE(link.until([&] { return done.done(); }));
    CHECK(done.status.ok());
    CHECK(done.calls == 1);
    std::ranges::fill(*bytes, std::byte{0});  // the call has been sent, so these bytes are free
    REQUIRE(link.until([&] { return link.held.size() == 1; }));
    CHECK(std::ranges::equal(link.held[0].payload().attachments()[0].bytes(), pattern(300'000, i)));
    link.held[0].reply(encode_value(1));
    link.held.clear();
    REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  }
  CHECK(failed(link) == 0);
}

TEST_CASE(
    "a one-way call whose attachments are not read ends at its deadline, by a cancel, or with the link") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  sim.freeze_b(link.pair);
  std::array<Done, 3> told;
  std::array<Ticket, 3> tickets;
  for (std::size_t i = 0; i < 3; ++i) {
    const Nanos within = i == 0 ? Nanos(1s) : Nanos(600s);
    tickets[i] =
        link.a().call_one_way({"test", "hold", link.in(within)},
                              attached(std::make_shared<ByteVector>(pattern(300'000))), told[i].handler());
  }
  REQUIRE(link.until([&] { return told[0].done(); }));
  CHECK(told[0].status.code() == Code::kDeadlineExceeded);
  CHECK(told[0].status.maybe_executed());
  link.a().cancel(tickets[1]);
  REQUIRE(link.until([&] { return told[1].done(); }));
  CHECK(told[1].status.code() == Code::kCancelled);
  CHECK(link.a().counters().lent_buffers == 3);
  CHECK(!told[2].done());
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return told[2].done(); }));
  CHECK(told[2].status.code() == Code::kUnavailable);
  CHECK(told[2].status.maybe_executed());
  REQUIRE(link.until([&] { return link.a().closed(); }));
  CHECK(link.a().counters().lent_buffers == 0);
  for (const Done& each : told) CHECK(each.calls == 1);
}

TEST_CASE("a one-way call with attachments that fit into the message ends when it has left") {
  SimFixture sim(kSeed);
  Link link(sim);
  introduce(link, "hold");
  sim.freeze_b(link.pair);
  Done done;
  link.a().call_one_way({"test", "hold", link.in(60s)}, attached(std::make_shared<ByteVector>(100)),
                        done.handler());
  REQUIRE(link.until([&] { return done.done(); }));
  CHECK(done.status.ok());
  CHECK(link.b().counters().requests == 1);
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.held.clear();
}
