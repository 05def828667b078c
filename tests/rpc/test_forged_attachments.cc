#include <doctest/doctest.h>
#include <malloc.h>

#include <utility>

#include "rpc/codec/attachments.h"
#include "tests/rpc/forger.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

// Memory of the forger's, as a table lends it.
wire::AttachmentTable table_of(const transport::DeviceRegion& region, std::uint64_t length) {
  wire::AttachmentTable table;
  table.lease = {7, 1};
  wire::AttachmentEntry& entry = table.entries.emplace_back();
  entry.length_bytes = length;
  entry.lent = true;
  entry.region = region.describe();
  return table;
}

FrameHeader attached_request(std::uint8_t flags) {
  FrameHeader out = Forger::header(FrameType::kRequest, kId);
  out.flags = flags;
  return out;
}

}  // namespace

TEST_CASE("attachments for a peer that knows none are refused, and nothing is sent, also before its hello") {
  for (const bool early : {true, false}) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    const wire::Hello old{.max_requests = 100, .optional_features = 1, .max_payload_bytes = 1 << 20};
    if (!early) forger.hello(old);
    sim.settle();
    Reply small, large;
    for (const auto& [reply, size] : {std::pair(&small, 10), std::pair(&large, 100'000)}) {
      forger.channel->call_attached({"s", "one", kNever},
                                    encode_attached_arguments(Attachment(pattern(size))), reply->handler());
    }
    if (early) forger.hello(old);
    REQUIRE(sim.until([&] { return small.done() && large.done(); }));
    for (const Reply* reply : {&small, &large}) {
      CHECK(reply->status().code() == Code::kUnimplemented);
      CHECK(!reply->status().maybe_executed());
    }
    CHECK(forger.channel->counters().lent_buffers == 0);
    sim.settle();
    CHECK(forger.received.messages.size() == 1);  // the hello
  }
}

TEST_CASE("a table that is none resets, in a frame and in a body that was offered") {
  for (const bool offered : {false, true}) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello();
    ByteVector junk(3000, std::byte{0x77});
    auto region = sim.device(0).register_memory(junk.data(), junk.size(), transport::Rights::kRemoteRead);
    REQUIRE(region.has_value());
    const wire::Offer offer{.lease = {7, 1}, .length_bytes = 3000, .region = region->describe()};
    const std::uint8_t flags = wire::kFlagAttachments | (offered ? wire::kFlagRendezvous : 0);
    forger.send(attached_request(flags), wire::encode_names("s", "raw"), offered ? offer.encode() : junk);
    forger.expect_reset(Code::kCorrupt);
  }
}

TEST_CASE("a body and attachments that come under two leases reset") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  ByteVector memory(3000);
  auto lent = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(lent.has_value());
  ByteVector body = wire::encode_attachments(table_of(*lent, 3000));
  auto region = sim.device(0).register_memory(body.data(), body.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  const wire::Offer offer{.lease = {8, 1}, .length_bytes = body.size(), .region = region->describe()};
  forger.send(attached_request(wire::kFlagAttachments | wire::kFlagRendezvous),
              wire::encode_names("s", "raw"), offer.encode());
  forger.expect_reset(Code::kCorrupt);
}

