#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rpc/channel/outbox.h"
#include "tests/rpc/parts_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using Sent = Outbox::Sent;
using wire::FrameType;

namespace {

class LeftFrames final : public Outbox::Listener {
 public:
  void on_queued_frame_left(const OutFrame& frame) override { left.push_back(frame.header.id); }
  std::vector<std::uint64_t> left;
};

// Something that is asked of the peer.
OutFrame ping_frame(std::uint32_t index, std::size_t body = 0) {
  OutFrame frame;
  frame.header.type = FrameType::kPing;
  frame.pending = {index, 1};
  frame.header.id = frame.pending.packed();
  frame.body.resize(body);
  return frame;
}

Sent submit_ping(Outbox& outbox, std::uint32_t index, std::size_t body = 0) {
  OutFrame frame = ping_frame(index, body);
  return outbox.submit(frame);
}

struct OutboxTest {
  explicit OutboxTest(ChannelOptions options = {.peer_name = "peer"}) : base(sim, std::move(options)) {}
  SimFixture sim{kSeed};
  LeftFrames listener;
  PartsBase base;
  Outbox outbox{*base.connection, base, listener};
  ~OutboxTest() { base.finish(); }
};

}  // namespace

TEST_CASE("frames wait for the peer's hello, and leave in order") {
  OutboxTest test;
  CHECK(submit_ping(test.outbox, 1) == Sent::kQueued);
  CHECK(submit_ping(test.outbox, 2) == Sent::kQueued);
  test.outbox.flush();
  CHECK(test.outbox.size() == 2);
  test.base.greet();
  test.outbox.flush();
  CHECK(test.outbox.empty());
  CHECK(test.outbox.queued_bytes() == 0);
  CHECK(test.listener.left == std::vector<std::uint64_t>{Handle{1, 1}.packed(), Handle{2, 1}.packed()});
  CHECK(submit_ping(test.outbox, 3) == Sent::kLeft);
  CHECK(test.listener.left.size() == 2);  // the caller of submit() knows
  CHECK(test.base.frame(0).header.id == Handle{1, 1}.packed());
  CHECK(test.base.frame(2).header.id == Handle{3, 1}.packed());
}

TEST_CASE("what asks is refused when too many bytes wait, and unqueued frames make room") {
  OutboxTest test({.peer_name = "peer", .queue_bytes = 200});
  CHECK(submit_ping(test.outbox, 1, 100) == Sent::kQueued);
  const Outbox::Place first = test.outbox.last();
  CHECK(submit_ping(test.outbox, 2, 100) == Sent::kRefused);
  test.outbox.unqueue(first);
  CHECK(test.outbox.queued_bytes() == 0);
  CHECK(submit_ping(test.outbox, 2, 100) == Sent::kQueued);
}

TEST_CASE("frames that are made smaller in the queue count less") {
  OutboxTest test;
  submit_ping(test.outbox, 1, 100);
  const std::size_t before = test.outbox.queued_bytes();
  test.outbox.edit([](OutFrame& frame) { frame.body.resize(40); });
  CHECK(test.outbox.queued_bytes() == before - 60);
  test.outbox.clear();
  CHECK(test.outbox.queued_bytes() == 0);
}

TEST_CASE("a peer that takes no answers is reset when more wait than its requests explain") {
  OutboxTest test({.peer_name = "peer", .max_calls = 1});
  const std::size_t most = rpc::limits::kAnswersPerRequest + 1;
  test.outbox.allow_answers(1);
  for (std::size_t i = 0; i < most; ++i) test.outbox.answer(FrameType::kPong, i + 1);
  CHECK(test.outbox.queued_answers() == most);
  CHECK(!test.base.connection->endpoint_closing());
  test.outbox.answer(FrameType::kPong, 99);
  CHECK(test.base.connection->endpoint_closing());
  CHECK(test.base.connection->endpoint().error().code() == Code::kResourceExhausted);
}

TEST_CASE("proofs leave before what waits, and in order among themselves") {
  OutboxTest test;
  submit_ping(test.outbox, 1);
  for (const std::size_t size : {1, 2}) {
    OutFrame proof;
    proof.header.type = FrameType::kProof;
    proof.body.resize(size);
    // The endpoint takes the first one at once.
    test.outbox.submit_proof(std::move(proof));
  }
  test.base.greet();
  test.outbox.flush();
  CHECK(test.base.frame(0).header.type == FrameType::kProof);
  CHECK(test.base.frame(0).body.size() == 1);
  CHECK(test.base.frame(1).body.size() == 2);
  CHECK(test.base.frame(2).header.type == FrameType::kPing);
}

TEST_CASE("a one-way request is marked only by its number, for a peer that knows such requests") {
  OutboxTest test;
  test.base.greet(wire::kOptionalFeatures);
  const auto flags_of = [&](std::uint32_t method) {
    OutFrame frame = ping_frame(1);
    frame.header.method = method;
    frame.header.type = FrameType::kRequest;
    if (method == 0) frame.text = wire::encode_names("s", "m");
    frame.one_way = true;
    REQUIRE(test.outbox.submit(frame) == Sent::kLeft);
    return frame.header.flags & wire::kFlagOneWay;
  };
  CHECK(flags_of(0) == 0);
  CHECK(flags_of(1) != 0);
  test.base.greet(wire::kOptionalFeatures & ~wire::kFeatureOneWay);
  CHECK(flags_of(1) == 0);
}

TEST_CASE("the text of an error is cut between characters, and says whether something ran") {
  OutboxTest test;
  test.base.greet();
  std::string text(rpc::limits::kErrorTextBytes - 1, 'x');
  text += "\xc3\xa4";
  OutFrame frame;
  test.outbox.put_status(frame, Status(Code::kInternal, text).with_maybe_executed(true));
  CHECK(frame.header.code == static_cast<std::uint8_t>(Code::kInternal));
  CHECK((frame.header.flags & wire::kFlagMaybeExecuted) != 0);
  CHECK(frame.text.size() == rpc::limits::kErrorTextBytes - 1);
}

TEST_CASE("nothing leaves once the endpoint is closing") {
  OutboxTest test;
  test.base.greet();
  test.base.connection->break_by(Status(Code::kCorrupt, "bad"));
  OutFrame frame = ping_frame(1);
  CHECK(!test.outbox.try_send(frame));
  test.base.connection->end(Status(Code::kCorrupt, "bad"));
  CHECK(test.outbox.submit(frame) == Sent::kRefused);
  CHECK(test.base.connection->closing_status().code() == Code::kUnavailable);
}
