#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "rpc/codec/attachments.h"
#include "rpc/codec/frame.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::wire;

namespace {

ByteVector unhex(std::string text) {
  std::erase(text, ' ');
  ByteVector out(text.size() / 2);
  REQUIRE(from_hex(text, out));
  return out;
}

ByteVector bytes_of(FrameHeader header, Bytes text, Bytes body) {
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  ByteVector out;
  ByteWriter writer(out);
  writer.append(std::as_bytes(std::span(&header, 1)));
  writer.append(text);
  writer.append(body);
  return out;
}

FrameHeader header_of(FrameType type, std::uint64_t id = 0) {
  FrameHeader header;
  header.type = type;
  header.id = id;
  return header;
}

Offer sample_offer() {
  Offer offer;
  offer.lease = {1, 2};
  offer.length_bytes = 0x1000;
  offer.region.id = {3, 4};
  offer.region.length_bytes = 0x2000;
  offer.region.rights = transport::Rights::kRemoteRead;
  offer.region.key = transport::PackedKey(as_bytes("a key"));
  return offer;
}

// Every frame of the page docs/wire-format.md with its bytes: what is written there never changes.
struct Golden {
  const char* what;
  ByteVector built;
  std::string hex;
};

std::vector<Golden> golden_frames() {
  const std::uint64_t id = Handle{7, 1}.packed();
  std::vector<Golden> out;
  const auto add = [&](const char* what, const FrameHeader& header, Bytes text, Bytes body, std::string hex) {
    out.push_back({what, bytes_of(header, text, body), std::move(hex)});
  };
  Hello hello;
  hello.max_requests = 65536;
  hello.optional_features = kFeatureCancel;
  hello.max_payload_bytes = std::uint64_t{64} << 30;
  add("hello", header_of(FrameType::kHello), {}, std::as_bytes(std::span(&hello, 1)),
      "01000000 00000000 0000000000000000 0000000000000000 00000000 20000000"
      "02000000 00000100 0000000000000000 0100000000000000 0000000010000000");
  const ByteVector arguments = unhex("920203");
  FrameHeader request = header_of(FrameType::kRequest, id);
  request.value = 1'000'000'000;
  add("request by name", request, encode_names("calc", "add"), arguments,
      "02000000 00000000 0700000001000000 00ca9a3b00000000 0b000000 03000000"
      "0400 63616c63 0300 616464 920203");
  request.method = 1;
  request.value = kNoDeadline;
  add("request by number", request, {}, arguments,
      "02000000 01000000 0700000001000000 ffffffffffffffff 00000000 03000000 920203");
  request.flags = kFlagRendezvous;
  add("request by rendezvous", request, {}, sample_offer().encode(),
      "02010000 01000000 0700000001000000 ffffffffffffffff 00000000 28000000"
      "0100000002000000 0010000000000000"
      "0300000004000000 0020000000000000 01 0500 61206b6579");
  Metadata metadata;
  REQUIRE(metadata.set("k", "v").ok());
  request.flags = kFlagMetadata;
  ByteVector extras;
  encode_extras(metadata, false, extras);
  add("request with metadata, by number", request, extras, arguments,
      "02200000 01000000 0700000001000000 ffffffffffffffff 0a000000 03000000"
      "0800 00 01 0100 6b 0100 76 920203");
  request.method = 0;
  ByteVector names = encode_names("calc", "add");
  encode_extras({}, true, names);
  add("timed request, by name", request, names, arguments,
      "02200000 00000000 0700000001000000 ffffffffffffffff 0f000000 03000000"
      "0400 63616c63 0300 616464 0200 01 00 920203");
  FrameHeader reply = header_of(FrameType::kReply, id);
  reply.method = 1;
  add("reply", reply, {}, unhex("05"),
      "03000000 01000000 0700000001000000 0000000000000000 00000000 01000000 05");
  reply.code = static_cast<std::uint8_t>(Code::kInternal);
  reply.flags = kFlagMaybeExecuted;
  add("failed reply", reply, as_bytes("boom"), {},
      "03020d00 01000000 0700000001000000 0000000000000000 04000000 00000000 626f6f6d");
  FrameHeader one_way = header_of(FrameType::kRequest, id);
  one_way.flags = kFlagOneWay;
  one_way.method = 1;
  one_way.value = kNoDeadline;
  add("one-way request", one_way, {}, arguments,
      "02100000 01000000 0700000001000000 ffffffffffffffff 00000000 03000000 920203");
  reply.flags = kFlagOneWay | kFlagMaybeExecuted;
  add("failed one-way request", reply, as_bytes("boom"), {},
      "03120d00 01000000 0700000001000000 0000000000000000 04000000 00000000 626f6f6d");
  reply.flags = kFlagMaybeExecuted | kFlagTiming;
  add("failed reply with times", reply, unhex("0100000000000000 0002000000000000 626f6f6d"), {},
      "03220d00 01000000 0700000001000000 0000000000000000 14000000 00000000"
      "0100000000000000 0002000000000000 626f6f6d");
  reply.flags = kFlagTiming;
  reply.code = 0;
  add("reply with times", reply, unhex("0100000000000000 0002000000000000"), unhex("05"),
      "03200000 01000000 0700000001000000 0000000000000000 10000000 01000000"
      "0100000000000000 0002000000000000 05");
  FrameHeader message = header_of(FrameType::kUserMessage, id);
  message.value = 99;
  add("user message", message, {}, as_bytes("hi"),
      "04000000 00000000 0700000001000000 6300000000000000 00000000 02000000 6869");
  message.flags = kFlagAttachments;
  AttachmentTable ranges;
  AttachmentEntry& range = ranges.entries.emplace_back();
  range.length_bytes = 2;
  range.bytes = as_bytes("hi");
  add("user message of ranges", message, {}, encode_attachments(ranges),
      "04040000 00000000 0700000001000000 6300000000000000 00000000 1b000000"
      "01000000 00000000 0000000000000000 0200000000000000 00 6869");
  add("user ack", header_of(FrameType::kUserAck, id), {}, {},
      "05000000 00000000 0700000001000000 0000000000000000 00000000 00000000");
  add("cancel", header_of(FrameType::kCancel, id), {}, {},
      "0c000000 00000000 0700000001000000 0000000000000000 00000000 00000000");
  add("release", header_of(FrameType::kRelease, Handle{1, 2}.packed()), {}, {},
      "06000000 00000000 0100000002000000 0000000000000000 00000000 00000000");
  add("region look-up", header_of(FrameType::kRegionLookup, id), as_bytes("w"), {},
      "07000000 00000000 0700000001000000 0000000000000000 01000000 00000000 77");
  ByteVector region;
  ByteWriter region_writer(region);
  sample_offer().region.encode(region_writer);
  add("region reply", header_of(FrameType::kRegionReply, id), {}, region,
      "08000000 00000000 0700000001000000 0000000000000000 00000000 18000000"
      "0300000004000000 0020000000000000 01 0500 61206b6579");
  add("region revoked", header_of(FrameType::kRegionRevoked), as_bytes("w"), {},
      "09000000 00000000 0000000000000000 0000000000000000 01000000 00000000 77");
  add("ping", header_of(FrameType::kPing, id), {}, {},
      "0a000000 00000000 0700000001000000 0000000000000000 00000000 00000000");
  add("pong", header_of(FrameType::kPong, id), {}, {},
      "0b000000 00000000 0700000001000000 0000000000000000 00000000 00000000");
  add("closing", header_of(FrameType::kClosing), {}, {},
      "0d000000 00000000 0000000000000000 0000000000000000 00000000 00000000");
  request.flags = kFlagStream;
  request.method = 1;
  request.value = 1'000'000'000;
  add("a request that opens a stream", request, {}, unhex("91cd03e8"),
      "02080000 01000000 0700000001000000 00ca9a3b00000000 00000000 04000000 91cd03e8");
  FrameHeader credit = header_of(FrameType::kCredit, id);
  credit.value = 64;
  add("credit of the caller", credit, {}, {},
      "0f000000 00000000 0700000001000000 4000000000000000 00000000 00000000");
  FrameHeader data = header_of(FrameType::kData, id);
  data.flags = kFlagFromHandler;
  add("data of the handler", data, {}, unhex("05"),
      "0e400000 00000000 0700000001000000 0000000000000000 00000000 01000000 05");
  data.flags = kFlagFromHandler | kFlagRendezvous;
  add("data by rendezvous", data, {}, sample_offer().encode(),
      "0e410000 00000000 0700000001000000 0000000000000000 00000000 28000000"
      "0100000002000000 0010000000000000"
      "0300000004000000 0020000000000000 01 0500 61206b6579");
  add("end of the caller", header_of(FrameType::kEnd, id), {}, {},
      "10000000 00000000 0700000001000000 0000000000000000 00000000 00000000");
  add("proof", header_of(FrameType::kProof, 0), {}, unhex("534c4853"),
      "11000000 00000000 0000000000000000 0000000000000000 00000000 04000000 534c4853");
  FrameHeader expelled = header_of(FrameType::kProof, 0);
  expelled.code = static_cast<std::uint8_t>(Code::kUnauthenticated);
  add("proof, with a code", expelled, as_bytes("no"), {},
      "11000500 00000000 0000000000000000 0000000000000000 02000000 00000000 6e6f");
  return out;
}

}  // namespace

