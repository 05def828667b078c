#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/stream/stream_table.h"
#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;
using wire::FrameType;

namespace {

constexpr std::uint64_t kServedId = 0x1'0000'0000;  // the first place of the peer's table
constexpr Handle kServed{4, 1};                     // the request of this stream

// Streams without a channel: what users want waits in the box until attend(). Records held answers.
class StreamTableTest final : private StreamTable::Answers {
 public:
  explicit StreamTableTest(ChannelOptions options = {.peer_name = "peer"}) : parts(std::move(options)) {
    parts.base.greet();
  }
  ~StreamTableTest() {
    box->close();
    parts.finish();
  }
  // Opens a stream by a call, which has left.
  Ticket open(const std::shared_ptr<StreamEnd>& end, Nanos idle_timeout = {}) {
    CallHandler ends = streams.end_with(end, reply.handler());
    const Ticket ticket = parts.ask(CallTable::Kind::kCall, std::move(ends));
    REQUIRE(ticket.value != 0);
    streams.add_opened(end, ticket, idle_timeout);
    return ticket;
  }
  // Serves a stream, whose end is returned.
  std::shared_ptr<StreamEnd> serve(TimePoint deadline = kNever) {
    const Status status = streams.add_served(kServed, kServedId, deadline);
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    return box->stream(kServed.packed());
  }
  // A frame of a stream comes. `value`: the credits.
  Status arrive(FrameType type, std::uint64_t id, bool from_handler, std::uint64_t value = 0,
                std::string_view body = {}) {
    wire::Frame frame;
    frame.header.type = type;
    frame.header.flags = from_handler ? wire::kFlagFromHandler : 0;
    frame.header.id = id;
    frame.header.value = value;
    frame.body = as_bytes(body);
    return streams.on_frame(frame);
  }
  // Does what users of streams have asked for, and completes what has ended.
  void attend() {
    for (;;) {
      const std::vector<std::uint64_t> keys = box->take().streams;
      for (const std::uint64_t key : keys) streams.attend(key);
      if (keys.empty() && parts.base.completions.empty()) return;
      parts.base.complete_all();
    }
  }
  std::size_t sent(FrameType type) { return parts.frames_of(type); }

  struct HeldAnswer {
    Handle served;
    Result<ByteVector> answer;
  };

  CallsBase parts;
  Reply reply;  // of the call that opens a stream
  std::vector<HeldAnswer> answers;
  std::shared_ptr<AnswerBox> box = std::make_shared<AnswerBox>(parts.sim.loop(0), nullptr, parts.base.account,
                                                               parts.connection().message_bytes());
  AttachmentRoom room{parts.connection()};
  Puller puller{parts.connection(), parts.outbox, room, parts.base, nullptr, parts.base.account};
  StreamTable streams{{parts.connection(), parts.base.completions, parts.outbox, parts.lending, parts.calls,
                       puller, parts.base, *this},
                      box};

 private:
  void send_held_answer(Handle served, Result<ByteVector>&& answer, Account::Held&&) override {
    answers.push_back({served, std::move(answer)});
  }
};

std::shared_ptr<StreamEnd> new_end() { return std::make_shared<StreamEnd>(nullptr, true); }

ByteVector message_of(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("messages leave as the peer gives credits, and the end follows the last one") {
  StreamTableTest test;
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  auto first = end->write(message_of("one"));
  auto second = end->write(message_of("two"));
  end->close_writing();
  test.attend();
  CHECK(!first.done());
  CHECK(test.sent(FrameType::kData) == 0);
  REQUIRE(test.arrive(FrameType::kCredit, ticket.value, true, 1).ok());
  test.attend();
  CHECK(first.done());
  CHECK(!second.done());
  CHECK(test.sent(FrameType::kData) == 1);
  CHECK(as_text(test.parts.last_frame().body) == "one");
  CHECK(test.arrive(FrameType::kCredit, ticket.value, true, 1).code() == Code::kCorrupt);
  REQUIRE(test.arrive(FrameType::kCredit, ticket.value, true, 2).ok());
  test.attend();
  CHECK(second.done());
  CHECK(test.sent(FrameType::kData) == 2);
  CHECK(test.parts.last_frame().header.type == FrameType::kEnd);
  CHECK(test.parts.last_frame().header.id == ticket.value);
}

TEST_CASE("messages that come are read in order, within the credits that were given") {
  StreamTableTest test({.peer_name = "peer", .streams = {.window = 2}});
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  CHECK(test.parts.last_frame().header.type == FrameType::kCredit);
  CHECK(test.parts.last_frame().header.value == 2);
  REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "one").ok());
  REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "two").ok());
  CHECK(test.arrive(FrameType::kData, ticket.value, true, 0, "three").code() == Code::kCorrupt);
  for (const std::string_view text : {"one", "two"}) {
    auto read = end->read();
    test.attend();
    REQUIRE(read.done());
    auto message = read.wait();
    REQUIRE(message.has_value());
    REQUIRE(message->has_value());
    CHECK(as_text((*message)->take().bytes()) == text);
  }
  CHECK(test.sent(FrameType::kCredit) > 1);  // reading gives more
  REQUIRE(test.arrive(FrameType::kEnd, ticket.value, true).ok());
  auto last = end->read();
  test.attend();
  auto message = last.wait();
  REQUIRE(message.has_value());
  CHECK(!message->has_value());
  CHECK(test.arrive(FrameType::kEnd, ticket.value, true).code() == Code::kCorrupt);
  CHECK(test.arrive(FrameType::kData, ticket.value, true).code() == Code::kCorrupt);
}

