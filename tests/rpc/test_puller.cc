#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "rpc/server/server_impl.h"
#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

constexpr Handle kLease{5, 1};
constexpr std::size_t kBytes = 300'000;

struct PullerTest {
  explicit PullerTest(ChannelOptions options = {.peer_name = "peer"}) : parts(std::move(options)) {
    parts.base.greet();
  }
  ~PullerTest() {
    parts.connection().end(Status(Code::kUnavailable, "the test is over"));
    parts.finish();
  }
  // Reads what the peer lends, to the end.
  Result<Payload> pull(const wire::Frame& frame) {
    Reply reply;
    const Status status = puller.pull(frame, reply.handler());
    if (!status.ok()) return status;
    REQUIRE(parts.sim.until([&] { return reply.done(); }));
    CHECK(reply.calls == 1);
    return std::move(*reply.value);
  }
  std::size_t releases() { return parts.frames_of(wire::FrameType::kRelease); }

  CallsBase parts;
  AttachmentRoom room{parts.connection()};
  Puller puller{parts.connection(), parts.outbox, room, parts.base, nullptr, parts.base.account};
};

wire::AttachmentEntry lent_entry(const PeerLoan& loan) {
  wire::AttachmentEntry entry;
  entry.length_bytes = loan.data.size();
  entry.lent = true;
  entry.region = loan.region.describe();
  return entry;
}

}  // namespace

TEST_CASE("an offered body is read and its memory released, once") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  const auto body = test.pull(loan.frame);
  REQUIRE_MESSAGE(body.has_value(), body.status().to_string());
  CHECK(same(body->bytes(), loan.data));
  CHECK(test.puller.empty());
  CHECK(test.puller.counters().pulled_bytes == kBytes);
  CHECK(test.releases() == 1);
  CHECK(test.parts.last_frame().header.id == kLease.packed());
}

TEST_CASE("a body of more pieces than one is read whole") {
  PullerTest test;
  PeerLoan loan(test.parts, rpc::limits::kPullBytes + rpc::limits::kPullRestBytes + 1, kLease);
  const auto body = test.pull(loan.frame);
  REQUIRE_MESSAGE(body.has_value(), body.status().to_string());
  CHECK(same(body->bytes(), loan.data));
  CHECK(test.releases() == 1);
}

TEST_CASE("bytes that are no offer are corrupt, and no handler is called") {
  PullerTest test;
  const ByteVector nonsense = pattern(10);
  wire::Frame frame;
  frame.header.flags = wire::kFlagRendezvous;
  frame.body = nonsense;
  Reply reply;
  CHECK(test.puller.pull(frame, reply.handler()).code() == Code::kCorrupt);
  CHECK(test.puller.give_back(frame).code() == Code::kCorrupt);
  CHECK(reply.calls == 0);
  CHECK(test.puller.empty());
}

TEST_CASE("all pulls together announce no more than one payload may have") {
  PullerTest test({.peer_name = "peer", .max_payload_bytes = kBytes + 1});
  PeerLoan first(test.parts, kBytes, kLease);
  PeerLoan second(test.parts, kBytes, {6, 1});
  Reply read;
  Reply refused;
  REQUIRE(test.puller.pull(first.frame, read.handler()).ok());
  REQUIRE(test.puller.pull(second.frame, refused.handler()).ok());
  REQUIRE(refused.done());
  CHECK(refused.status().code() == Code::kResourceExhausted);
  REQUIRE(test.parts.sim.until([&] { return read.done(); }));
  CHECK(read.status().ok());
  CHECK(test.releases() == 2);
  CHECK(test.pull(second.frame).has_value());
}

TEST_CASE("what is not wanted is given back unread") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  CHECK(test.puller.give_back(loan.frame).ok());
  CHECK(test.releases() == 1);
  CHECK(test.puller.counters().pulled_bytes == 0);
}

