// A peer that sends any frames to a channel with a server, calls, messages and streams under way.
// Bit 0 of the first byte: begin with a valid hello, by which the channel may send long messages if
// bit 1 is set, and messages of ranges if bit 2 is. Then records: a length (u16), and that many
// bytes of one message. An offer with an odd lease gets a real region; so does a table of
// attachments with an odd first byte. Every handler is called once, and nothing is left at the end.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "rpc/channel.h"
#include "rpc/codec/attachments.h"
#include "rpc/codec/frame.h"
#include "rpc/interceptor.h"
#include "rpc/stream.h"
#include "transport/sim/sim.h"

namespace slime::rpc {
namespace {

// The largest record: a long message of eight slots, which may be a request or a reply.
constexpr std::size_t kMostBytes = 4096;

class Sink final : public transport::Receiver {
 public:
  void on_message(transport::Message) noexcept override {}
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {}
};

class Owner final : public ChannelOwner {
 public:
  void on_channel_ready() noexcept override {}
  void on_channel_imm(std::uint32_t) noexcept override {}
  Result<transport::RegionDescriptor> on_region_lookup(std::string_view) noexcept override {
    return Status(Code::kNotFound, "none");
  }
  void on_region_revoked(std::string_view) noexcept override {}
  // Accepts every second proof.
  Status on_channel_proof(Bytes proof) noexcept override {
    return proof.size() % 2 == 0 ? Status() : Status(Code::kUnauthenticated, "wrong");
  }
  void on_channel_closed(const Status&) noexcept override {
    SLIME_CHECK(!closed);
    closed = true;
  }
  bool closed = false;
};

// Admits calls without a token, or with a valid one; counts that each admitted call ends.
class Guard final : public ServerInterceptor {
 public:
  Status before(ServerCall& call) override {
    if (call.info.metadata("token").value_or("x") != "x") return Status(Code::kUnauthenticated, "no");
    SLIME_CHECK(call.metadata.entries().size() <= limits::kMetadataEntries);
    ++inside;
    return {};
  }
  void after(const CallInfo&, const Status&, const CallTiming& times) override {
    SLIME_CHECK(times.queue + times.handler == times.total);
    --inside;
  }
  int inside = 0;
};

class SendOnce final : public transport::Operation {
 public:
  void complete(Status) noexcept override {}
};

ByteVector message_of(wire::FrameHeader header, Bytes text, Bytes body) {
  ByteVector out;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  ByteWriter writer(out);
  writer.append(std::as_bytes(std::span(&header, 1)));
  writer.append(text);
  writer.append(body);
  if (out.size() > kMostBytes) out.resize(kMostBytes);
  return out;
}

// Makes a table with a real region. The first bytes of the input choose the number of entries,
// their lengths, and which of them are inline.
ByteVector make_table(Bytes input, const transport::RegionDescriptor& region) {
  ByteReader in(input);
  wire::AttachmentTable table;
  table.entries.resize(1 + in.read<std::uint8_t>() / 2 % 4);
  for (wire::AttachmentEntry& entry : table.entries) {
    const auto length = in.read<std::uint16_t>();
    entry.lent = length % 2 == 1;
    entry.offset = entry.lent ? in.read<std::uint8_t>() : 0;
    entry.length_bytes = length % 4000;
    entry.region = region;
    if (entry.lent) table.lease = {length, 1};
    if (!entry.lent) entry.bytes = in.take(entry.length_bytes % 32);
    if (!entry.lent) entry.length_bytes = entry.bytes.size();
  }
  table.body = in.take(in.remaining());
  return wire::encode_attachments(table);
}

// Returns the records of the input, with real regions where the input asks for one.
std::vector<ByteVector> messages(Bytes input, const transport::RegionDescriptor& region) {
  std::vector<ByteVector> out;
  if (input.empty()) return out;
  if ((std::to_integer<int>(input[0]) & 1) != 0) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kHello;
    header.body_bytes = sizeof(wire::Hello);
    wire::Hello hello;
    hello.max_requests = 100;
    hello.optional_features =
        wire::kFeatureCancel | wire::kFeatureStreams | wire::kFeatureSignatures | wire::kFeatureProofs;
    if ((std::to_integer<int>(input[0]) & 2) != 0) hello.optional_features |= wire::kFeatureLongMessages;
    if ((std::to_integer<int>(input[0]) & 4) != 0) hello.optional_features |= wire::kFeatureLentMessages;
    hello.max_payload_bytes = 1 << 20;
    ByteWriter writer(out.emplace_back());
    writer.append(std::as_bytes(std::span(&header, 1)));
    writer.append(std::as_bytes(std::span(&hello, 1)));
  }
  ByteReader in(input.subspan(1));
  while (in.remaining() > 2 && out.size() < 200) {
    const std::size_t size =
        std::min<std::size_t>(in.read<std::uint16_t>(), std::min(in.remaining(), kMostBytes));
    const Bytes bytes = in.take(size);
    ByteVector& message = out.emplace_back(bytes.begin(), bytes.end());
    wire::decode_attachments(message).status().ignore();
    wire::decode_attachment_value(message).status().ignore();
    const auto frame = wire::decode_frame(message);
    if (frame && wire::signature_of(*frame) != 0)
      SLIME_CHECK(frame->header.method == 0 && frame->text.size() > 8);
    if (!frame || frame->body.size() < 16 || (std::to_integer<int>(frame->body[0]) & 1) == 0) continue;
    const ByteVector text(frame->text.begin(), frame->text.end());
    if ((frame->header.flags & wire::kFlagRendezvous) != 0) {
      wire::Offer offer;
      std::memcpy(&offer.lease, frame->body.data(), 8);
      std::memcpy(&offer.length_bytes, frame->body.data() + 8, 8);
      offer.region = region;
      message = message_of(frame->header, text, offer.encode());
    } else if ((frame->header.flags & wire::kFlagAttachments) != 0) {
      message = message_of(frame->header, text, make_table(frame->body, region));
    }
  }
  return out;
}

void run(Bytes input) {
  transport::sim::SimFabric fabric(
      {.seed = 1, .max_delay = std::chrono::microseconds(1), .torn = false, .long_messages = true});
  const transport::PortOptions port{
      .slot_bytes = 512, .pool_slots = 64, .base_credits = 20, .max_credits = 32};
  auto forger = fabric.make_host(port);
  auto victim = fabric.make_host(port);
  SLIME_CHECK(forger && victim);
  ByteVector memory(3000, std::byte{0x91});
  const ByteVector table =
      wire::encode_attachments({.entries = {{.length_bytes = 2, .bytes = Bytes(memory).first(2)}},
                                .body = encode_attached_arguments(Attachment()).body});
  std::copy(table.begin(), table.end(), memory.begin());  // an offered body may begin with the
                                                          // table
  auto region =
      (*forger)->device().register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  SLIME_CHECK(region.has_value());
  auto pair = fabric.connect(**forger, **victim);
  SLIME_CHECK(pair.has_value());
  Sink sink;
  pair->a->set_receiver(sink);

  Server server({}, fabric.clock());
  Service service("s");
  std::vector<Request> held;
  SLIME_CHECK(service
                  .add("m", [](int a, std::string b) { return b.size() + static_cast<std::size_t>(a); },
                       {Run::kInline})
                  .ok());
  SLIME_CHECK(
      service.add_raw("h", [&](Request request) { held.push_back(std::move(request)); }, {Run::kInline})
          .ok());
  SLIME_CHECK(service
                  .add_bytes("b",
                             [](const CallInfo& info, Bytes bytes) {
                               SLIME_CHECK(info.raw);
                               SLIME_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) %
                                               Service::kBytesAlignment ==
                                           0);
                               return ByteVector(bytes.begin(), bytes.end());
                             },
                             {Run::kInline})
                  .ok());
  std::vector<std::unique_ptr<ServerStream<int, int>>> streams;
  int reads = 0;
  int reads_ended = 0;
  SLIME_CHECK(service
                  .add("t",
                       [&](ServerStream<int, int> stream) {
                         for (int i = 0; i < 3; ++i, ++reads) {
                           stream.read().on_done([&] { ++reads_ended; });
                           static_cast<void>(stream.write(i));
                         }
                         streams.push_back(std::make_unique<ServerStream<int, int>>(std::move(stream)));
                       },
                       {.run = Run::kInline})
                  .ok());
  SLIME_CHECK(service.add("a", [](Attachment a) { return a; }, {Run::kInline}).ok());
  SLIME_CHECK(server.add(service).ok());
  const auto guard = std::make_shared<Guard>();
  server.add_interceptor(guard);
  server.add_interceptor(server_tracing());
  Owner owner;
  auto channel = Channel::create(fabric.loop(), (*victim)->device(), std::move(pair->b), &server, owner,
                                 {.peer_name = "fuzz",
                                  .max_calls = 20,
                                  .inbox_messages = 10,
                                  .inbox_bytes = 4000,
                                  .max_payload_bytes = 1 << 16,
                                  .streams = {.window = 2, .window_bytes = 1000}});
  const TimePoint deadline = fabric.clock().now() + std::chrono::seconds(2);
  int asked = 0;
  int ended = 0;
  const auto end = [&](const auto&) { ++ended; };
  std::vector<std::shared_ptr<CallContext>> contexts;
  for (int i = 0; i < 2; ++i, asked += 6) {
    // The replies may contain times.
    contexts.push_back(std::make_shared<CallContext>());
    contexts.back()->timed = i == 0;
    SLIME_CHECK(contexts.back()->metadata.set("k", "v").ok());
    channel->call({"x", "z", deadline, contexts.back()}, ByteVector(10), end);
    channel->call({"x", "y", deadline, {}, i == 0 ? 0U : 7U}, ByteVector(i == 0 ? 10 : 2000), end);
    channel->send(1, ByteVector(i == 0 ? 10 : 2000), deadline, end);
    channel->recv(static_cast<std::uint64_t>(i), deadline, end);
    channel->lookup_region("r", deadline, end);
    channel->ping(deadline, end);
  }
  // The first stream: index 10 of the table, after the calls above.
  const auto asked_stream = std::make_shared<StreamEnd>(nullptr, true);
  const auto carried = [&contexts] {
    contexts.push_back(std::make_shared<CallContext>());
    contexts.back()->timed = true;
    SLIME_CHECK(contexts.back()->metadata.set("k", "v", Need::kOptional).ok());
    return contexts.back();
  };
  channel->stream({"x", "t", deadline, carried()}, {ByteVector(4)}, asked_stream, end);
  ++asked;
  for (std::size_t i = 0; i < 3; ++i, ++reads) {
    asked_stream->read().on_done([&] { ++reads_ended; });
    static_cast<void>(asked_stream->write(ByteVector(i == 1 ? 2000 : 5)));
  }
  // Then indices 11 and 12.
  ByteVector guarded(300, std::byte{0xa5});
  for (int i = 0; i < 2; ++i, ++asked) {
    AttachedBody body = encode_attached_arguments(Attachment(ByteVector(i == 0 ? 10 : 2000)));
    body.into.emplace_back(MutableBytes(guarded).subspan(100, 100));
    channel->call_attached({"x", "y", deadline, i == 0 ? nullptr : carried()}, std::move(body), end);
  }

  // Then receives into memory, with tags 2 and 3, and messages of ranges.
  for (int i = 0; i < 2; ++i, asked += 2) {
    Destinations into;
    for (const std::size_t at : {100U, 150U}) into.emplace_back(MutableBytes(guarded).subspan(at, 50));
    channel->recv_into(static_cast<std::uint64_t>(2 + i), std::move(into), deadline, end);
    channel->send_ranges(1, {Attachment(ByteVector(i == 0 ? 10 : 2000)), Attachment(ByteVector(5))}, deadline,
                         end);
  }

  std::vector<std::unique_ptr<SendOnce>> operations;
  for (const ByteVector& message : messages(input, region->describe())) {
    operations.push_back(std::make_unique<SendOnce>());
    const Bytes part = message;
    for (int i = 0; i < 50 && !pair->a->send(std::span(&part, 1), *operations.back()).ok(); ++i)
      fabric.step();
    fabric.step();
    SLIME_CHECK(channel->counters().queued_frames <= 300);
    SLIME_CHECK(held.size() <= 20);
  }
  fabric.run_until_idle(std::chrono::seconds(1));
  for (Request& request : held) request.reply(ByteVector(2000));
  held.clear();
  for (auto& stream : streams) stream->finish(None{});
  streams.clear();
  fabric.run_until_idle(std::chrono::seconds(5));
  SLIME_CHECK(ended == asked);
  SLIME_CHECK(guard->inside == 0);
  for (const auto& context : contexts) {
    const CallTiming& timing = context->timing;
    SLIME_CHECK(timing.queue + timing.handler + timing.network == timing.total);
    SLIME_CHECK(!timing.split || context->timed);
  }
  asked_stream->discard();
  for (std::size_t i = 0; i < 100; ++i)
    SLIME_CHECK(guarded[i] == std::byte{0xa5} && guarded[200 + i] == std::byte{0xa5});
  channel->close(std::chrono::seconds(1));
  fabric.run_until_idle(std::chrono::seconds(5));
  SLIME_CHECK(owner.closed);
  SLIME_CHECK(channel->counters().lent_buffers == 0);
  SLIME_CHECK(channel->counters().calls_in_flight == 0);
  SLIME_CHECK(channel->counters().streams == 0);
  channel.reset();
  pair->a.reset();
  fabric.run_until_idle(std::chrono::seconds(1));
  SLIME_CHECK(reads_ended == reads);
  SLIME_CHECK((*victim)->port().free_slots() == 64);
}

}  // namespace
}  // namespace slime::rpc

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 16 * 1024) return 0;
  slime::rpc::run(slime::Bytes(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