TEST_CASE("a large message is read from the peer's memory") {
  StreamTableTest test;
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  PeerLoan loan(test.parts, 300'000, {5, 1});
  loan.frame.header.type = FrameType::kData;
  loan.frame.header.flags |= wire::kFlagFromHandler;
  loan.frame.header.id = ticket.value;
  REQUIRE(test.streams.on_frame(loan.frame).ok());
  auto read = end->read();
  REQUIRE(test.parts.sim.until([&] {
    test.attend();
    return read.done();
  }));
  auto message = read.wait();
  REQUIRE(message.has_value());
  CHECK(same((*message)->take().bytes(), loan.data));
  CHECK(test.sent(FrameType::kRelease) == 1);
}

TEST_CASE("the reply ends a stream after the messages that came before it") {
  StreamTableTest test;
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "one").ok());
  test.parts.calls.finish(Handle::unpack(ticket.value), {});
  test.attend();
  CHECK(test.reply.calls == 1);
  CHECK(test.streams.empty());
  auto message = end->read().wait();
  REQUIRE(message.has_value());
  CHECK(as_text((*message)->take().bytes()) == "one");
  auto last = end->read().wait();
  REQUIRE(last.has_value());
  CHECK(!last->has_value());
  CHECK(end->write(message_of("late")).wait().status().code() == Code::kAborted);
  CHECK(test.arrive(FrameType::kData, ticket.value, true, 0, "late").ok());
  CHECK(test.parts.calls.counters().stale_replies == 1);
}

TEST_CASE("a failed call ends its stream at once, an error of the handler after the messages before it") {
  StreamTableTest test;
  for (const bool replied : {false, true}) {
    const auto end = new_end();
    const Ticket ticket = test.open(end);
    const Handle call = Handle::unpack(ticket.value);
    REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "one").ok());
    if (replied) test.streams.note_error_reply(call);
    test.parts.calls.finish(call, {Status(Code::kInternal, "it failed"), {}, {}});
    test.attend();
    auto first = end->read().wait();
    CHECK(first.has_value() == replied);
    if (replied) CHECK(as_text((*first)->take().bytes()) == "one");
    CHECK(end->read().wait().status().code() == Code::kInternal);
    CHECK(test.streams.empty());
  }
}

TEST_CASE("frames of streams that never were are corrupt, those of streams that are over are late") {
  StreamTableTest test;
  CHECK(test.arrive(FrameType::kData, kServedId, false).code() == Code::kCorrupt);
  CHECK(test.arrive(FrameType::kData, kServedId, true).code() == Code::kCorrupt);
  test.serve();
  Result<ByteVector> answer = Status(Code::kInternal, "it failed");
  Account::Held held;
  CHECK(!test.streams.hold_answer(kServed, kServedId, answer, held));
  CHECK(test.streams.empty());
  CHECK(test.arrive(FrameType::kData, kServedId, false).ok());
  CHECK(test.parts.calls.counters().stale_replies == 1);
  CHECK(test.streams.add_served({5, 1}, kServedId, kNever).code() == Code::kCorrupt);
  CHECK(test.arrive(FrameType::kData, Handle{1, 1}.packed(), false).code() == Code::kCorrupt);
  REQUIRE(test.streams.note_refused(Handle{1, 1}.packed()).ok());
  CHECK(test.arrive(FrameType::kData, Handle{1, 1}.packed(), false).ok());
}

TEST_CASE("a result waits for the messages that were written before it") {
  StreamTableTest test;
  const auto end = test.serve();
  auto written = end->write(message_of("one"));
  Result<ByteVector> answer = pattern(5);
  Account::Held held;
  CHECK(test.streams.hold_answer(kServed, kServedId, answer, held));
  test.attend();
  CHECK(test.answers.empty());
  REQUIRE(test.arrive(FrameType::kCredit, kServedId, false, 1).ok());
  test.attend();
  CHECK(written.done());
  REQUIRE(test.answers.size() == 1);
  CHECK(test.answers[0].served == kServed);
  CHECK(*test.answers[0].answer == pattern(5));
  CHECK(test.sent(FrameType::kData) == 1);
  // The table of requests sends it and asks again.
  CHECK(!test.streams.hold_answer(kServed, kServedId, answer, held));
  CHECK(test.streams.empty());
  CHECK(test.box->stream(kServed.packed()) == nullptr);
}

