#include <doctest/doctest.h>

#include <string>

#include "rpc/channel/user_messages.h"
#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kOneTag = 3;

// The inbox of the messages takes its receives from the call table.
class UserMessagesTest final : private Inbox::Receives, private DeliverySource {
 public:
  explicit UserMessagesTest(Inbox::Bounds bounds = {.messages = 100, .bytes = 1 << 20}) : bounds_(bounds) {
    parts.base.greet();
  }
  ~UserMessagesTest() { parts.finish(); }
  // The n-th message of the peer comes.
  Status arrive(std::uint32_t n, Bytes body, std::uint8_t flags = 0) {
    wire::Frame frame;
    frame.header.type = wire::FrameType::kUserMessage;
    frame.header.flags = flags;
    frame.header.id = Handle{n, 1}.packed();
    frame.header.value = kOneTag;
    frame.body = body;
    return messages.on_message(frame);
  }
  Status acknowledge(Ticket ticket, Code code = Code::kOk, std::string_view text = {}) {
    wire::Frame frame;
    frame.header = parts.answer_to(ticket);
    frame.header.type = wire::FrameType::kUserAck;
    frame.header.code = static_cast<std::uint8_t>(code);
    frame.text = as_bytes(text);
    return messages.on_ack(frame);
  }

 private:
  DeliveryHandler take_receive(Handle receive) override { return parts.calls.take_receive(receive); }
  void collect_untaken() override {}
  void give_back(std::uint64_t, std::uint64_t, Payload&&) noexcept override {}
  const Inbox::Bounds bounds_;

 public:
  CallsBase parts;
  AttachmentRoom room{parts.connection()};
  Puller puller{parts.connection(), parts.outbox, room, parts.base, nullptr, parts.base.account};
  Inbox inbox{*this, lent, parts.base.completions,
              std::shared_ptr<DeliverySource>(std::shared_ptr<void>(), this), bounds_};
  LentMessages lent{{parts.connection(), parts.calls, parts.outbox, puller, inbox, room, parts.base}};
  UserMessages messages{
      {parts.connection(), parts.calls, parts.outbox, parts.lending, puller, inbox, room, lent}};
};

}  // namespace

TEST_CASE("a message that comes is acknowledged and received") {
  UserMessagesTest test;
  Outcome<Payload> received;
  test.messages.recv(kOneTag, kNever, received.receiver());
  REQUIRE(test.arrive(7, as_bytes(std::string_view("hello"))).ok());
  CHECK(test.parts.last_frame().header.type == wire::FrameType::kUserAck);
  CHECK(test.parts.last_frame().header.id == Handle{7, 1}.packed());
  CHECK(test.parts.last_frame().header.code == 0);
  test.parts.base.complete_all();
  REQUIRE(received.done());
  CHECK(as_text((*received.value)->bytes()) == "hello");
  CHECK(test.parts.calls.empty());
}

TEST_CASE("an offered message is acknowledged when it has been read") {
  UserMessagesTest test;
  PeerLoan loan(test.parts, 300'000, {5, 1});
  REQUIRE(test.arrive(7, loan.body, wire::kFlagRendezvous).ok());
  Outcome<Payload> received;
  test.messages.recv(kOneTag, kNever, received.receiver());
  REQUIRE(test.parts.sim.until([&] {
    test.parts.base.complete_all();
    return received.done();
  }));
  CHECK(same((*received.value)->bytes(), loan.data));
  CHECK(test.parts.frames_of(wire::FrameType::kUserAck) == 1);
  CHECK(test.parts.frames_of(wire::FrameType::kRelease) == 1);
}

TEST_CASE("a full inbox refuses messages and gives their memory back, unless a receive waits") {
  UserMessagesTest test({.messages = 1, .bytes = 100});
  const ByteVector body = pattern(10);
  REQUIRE(test.arrive(1, body).ok());
  REQUIRE(test.arrive(2, body).ok());
  CHECK(test.parts.last_frame().header.code == static_cast<std::uint8_t>(Code::kResourceExhausted));
  PeerLoan loan(test.parts, 300'000, {5, 1});
  REQUIRE(test.arrive(3, loan.body, wire::kFlagRendezvous).ok());
  CHECK(test.parts.frames_of(wire::FrameType::kRelease) == 1);
  Outcome<Payload> first;
  Outcome<Payload> second;
  test.messages.recv(kOneTag, kNever, first.receiver());
  test.messages.recv(kOneTag, kNever, second.receiver());
  REQUIRE(test.arrive(4, body).ok());
  CHECK(test.parts.last_frame().header.code == 0);
  test.parts.base.complete_all();
  CHECK(second.done());
}

TEST_CASE("bytes that are no offer are corrupt") {
  UserMessagesTest test;
  CHECK(test.arrive(1, pattern(10), wire::kFlagRendezvous).code() == Code::kCorrupt);
  CHECK(test.inbox.empty());
}

TEST_CASE("a sent message ends with the peer's acknowledgement or refusal") {
  UserMessagesTest test;
  Done sent;
  Done refused;
  const Ticket first = test.messages.send(kOneTag, pattern(10), kNever, sent.handler());
  CHECK(test.parts.last_frame().header.type == wire::FrameType::kUserMessage);
  CHECK(test.parts.last_frame().header.value == kOneTag);
  CHECK(same(test.parts.last_frame().body, pattern(10)));
  const Ticket second = test.messages.send(kOneTag, pattern(10), kNever, refused.handler());
  REQUIRE(test.acknowledge(first).ok());
  REQUIRE(test.acknowledge(second, Code::kResourceExhausted, "full").ok());
  test.parts.base.complete_all();
  CHECK(sent.status.ok());
  CHECK(refused.status.code() == Code::kResourceExhausted);
  CHECK(refused.status.text() == "full");
  CHECK(test.acknowledge(second).ok());  // late
  CHECK(test.parts.calls.counters().stale_replies == 1);
}

TEST_CASE("a closing channel delivers what has come, and receives nothing else") {
  UserMessagesTest test;
  REQUIRE(test.arrive(1, as_bytes(std::string_view("first"))).ok());
  test.parts.connection().stop_asking();
  Outcome<Payload> first;
  Outcome<Payload> second;
  Done sent;
  test.messages.recv(kOneTag, kNever, first.receiver());
  test.messages.recv(kOneTag, kNever, second.receiver());
  test.messages.send(kOneTag, pattern(10), kNever, sent.handler());
  REQUIRE(test.arrive(2, as_bytes(std::string_view("second"))).ok());
  CHECK(test.parts.last_frame().header.code == static_cast<std::uint8_t>(Code::kUnavailable));
  test.parts.base.complete_all();
  CHECK(first.status().ok());
  CHECK(second.status().code() == Code::kCancelled);
  CHECK(sent.status.code() == Code::kCancelled);
}

TEST_CASE("a receive ends at its deadline, and the inbox is told") {
  UserMessagesTest test;
  Outcome<Payload> late;
  test.messages.recv(kOneTag, test.parts.sim.now() + 1s, late.receiver());
  test.parts.sim.pass(2s);
  test.parts.base.complete_all();
  CHECK(late.status().code() == Code::kDeadlineExceeded);
  REQUIRE(test.parts.ended_receives.size() == 1);
  CHECK(test.parts.ended_receives[0].first == kOneTag);
}