TEST_CASE("every frame has the bytes that are written down, and is read back") {
  for (const Golden& golden : golden_frames()) {
    CAPTURE(golden.what);
    CHECK(to_hex(golden.built) == to_hex(unhex(golden.hex)));
    const auto frame = decode_frame(golden.built);
    REQUIRE_MESSAGE(frame.has_value(), frame.status().to_string());
    CHECK(std::memcmp(&frame->header, golden.built.data(), sizeof frame->header) == 0);
  }
}

TEST_CASE("the parts of a frame are where they belong") {
  const auto frames = golden_frames();
  const auto named = decode_frame(frames[1].built);
  REQUIRE(named.has_value());
  CHECK(named->service == "calc");
  CHECK(named->method == "add");
  CHECK(to_hex(named->body) == "920203");
  const auto offered = decode_frame(frames[3].built);
  REQUIRE(offered.has_value());
  const auto offer = decode_offer(offered->body);
  REQUIRE(offer.has_value());
  CHECK(offer->lease == Handle{1, 2});
  CHECK(offer->length_bytes == 0x1000);
  CHECK(offer->region.length_bytes == 0x2000);
  CHECK(std::ranges::equal(offer->region.key.bytes(), as_bytes("a key")));
  const auto hello = decode_frame(frames[0].built);
  REQUIRE(hello.has_value());
  const auto greeting = decode_hello(hello->body);
  REQUIRE(greeting.has_value());
  CHECK(greeting->max_requests == 65536);
}

