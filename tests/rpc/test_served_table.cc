#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "rpc/channel/served_table.h"
#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

std::uint64_t caller_id(std::uint32_t index, std::uint32_t generation = 1) {
  return Handle{index, generation}.packed();
}

// Serves "s.hold", inline, whose requests the test answers by hand. Without a channel answers wait
// in the box until send_answers().
struct ServedTableTest {
  explicit ServedTableTest(ChannelOptions options = {.peer_name = "peer"}) : parts(std::move(options)) {
    parts.base.greet();
    Service service("s");
    REQUIRE(
        service
            .add_raw("hold", [this](Request request) { held.push_back(std::move(request)); }, {Run::kInline})
            .ok());
    REQUIRE(server.add(service).ok());
  }
  ~ServedTableTest() {
    box->close();
    held.clear();
    parts.finish();
  }
  // A request with this id comes, for a method of service "s".
  Status request(std::uint64_t id, std::string_view method = "hold", std::uint8_t flags = 0,
                 Bytes body = {}) {
    ByteVector text = wire::encode_names("s", method);
    if ((flags & wire::kFlagMetadata) != 0) wire::encode_extras({}, true, text);
    wire::Frame frame;
    frame.header.flags = flags;
    frame.text = text;
    frame.service = "s";
    frame.method = method;
    return request(id, frame, body);
  }
  // The same by the method's number.
  Status request_number(std::uint64_t id, std::uint32_t number, std::uint8_t flags = 0) {
    wire::Frame frame;
    frame.header.flags = flags;
    frame.header.method = number;
    return request(id, frame, {});
  }
  Status request(std::uint64_t id, wire::Frame& frame, Bytes body) {
    frame.header.type = wire::FrameType::kRequest;
    frame.header.id = id;
    frame.header.value = wire::kNoDeadline;
    frame.body = body;
    return served.on_request(frame, {});
  }
  void cancel(std::uint64_t id) {
    wire::Frame frame;
    frame.header.type = wire::FrameType::kCancel;
    frame.header.id = id;
    served.on_cancel(frame);
  }
  void send_answers() { served.send_answers(box->take().answers); }
  // The code of the last frame that the peer got, which is the answer to `id`.
  Code answered(std::uint64_t id) {
    const wire::Frame frame = parts.last_frame();
    CHECK(frame.header.type == wire::FrameType::kReply);
    CHECK(frame.header.id == id);
    return static_cast<Code>(frame.header.code);
  }

  CallsBase parts;
  std::vector<Request> held;
  Server server{{}, parts.sim.loop(0).clock()};
  std::shared_ptr<AnswerBox> box = std::make_shared<AnswerBox>(parts.sim.loop(0), nullptr, parts.base.account,
                                                               parts.connection().message_bytes());
  MethodNames names{"peer", &server};
  AttachmentRoom room{parts.connection()};
  Puller puller{parts.connection(), parts.outbox, room, parts.base, &server, parts.base.account};
  ServedTable served{{parts.connection(), names, parts.outbox, parts.lending, puller, streams}, box, &server};
  StreamTable streams{{parts.connection(), parts.base.completions, parts.outbox, parts.lending, parts.calls,
                       puller, parts.base, served},
                      box};
};

}  // namespace

TEST_CASE("a request is served until its answer leaves, which tells the method's number") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0)).ok());
  REQUIRE(test.held.size() == 1);
  CHECK(test.held[0].info().peer == "peer");
  CHECK(test.held[0].info().method == "hold");
  CHECK(!test.served.empty());
  test.held[0].reply(pattern(5));
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kOk);
  CHECK(same(test.parts.last_frame().body, pattern(5)));
  CHECK(test.served.empty());
  const std::uint32_t number = test.parts.last_frame().header.method;
  REQUIRE(number != 0);
  REQUIRE(test.request_number(caller_id(0, 2), number).ok());
  CHECK(test.held[1].info().service == "s");
  CHECK(test.served.requests() == 2);
}

TEST_CASE("an answer of a request that has its answer is dropped") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0)).ok());
  const Handle handle{0, 1};
  test.served.send_answer(handle, pattern(5));
  test.served.send_answer(handle, pattern(6));
  CHECK(test.parts.frames_of(wire::FrameType::kReply) == 1);
}

TEST_CASE("requests that cannot be served are refused, as not executed") {
  ServedTableTest test({.peer_name = "peer", .max_calls = 1});
  REQUIRE(test.request(caller_id(0), "missing").ok());
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kNotFound);
  REQUIRE(test.request(caller_id(0, 2)).ok());
  REQUIRE(test.request(caller_id(1)).ok());
  CHECK(test.answered(caller_id(1)) == Code::kResourceExhausted);
  CHECK((test.parts.last_frame().header.flags & wire::kFlagMaybeExecuted) == 0);
  test.parts.connection().stop_asking();
  REQUIRE(test.request(caller_id(2)).ok());
  CHECK(test.answered(caller_id(2)) == Code::kUnavailable);
  CHECK(test.held.size() == 1);
  CHECK(test.request_number(caller_id(3), 99).code() == Code::kCorrupt);
}

TEST_CASE("a cancel reaches the request that it names, whose answer then says so") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0)).ok());
  bool told = false;
  test.held[0].on_cancel([&] { told = true; });
  test.cancel(caller_id(0, 2));  // a later use of the place
  test.cancel(caller_id(7));
  CHECK(!told);
  CHECK(!test.held[0].cancelled());
  test.cancel(caller_id(0));
  CHECK(told);
  CHECK(test.held[0].cancelled());
  test.held[0].reply(pattern(5));
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kCancelled);
  test.cancel(caller_id(0));  // its answer is on its way
}

