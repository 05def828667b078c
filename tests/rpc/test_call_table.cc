#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

using PendingKind = CallTable::Kind;

struct CallTableTest {
  explicit CallTableTest(ChannelOptions options = {.peer_name = "peer"}, bool greeted = true)
      : parts(std::move(options)) {
    if (greeted) parts.base.greet();
  }
  // The code of the error that the handler got once; kOk for success.
  Code ended(const Done& done) {
    parts.base.complete_all();
    REQUIRE(done.calls == 1);
    return done.status.code();
  }
  CallsBase parts;
  CallTable& calls = parts.calls;
};

}  // namespace

TEST_CASE("a request ends once by its answer, and a second answer is counted") {
  CallTableTest test;
  Done done;
  const Ticket ticket = test.parts.ask(PendingKind::kPing, done.handler());
  CHECK(test.calls.asked() == 1);
  CHECK(test.parts.last_frame().header.id == ticket.value);
  const auto pending = test.calls.expected(test.parts.answer_to(ticket), PendingKind::kPing);
  REQUIRE(pending.has_value());
  REQUIRE(*pending != nullptr);
  test.calls.finish(Handle::unpack(ticket.value), {});
  CHECK(done.calls == 0);  // only from the completions
  CHECK(test.ended(done) == Code::kOk);
  CHECK(test.calls.empty());
  CHECK(test.calls.asked() == 0);
  const auto late = test.calls.expected(test.parts.answer_to(ticket), PendingKind::kPing);
  REQUIRE(late.has_value());
  CHECK(*late == nullptr);
  CHECK(test.calls.counters().stale_replies == 1);
}

TEST_CASE("an answer of another kind, or to a request that has not left, is corrupt") {
  CallTableTest test({.peer_name = "peer"}, false);
  Done done;
  const Ticket ticket = test.parts.ask(PendingKind::kSend, done.handler());
  CHECK(test.calls.expected(test.parts.answer_to(ticket), PendingKind::kSend).status().code() ==
        Code::kCorrupt);
  test.parts.base.greet();
  test.parts.outbox.flush();
  CHECK(test.calls.expected(test.parts.answer_to(ticket), PendingKind::kPing).status().code() ==
        Code::kCorrupt);
  CHECK(test.calls.expected(test.parts.answer_to(ticket), PendingKind::kSend).has_value());
  test.calls.find(Handle::unpack(ticket.value))->pulling = true;  // its answer has come
  CHECK(test.calls.expected(test.parts.answer_to(ticket), PendingKind::kSend).status().code() ==
        Code::kCorrupt);
}

TEST_CASE("a deadline ends a request, in order, with the text of the host if it has one") {
  CallTableTest test;
  std::vector<int> order;
  std::vector<Status> statuses;
  const auto note = [&](int number) {
    return [&order, &statuses, number](Status status) {
      order.push_back(number);
      statuses.push_back(std::move(status));
    };
  };
  test.parts.ask(PendingKind::kPing, DoneHandler(note(1)), test.parts.sim.now() + 2s);
  test.parts.ask(PendingKind::kPing, DoneHandler(note(2)), test.parts.sim.now() + 1s);
  test.parts.sim.pass(3s);
  test.parts.base.complete_all();
  CHECK(order == std::vector<int>{2, 1});
  CHECK(statuses[0].code() == Code::kDeadlineExceeded);
  CHECK(statuses[0].text() == "no answer from peer in time");
  CHECK(statuses[0].maybe_executed());

  test.parts.text_of_deadline = "the stream is over";
  test.parts.ask(PendingKind::kPing, DoneHandler(note(3)), test.parts.sim.now() + 1s);
  test.parts.sim.pass(2s);
  test.parts.base.complete_all();
  CHECK(statuses.back().text() == "the stream is over");
}

TEST_CASE("a request whose deadline has passed never leaves") {
  CallTableTest test;
  Done done;
  CHECK(test.parts.ask(PendingKind::kPing, done.handler(), test.parts.sim.now()).value == 0);
  CHECK(test.ended(done) == Code::kDeadlineExceeded);
  CHECK(!done.status.maybe_executed());
  CHECK(!test.parts.peer_got(1));
}