TEST_CASE("a frame that is cut or longer is refused") {
  for (const Golden& golden : golden_frames()) {
    CAPTURE(golden.what);
    for (std::size_t size = 0; size < golden.built.size(); ++size)
      CHECK(decode_frame(Bytes(golden.built).first(size)).status().code() == Code::kCorrupt);
    ByteVector longer = golden.built;
    longer.push_back(std::byte{0});
    CHECK(decode_frame(longer).status().code() == Code::kCorrupt);
  }
}

TEST_CASE("a field that a type does not have must be zero") {
  const auto refused = [](FrameHeader header, std::string_view text = {}, std::string_view body = {}) {
    return decode_frame(bytes_of(header, as_bytes(text), as_bytes(body))).status().code() == Code::kCorrupt;
  };
  const std::uint64_t id = Handle{7, 1}.packed();
  FrameHeader ping = header_of(FrameType::kPing, id);
  CHECK(!refused(ping));
  CHECK(refused(header_of(FrameType::kPing, 0)));
  CHECK(refused(header_of(FrameType::kPing, 7)));  // generation 0
  CHECK(refused(ping, "text"));
  CHECK(refused(ping, "", "body"));
  for (const auto change : {+[](FrameHeader& h) { h.flags = 1; }, +[](FrameHeader& h) { h.flags = 4; },
                            +[](FrameHeader& h) { h.code = 1; }, +[](FrameHeader& h) { h.reserved = 1; },
                            +[](FrameHeader& h) { h.method = 1; }, +[](FrameHeader& h) { h.value = 1; }}) {
    FrameHeader changed = ping;
    change(changed);
    CHECK(refused(changed));
  }
  CHECK(refused(header_of(static_cast<FrameType>(0), id)));
  CHECK(refused(header_of(static_cast<FrameType>(18), id)));
  CHECK(refused(header_of(static_cast<FrameType>(255), id)));
  // A failed reply has a text and no body, a good one the other way round.
  FrameHeader reply = header_of(FrameType::kReply, id);
  CHECK(refused(reply, "text", "body"));
  reply.flags = kFlagMaybeExecuted;
  CHECK(refused(reply, "", "body"));
  reply.code = 3;
  CHECK(!refused(reply, "text"));
  CHECK(refused(reply, "text", "body"));
  CHECK(refused(reply, std::string(rpc::limits::kErrorTextBytes + 1, 'x')));
  reply.flags = kFlagRendezvous;
  CHECK(refused(reply, "text"));
  // Flags of streams.
  FrameHeader end = header_of(FrameType::kEnd, id);
  end.flags = kFlagFromHandler;
  CHECK(!refused(end));
  end.flags = kFlagStream;
  CHECK(refused(end));
  reply.flags = kFlagStream;
  CHECK(refused(reply, "text"));
  // Names.
  FrameHeader request = header_of(FrameType::kRequest, id);
  CHECK(refused(request));
  CHECK(refused(request, std::string_view("\0\0\1\0m", 5)));
  CHECK(refused(request, std::string_view("\1\0s\1\0mx", 7)));
  CHECK(!refused(request, std::string_view("\1\0s\1\0m", 6)));
  request.method = 4;
  CHECK(refused(request, std::string_view("\1\0s\1\0m", 6)));
  CHECK(refused(header_of(FrameType::kRegionLookup, id)));
  CHECK(refused(header_of(FrameType::kRegionRevoked), std::string(256, 'n')));
}