TEST_CASE("a cancel ends a served stream, and fails its held answer") {
  StreamTableTest test;
  const auto end = test.serve();
  auto written = end->write(message_of("one"));
  Result<ByteVector> answer = pattern(5);
  Account::Held held;
  REQUIRE(test.streams.hold_answer(kServed, kServedId, answer, held));
  test.streams.cancel_served(kServedId);
  test.attend();
  CHECK(written.wait().status().code() == Code::kCancelled);
  REQUIRE(test.answers.size() == 1);
  CHECK(test.answers[0].answer.status().code() == Code::kCancelled);
  CHECK(test.answers[0].answer.status().maybe_executed());
}

TEST_CASE("an opened stream that is idle fails its call") {
  StreamTableTest test;
  const auto end = new_end();
  const Ticket ticket = test.open(end, 2s);
  test.parts.sim.pass(1500ms);
  REQUIRE(test.arrive(FrameType::kCredit, ticket.value, true, 1).ok());
  test.parts.sim.pass(1s);
  test.attend();
  CHECK(!test.reply.done());
  test.parts.sim.pass(1500ms);
  test.attend();
  REQUIRE(test.reply.done());
  CHECK(test.reply.status().code() == Code::kDeadlineExceeded);
  CHECK(test.sent(FrameType::kCancel) == 1);
  CHECK(test.streams.empty());
}

TEST_CASE("a served stream ends at the deadline of its call") {
  StreamTableTest test;
  const auto end = test.serve(test.parts.sim.now() + 1s);
  auto read = end->read();
  test.attend();
  test.parts.sim.pass(2s);
  test.attend();
  REQUIRE(read.done());
  CHECK(read.wait().status().code() == Code::kDeadlineExceeded);
  CHECK(test.streams.size() == 1);  // until its handler answers
}

TEST_CASE("a slow reader gives back few credits after a pause") {
  StreamTableTest test({.peer_name = "peer", .streams = {.window = 8}});
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "one").ok());
  auto read = end->read();
  test.attend();
  REQUIRE(read.done());
  CHECK(test.sent(FrameType::kCredit) == 1);
  test.parts.sim.pass(rpc::limits::kStreamCreditPause + 100ms);
  CHECK(test.sent(FrameType::kCredit) == 2);
  CHECK(test.parts.last_frame().header.value == 9);
}

TEST_CASE("a stream whose deadline has passed says how many messages had come") {
  StreamTableTest test;
  const auto end = new_end();
  const Ticket ticket = test.open(end);
  REQUIRE(test.arrive(FrameType::kData, ticket.value, true, 0, "one").ok());
  CHECK(test.streams.deadline_text(Handle::unpack(ticket.value)).find("1 message had come") !=
        std::string::npos);
  CHECK(test.streams.deadline_text({9, 9}).empty());
}

TEST_CASE("a peer without streams fails those that were opened before its hello") {
  StreamTableTest test;
  const auto end = new_end();
  test.open(end);
  test.streams.refuse_opened();
  test.attend();
  REQUIRE(test.reply.done());
  CHECK(test.reply.status().code() == Code::kUnimplemented);
  CHECK(end->read().wait().status().code() == Code::kUnimplemented);
}

TEST_CASE("a stream whose call was refused ends with the refusal") {
  StreamTableTest test;
  const auto end = new_end();
  CallHandler ends = test.streams.end_with(end, test.reply.handler());
  test.parts.calls.refuse(CallTable::Kind::kCall, std::move(ends), test.streams.no_streams());
  test.attend();
  CHECK(test.reply.status().code() == Code::kUnimplemented);
  CHECK(end->read().wait().status().code() == Code::kUnimplemented);
  CHECK(test.streams.empty());
}

TEST_CASE("the end of the connection ends all streams") {
  StreamTableTest test;
  const auto opened = new_end();
  test.open(opened);
  const auto served = test.serve();
  auto read = served->read();
  test.parts.connection().end(Status(Code::kUnavailable, "the wire broke"));
  test.parts.calls.fail_all();
  test.streams.sweep();
  test.attend();
  CHECK(test.reply.status().code() == Code::kUnavailable);
  CHECK(opened->read().wait().status().code() == Code::kUnavailable);
  CHECK(read.wait().status().code() == Code::kUnavailable);
  CHECK(test.streams.empty());
}