TEST_CASE("announced attachments beyond the limit are refused and released before anything is read") {
  SimFixture sim(kSeed);
  Forger forger(sim, {.peer_name = "forger", .max_payload_bytes = 50'000});
  forger.hello();
  ByteVector memory(30'000);
  auto region = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  wire::AttachmentTable table = table_of(*region, 30'000);
  table.entries.push_back(table.entries[0]);
  forger.send(attached_request(wire::kFlagAttachments), wire::encode_names("s", "raw"),
              wire::encode_attachments(table));
  const FrameHeader release = forger.wait(1);
  CHECK(release.type == FrameType::kRelease);
  CHECK(Handle::unpack(release.id) == table.lease);
  const FrameHeader reply = forger.wait(2);
  CHECK(reply.type == FrameType::kReply);
  CHECK(reply.code == static_cast<std::uint8_t>(Code::kResourceExhausted));
  CHECK(forger.channel->endpoint().counters().reads == 0);
}

TEST_CASE("attachments of a reply that nobody waits for are released") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  ByteVector memory(3000);
  auto region = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  FrameHeader reply = Forger::header(FrameType::kReply, kId);
  reply.flags = wire::kFlagAttachments;
  forger.send(reply, {}, wire::encode_attachments(table_of(*region, 3000)));
  CHECK(forger.wait(1).type == FrameType::kRelease);
  CHECK(forger.channel->counters().stale_replies == 1);
}

TEST_CASE("messages and failed replies have no attachments") {
  for (const FrameType type : {FrameType::kUserMessage, FrameType::kReply, FrameType::kPing}) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    forger.hello();
    FrameHeader header = Forger::header(type, kId);
    header.flags = wire::kFlagAttachments;
    if (type == FrameType::kReply) header.code = 3;
    forger.send(header);
    forger.expect_reset(Code::kCorrupt);
  }
}

TEST_CASE("ranges sent before the hello of a peer that knows no messages of ranges go as a copy") {
  for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
    SimFixture sim(kSeed);
    Forger forger(sim);
    const ByteVector first = pattern(size, 3);
    const ByteVector second = pattern(10, 4);
    Done sent;
    forger.channel->send_ranges(5, {Attachment(first), Attachment(second)}, kNever, sent.handler());
    forger.hello({.max_requests = 100,
                  .optional_features = wire::kOptionalFeatures & ~wire::kFeatureLentMessages,
                  .max_payload_bytes = 1 << 20});
    const wire::Frame message = forger.frame(1);
    REQUIRE(message.header.type == FrameType::kUserMessage);
    CHECK(message.header.value == 5);
    CHECK((message.header.flags & wire::kFlagAttachments) == 0);
    if (size == 100) {
      CHECK(message.header.flags == 0);
      CHECK(test::same(message.body.first(size), first));
      CHECK(test::same(message.body.subspan(size), second));
    } else {
      REQUIRE(message.header.flags == wire::kFlagRendezvous);
      const auto offer = wire::decode_offer(message.body);
      REQUIRE(offer.has_value());
      CHECK(offer->length_bytes == size + 10);
      forger.send(Forger::header(FrameType::kRelease, offer->lease.packed()));
    }
    forger.send(Forger::header(FrameType::kUserAck, message.header.id));
    REQUIRE(sim.until([&] { return sent.done(); }));
    CHECK(sent.status.ok());
    CHECK(sim.until([&] { return forger.channel->counters().lent_buffers == 0; }));
  }
}

TEST_CASE("ranges for an older peer that are more than it takes are refused once its hello has come") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  Done sent;
  forger.channel->send_ranges(5, {Attachment(pattern(100'000))}, kNever, sent.handler());
  forger.hello({.max_requests = 100, .optional_features = 1, .max_payload_bytes = 50'000});
  REQUIRE(sim.until([&] { return sent.done(); }));
  CHECK(sent.status.code() == Code::kInvalidArgument);
  CHECK(!sent.status.maybe_executed());
  CHECK(forger.channel->counters().lent_buffers == 0);
  sim.settle();
  CHECK(forger.received.messages.size() == 1);  // the hello
}

TEST_CASE("a message of ranges beyond the limit is refused before there is memory for it") {
  for (const std::uint64_t length : {std::uint64_t{60'000}, std::uint64_t{1} << 50}) {
    SimFixture sim(kSeed);
    Forger forger(sim, {.peer_name = "forger", .max_payload_bytes = 50'000});
    forger.hello();
    ByteVector memory(3000);
    auto region = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
    REQUIRE(region.has_value());
    wire::AttachmentTable table = table_of(*region, length);
    table.entries[0].region.length_bytes = length;  // more than there is
    FrameHeader header = Forger::header(FrameType::kUserMessage, kId);
    header.flags = wire::kFlagAttachments;
    header.value = 5;
    forger.send(header, {}, wire::encode_attachments(table));
    Reply received;
    forger.channel->recv(5, kNever, received.receiver());
    const FrameHeader release = forger.wait(1);
    CHECK(release.type == FrameType::kRelease);
    CHECK(Handle::unpack(release.id) == table.lease);
    const FrameHeader ack = forger.wait(2);
    CHECK(ack.type == FrameType::kUserAck);
    CHECK(ack.code == static_cast<std::uint8_t>(Code::kResourceExhausted));
    REQUIRE(sim.until([&] { return received.done(); }));
    CHECK(received.status().code() == Code::kResourceExhausted);
    CHECK(forger.channel->counters().registrations == 0);
    CHECK(forger.channel->counters().blocks_made == 0);
    CHECK(forger.channel->idle());
  }
}

TEST_CASE("messages of ranges that wait take about the memory that their frames have") {
  SimFixture sim(kSeed);
  Forger forger(sim);
  forger.hello();
  FrameHeader header = Forger::header(FrameType::kUserMessage, kId);
  header.flags = wire::kFlagAttachments;
  header.value = 5;
  wire::AttachmentTable table;
  table.entries.resize(800);  // empty ones, of 9 bytes each: a frame that fits into a slot
  const ByteVector body = wire::encode_attachments(table);
  const auto used = [] {
    const auto now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = used();
  for (int i = 0; i < 500; ++i) {
    ++header.id;
    forger.send(header, {}, body);
  }
  sim.settle();
  CHECK(used() < before + 1000 * body.size());
  forger.send(Forger::header(FrameType::kPing, kId));
  sim.settle();
  INFO(forger.owner.reason.to_string());
  CHECK(forger.wait(1).type == FrameType::kPong);  // none of them was refused
}