TEST_CASE("metadata and times that are malformed are refused") {
  const std::uint64_t id = Handle{7, 1}.packed();
  FrameHeader request = header_of(FrameType::kRequest, id);
  request.method = 1;
  request.flags = kFlagMetadata;
  const auto refused = [](const FrameHeader& header, const std::string& hex) {
    return decode_frame(bytes_of(header, unhex(hex), {})).status().code() == Code::kCorrupt;
  };
  CHECK_FALSE(refused(request, "0800 00 01 0100 6b 0100 76"));
  CHECK_FALSE(refused(request, "0700 01 01 0100 6b 0000"));
  CHECK(refused(request, ""));
  CHECK(refused(request, "0200 00 00"));                                  // flagged for nothing
  CHECK(refused(request, "0200 02 00"));                                  // a wish that is unknown
  CHECK(refused(request, "0800 00 02 0100 6b 0100 76"));                  // fewer than it says
  CHECK(refused(request, "0800 00 00 0100 6b 0100 76"));                  // more
  CHECK(refused(request, "0900 00 01 0100 6b 0100 76"));                  // a block that ends behind the text
  CHECK(refused(request, "0800 00 01 0100 6b 0100 76 00"));               // something behind it
  CHECK(refused(request, "0700 00 01 0000 0100 76"));                     // no key
  CHECK(refused(request, "0800 00 01 0100 0a 0100 76"));                  // a key with a control character
  CHECK(refused(request, "0800 00 01 0100 6b 0100 ff"));                  // a value that is no text
  CHECK(refused(request, "0e00 00 02 0100 6b 0100 76 0100 6b 0100 76"));  // a key twice
  std::string many = "c600 00 21";                                        // 33 entries
  for (int i = 0; i < 33; ++i) many += "0200" + to_hex(as_bytes(std::to_string(10 + i))) + "0000";
  CHECK(refused(request, many));
  std::string large = "0910 00 01 0100 6b 0010";  // a value of 4,096 bytes, and its key
  for (int i = 0; i < 4096; ++i) large += "78";
  CHECK(refused(request, large));

  FrameHeader reply = header_of(FrameType::kReply, id);
  reply.flags = kFlagTiming;
  CHECK_FALSE(refused(reply, "0100000000000000 0002000000000000"));
  CHECK(refused(reply, ""));
  CHECK(refused(reply, "0100000000000000 00020000000000"));
  CHECK(refused(reply, "0100000000000000 0002000000000000 00"));
  FrameHeader ack = header_of(FrameType::kUserAck, id);
  ack.flags = kFlagTiming;
  CHECK(refused(ack, "0100000000000000 0002000000000000"));
}

TEST_CASE("an offer must be readable and large enough") {
  const auto good = [](auto change) {
    Offer offer = sample_offer();
    change(offer);
    return decode_offer(offer.encode()).has_value();
  };
  CHECK(good([](Offer&) {}));
  CHECK(!good([](Offer& o) { o.length_bytes = 0; }));
  CHECK(!good([](Offer& o) { o.length_bytes = 0x2001; }));
  CHECK(!good([](Offer& o) { o.lease.generation = 0; }));
  CHECK(!good([](Offer& o) { o.region.id.generation = 0; }));
  CHECK(!good([](Offer& o) { o.region.rights = transport::Rights::kRemoteWrite; }));
  ByteVector longer = sample_offer().encode();
  longer.push_back(std::byte{0});
  CHECK(!decode_offer(longer).has_value());
  CHECK(sample_offer().encode().size() == sample_offer().encoded_bytes());
}

TEST_CASE("changed bytes are refused or read, never more") {
  const std::uint64_t seed = 11;
  CAPTURE(seed);
  Rng rng(seed);
  const auto frames = golden_frames();
  for (int i = 0; i < 20'000; ++i) {
    ByteVector bytes = frames[rng.below(frames.size())].built;
    for (std::uint64_t n = rng.below(4) + 1; n > 0; --n)
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
    const auto frame = decode_frame(bytes);
    if (!frame) {
      CHECK(frame.error().code() == Code::kCorrupt);
      continue;
    }
    CHECK(sizeof(FrameHeader) + frame->text.size() + frame->body.size() == bytes.size());
    decode_offer(frame->body).status().ignore();
    decode_hello(frame->body).status().ignore();
  }
}