TEST_CASE("attachments are read beside the body: inline, lent, and into memory that the call named") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  const ByteVector small = pattern(100, 2);
  const ByteVector message = pattern(10, 3);
  wire::AttachmentTable table;
  table.lease = kLease;
  table.body = message;
  wire::AttachmentEntry inline_entry;
  inline_entry.length_bytes = small.size();
  inline_entry.bytes = small;
  table.entries.push_back(inline_entry);
  table.entries.push_back(lent_entry(loan));
  const ByteVector bytes = wire::encode_attachments(table);
  wire::Frame frame;
  frame.header.flags = wire::kFlagAttachments;
  frame.body = bytes;

  ByteVector named(200);
  Destinations into;
  into.emplace_back(MutableBytes(named));
  std::uint64_t number = 0;
  Reply reply;
  CallHandler handler = test.room.keep(std::move(into), reply.handler(), number);
  REQUIRE(
      test.puller
          .pull_reply(frame, {1, 1}, number, [&](Result<Payload> payload) { handler(std::move(payload)); })
          .ok());
  REQUIRE(test.parts.sim.until([&] { return reply.done(); }));
  REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
  const Payload& payload = **reply.value;
  CHECK(same(payload.bytes(), message));
  REQUIRE(payload.attachments().size() == 2);
  CHECK(payload.attachments()[0].bytes().data() == named.data());
  CHECK(same(payload.attachments()[0].bytes(), small));
  CHECK(same(payload.attachments()[1].bytes(), loan.data));
  CHECK(test.puller.counters().copied_bytes == small.size());
  CHECK(test.releases() == 1);
}

TEST_CASE("an attachment that is larger than the memory named for it is refused, and given back") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  wire::AttachmentTable table;
  table.lease = kLease;
  table.entries.push_back(lent_entry(loan));
  const ByteVector bytes = wire::encode_attachments(table);
  wire::Frame frame;
  frame.header.flags = wire::kFlagAttachments;
  frame.body = bytes;
  ByteVector named(10);
  Destinations into;
  into.emplace_back(MutableBytes(named));
  std::uint64_t number = 0;
  const CallHandler ends = test.room.keep(
      std::move(into), [](Result<Payload>) {}, number);
  Reply reply;
  REQUIRE(test.puller.pull_reply(frame, {1, 1}, number, reply.handler()).ok());
  REQUIRE(reply.done());
  CHECK(reply.status().code() == Code::kInvalidArgument);
  CHECK(test.releases() == 1);
}

TEST_CASE("a call that named memory ends after the read that is under way, any other call at once") {
  PullerTest test;
  const Status cancelled(Code::kCancelled, "cancelled");
  for (const std::uint64_t into : {1U, 0U}) {
    PeerLoan loan(test.parts, kBytes, {static_cast<std::uint32_t>(into) + 1, 1});
    const Handle call{static_cast<std::uint32_t>(into), 1};
    Reply reply;
    REQUIRE(test.puller.pull_reply(loan.frame, call, into, reply.handler()).ok());
    CHECK(test.puller.abort_reply(call, cancelled) == (into != 0));
    CHECK(!reply.done());
    REQUIRE(test.parts.sim.until([&] { return reply.done(); }));
    CHECK(reply.status().code() == Code::kCancelled);
    CHECK(test.puller.empty());
  }
  CHECK(!test.puller.abort_reply({9, 9}, cancelled));
}

TEST_CASE("a request without a place in a server is read, or ends when its caller cancels") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  Server::Found found;
  const Handle served{1, 1};
  Reply read;
  REQUIRE(test.puller
              .pull_request(
                  loan.frame, {}, found, served, [] {}, read.handler())
              .ok());
  REQUIRE(test.parts.sim.until([&] { return read.done(); }));
  CHECK(read.status().ok());
  Reply aborted;
  REQUIRE(test.puller
              .pull_request(
                  loan.frame, {}, found, served, [] {}, aborted.handler())
              .ok());
  test.puller.abort_request(served);
  REQUIRE(test.parts.sim.until([&] { return aborted.done(); }));
  CHECK(aborted.status().code() == Code::kCancelled);
  CHECK(test.releases() == 2);
}

TEST_CASE("the end of the connection drops all pulls without a word") {
  PullerTest test;
  PeerLoan loan(test.parts, kBytes, kLease);
  Reply reply;
  REQUIRE(test.puller.pull(loan.frame, reply.handler()).ok());
  test.parts.connection().end(Status(Code::kUnavailable, "the wire broke"));
  test.parts.connection().begin_destroying();
  test.parts.finish();
  test.puller.clear();
  CHECK(!reply.done());
}