TEST_CASE("a queued request that ends leaves the queue, and its loan is released") {
  CallTableTest test({.peer_name = "peer"}, false);
  Done done;
  const auto added = test.calls.add(PendingKind::kSend, done.handler(), kNever);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  REQUIRE(test.parts.lending.put_body(frame, pattern(300'000), added.second->lent).ok());
  const Ticket ticket = test.calls.ask(added.first, kNever, frame);
  CHECK(test.parts.outbox.size() == 1);
  CHECK(test.parts.lending.size() == 1);
  test.calls.fail(Handle::unpack(ticket.value), Status(Code::kCancelled, "cancelled"));
  CHECK(test.parts.outbox.empty());
  CHECK(test.parts.lending.empty());
  CHECK(test.ended(done) == Code::kCancelled);
  CHECK(!done.status.maybe_executed());
}

TEST_CASE("only calls that have left are cancelled at a peer that knows cancels") {
  CallTableTest test;
  Reply reply;
  Done done;
  const Ticket call = test.parts.ask(PendingKind::kCall, CallHandler(reply.handler()));
  const Ticket ping = test.parts.ask(PendingKind::kPing, done.handler());
  test.calls.tell_cancelled(Handle::unpack(ping.value));
  test.calls.tell_cancelled(Handle::unpack(call.value));
  CHECK(test.parts.frames_of(wire::FrameType::kCancel) == 1);
  CHECK(test.parts.last_frame().header.id == call.value);
  test.parts.base.greet(wire::kOptionalFeatures & ~wire::kFeatureCancel);
  test.calls.tell_cancelled(Handle::unpack(call.value));
  CHECK(test.parts.frames_of(wire::FrameType::kCancel) == 1);
}

TEST_CASE("requests are bounded by what both sides take, receives are not") {
  CallTableTest test({.peer_name = "peer", .max_calls = 2});
  Done first;
  Done second;
  test.parts.ask(PendingKind::kPing, first.handler());
  CHECK(test.calls.admission(PendingKind::kCall).ok());
  test.parts.ask(PendingKind::kPing, second.handler());
  CHECK(test.calls.admission(PendingKind::kCall).code() == Code::kResourceExhausted);
  CHECK(test.calls.admission(PendingKind::kRecv).ok());
  test.parts.connection().stop_asking();
  CHECK(!test.calls.admission(PendingKind::kRecv).ok());
}

TEST_CASE("a one-way call by number ends when it has left") {
  CallTableTest test;
  Done done;
  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.method = 1;
  frame.one_way = true;
  test.calls.ask(test.calls.add(PendingKind::kCall, done.handler(), kNever).first, kNever, frame);
  CHECK(test.ended(done) == Code::kOk);
  CHECK(test.calls.empty());
}

TEST_CASE("a one-way call by name succeeds when it has left, and a late failure is told to the host") {
  CallTableTest test;
  Done done;
  PeerMethod method{"s", "note"};
  const auto [handle, pending] = test.calls.add(PendingKind::kCall, done.handler(), kNever);
  pending->method = &method;
  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.text = wire::encode_names("s", "note");
  frame.one_way = true;
  test.calls.ask(handle, kNever, frame);
  CHECK(test.ended(done) == Code::kOk);
  CHECK(test.calls.asked() == 1);  // the peer answers it
  test.calls.finish(handle, {Status(Code::kNotFound, "no method"), {}, {}});
  test.parts.base.complete_all();
  REQUIRE(test.parts.one_way_failures.size() == 1);
  CHECK(test.parts.one_way_failures[0].code() == Code::kNotFound);
  CHECK(test.parts.failed_methods[0] == "note");
}

TEST_CASE("a one-way call that lends attachments ends when they are released") {
  CallTableTest test;
  Done done;
  const auto [handle, pending] = test.calls.add(PendingKind::kCall, done.handler(), kNever);
  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.method = 1;
  frame.one_way = true;
  AttachedBody body;
  body.attachments.push_back(Attachment(pattern(300'000)));
  REQUIRE(test.parts.lending.put_body(frame, std::move(body), pending->lent).ok());
  const Handle lent = pending->lent;
  test.calls.ask(handle, kNever, frame);
  test.parts.base.complete_all();
  CHECK(done.calls == 0);
  test.parts.lending.release(lent);
  CHECK(test.ended(done) == Code::kOk);
}

TEST_CASE("a call whose reply is being read may end later, with its reading") {
  CallTableTest test;
  Reply reply;
  const Ticket ticket = test.parts.ask(PendingKind::kCall, CallHandler(reply.handler()));
  const Handle handle = Handle::unpack(ticket.value);
  test.calls.find(handle)->pulling = true;
  test.parts.reads_on = true;
  test.calls.fail(handle, Status(Code::kCancelled, "cancelled"));
  CHECK(test.calls.find(handle) != nullptr);
  test.parts.reads_on = false;
  test.calls.fail(handle, Status(Code::kCancelled, "cancelled"));
  CHECK(test.calls.find(handle) == nullptr);
  CHECK(test.calls.counters().calls_failed == 1);
}

TEST_CASE("receives are taken, or end, apart from requests") {
  CallTableTest test;
  Outcome<Payload> taken;
  Outcome<Payload> failed;
  const auto add_receive = [&](Outcome<Payload>& outcome) {
    const auto [handle, pending] =
        test.calls.add(PendingKind::kRecv, DeliveryHandler(outcome.receiver()), kNever);
    pending->tag = 7;
    return handle;
  };
  const Handle first = add_receive(taken);
  const Handle second = add_receive(failed);
  CHECK(test.calls.receives() == 2);
  CHECK(test.calls.asked() == 0);
  test.calls.take_receive(first)(Delivery(nullptr, 7, 1, Payload(as_bytes(std::string_view("x")))));
  CHECK(taken.calls == 1);
  CHECK(test.parts.ended_receives.empty());
  test.parts.connection().stop_asking();
  test.calls.fail_receives();
  test.parts.base.complete_all();
  CHECK(failed.status().code() == Code::kCancelled);
  CHECK(test.parts.ended_receives == std::vector<std::pair<std::uint64_t, Handle>>{{7, second}});
}

TEST_CASE("the end of the connection fails all requests with its reason") {
  CallTableTest test;
  Done done;
  Reply reply;
  test.parts.ask(PendingKind::kPing, done.handler());
  test.parts.ask(PendingKind::kCall, CallHandler(reply.handler()));
  test.parts.connection().end(Status(Code::kUnavailable, "the wire broke"));
  test.calls.fail_all();
  CHECK(test.ended(done) == Code::kUnavailable);
  CHECK(reply.status().text() == "peer: the wire broke");
  CHECK(reply.status().maybe_executed());
  CHECK(test.calls.empty());
}