TEST_CASE("a one-way request is answered only if it fails") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0)).ok());
  test.held[0].reply({});
  test.send_answers();
  const std::uint32_t number = test.parts.last_frame().header.method;
  REQUIRE(test.request_number(caller_id(0, 2), number, wire::kFlagOneWay).ok());
  test.held[1].reply(pattern(5));
  test.send_answers();
  CHECK(test.parts.frames_of(wire::FrameType::kReply) == 1);
  CHECK(test.served.empty());
  REQUIRE(test.request_number(caller_id(0, 3), number, wire::kFlagOneWay).ok());
  test.held[2].fail(Status(Code::kInternal, "it failed"));
  test.send_answers();
  CHECK(test.answered(caller_id(0, 3)) == Code::kInternal);
  CHECK((test.parts.last_frame().header.flags & wire::kFlagOneWay) != 0);
  CHECK(test.parts.last_frame().header.method == number);
}

TEST_CASE("a large request is served when it has been read") {
  ServedTableTest test;
  PeerLoan loan(test.parts, 300'000, {5, 1});
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagRendezvous, loan.body).ok());
  CHECK(test.held.empty());
  REQUIRE(test.parts.sim.until([&] { return !test.held.empty(); }));
  CHECK(same(test.held[0].body(), loan.data));
  CHECK(test.parts.frames_of(wire::FrameType::kRelease) == 1);
}

TEST_CASE("a large request that is cancelled while it is read never runs") {
  ServedTableTest test;
  PeerLoan loan(test.parts, 300'000, {5, 1});
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagRendezvous, loan.body).ok());
  test.cancel(caller_id(0));
  REQUIRE(test.parts.sim.until([&] { return test.served.empty(); }));
  CHECK(test.answered(caller_id(0)) == Code::kCancelled);
  CHECK(test.held.empty());
  CHECK(test.puller.empty());
}

TEST_CASE("what a refused request lends is given back") {
  ServedTableTest test({.peer_name = "peer", .max_calls = 1});
  REQUIRE(test.request(caller_id(0)).ok());
  PeerLoan loan(test.parts, 300'000, {5, 1});
  REQUIRE(test.request(caller_id(1), "hold", wire::kFlagRendezvous, loan.body).ok());
  CHECK(test.answered(caller_id(1)) == Code::kResourceExhausted);
  CHECK(test.parts.frames_of(wire::FrameType::kRelease) == 1);
  CHECK(test.request(caller_id(2), "hold", wire::kFlagRendezvous, {}).code() == Code::kCorrupt);
}

TEST_CASE("an answer with attachments, and one with times, carry them") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagMetadata).ok());
  Attachments attachments;
  attachments.push_back(Attachment(pattern(100)));
  test.held[0].attach(std::move(attachments));
  test.held[0].reply(pattern(5));
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kOk);
  CHECK((test.parts.last_frame().header.flags & wire::kFlagTiming) != 0);
  CHECK((test.parts.last_frame().header.flags & wire::kFlagAttachments) != 0);
  const auto table = wire::decode_attachments(test.parts.last_frame().body);
  REQUIRE(table.has_value());
  CHECK(same(table->entries[0].bytes, pattern(100)));
  CHECK(same(table->body, pattern(5)));
}

TEST_CASE("a refused request that asks for times is told that it took none") {
  ServedTableTest test;
  test.parts.connection().stop_asking();
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagMetadata).ok());
  const wire::Frame frame = test.parts.last_frame();
  CHECK(test.answered(caller_id(0)) == Code::kUnavailable);
  CHECK((frame.header.flags & wire::kFlagTiming) != 0);
  CHECK(wire::times_of(frame).queue == 0);
  CHECK(wire::times_of(frame).handler == 0);
}

TEST_CASE("a large answer is lent, and counts against the account until it is released") {
  ServedTableTest test({.peer_name = "peer", .memory_bytes = 4 * 300'000});
  REQUIRE(test.request(caller_id(0)).ok());
  REQUIRE(test.request(caller_id(1)).ok());
  test.held[0].reply(pattern(300'000));
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kOk);
  CHECK(test.parts.base.account->held() == 300'000);
  test.held[1].reply(pattern(300'000));
  test.send_answers();
  CHECK(test.answered(caller_id(1)) == Code::kResourceExhausted);
  CHECK((test.parts.last_frame().header.flags & wire::kFlagMaybeExecuted) != 0);
  test.parts.lending.release_all();
  CHECK(test.parts.base.account->held() == 0);
}

TEST_CASE("a request that opens a stream adds the stream, once") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagStream).ok());
  CHECK(test.streams.size() == 1);
  REQUIRE(test.held.size() == 1);
  REQUIRE(test.held[0].stream() != nullptr);
  test.held[0].reply(pattern(5));
  test.send_answers();
  CHECK(test.answered(caller_id(0)) == Code::kOk);
  CHECK(test.streams.empty());
  CHECK(test.request(caller_id(0), "hold", wire::kFlagStream).code() == Code::kCorrupt);
}

TEST_CASE("the end of the channel drops all requests") {
  ServedTableTest test;
  REQUIRE(test.request(caller_id(0), "hold", wire::kFlagMetadata).ok());
  test.served.clear();
  CHECK(test.served.empty());
  test.held[0].reply(pattern(5));
  test.send_answers();
  CHECK(!test.parts.peer_got(1));
}
