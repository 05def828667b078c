// The bytes exchanged by two verbs endpoints: parameters, the immediate of messages, side frames.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/limits.h"
#include "transport/verbs/parameters.h"
#include "transport/verbs/side_channel.h"

namespace slime::transport::testing {
namespace {

using verbs::MessageNote;
using verbs::Parameters;
using verbs::SideFrame;
using verbs::SideFrameType;

std::string hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

Parameters example() {
  Parameters out;
  out.slot_bytes = 8192;
  out.initial_credits = 8;
  out.gid.raw[10] = out.gid.raw[11] = 0xff;
  out.gid.raw[12] = 10;
  out.gid.raw[13] = 9;
  out.gid.raw[15] = 1;
  out.lid = 0x0102;
  out.link_layer = IBV_LINK_LAYER_ETHERNET;
  out.mtu = IBV_MTU_1024;
  out.read_responses = 16;
  out.read_requests = 15;
  out.atomics = 1;
  out.queue_pair_count = 2;
  out.queue_pairs[0] = {0x000011, 0xabcdef};
  out.queue_pairs[1] = {0xffffff, 0};
  out.credit_word = 0x1122334455667788;
  out.credit_key = 0x99aabbcc;
  return out;
}

constexpr std::string_view kGoldenParameters =
    "01000000"                          // version
    "00200000"                          // slot_bytes
    "08000000"                          // initial_credits
    "00000000000000000000ffff0a090001"  // GID
    "0201"                              // LID
    "02"                                // Ethernet
    "03"                                // MTU of 1,024 bytes
    "10"                                // read_responses
    "0f"                                // read_requests
    "01"                                // atomics
    "02"                                // queue pairs
    "11000000efcdab00"
    "ffffff0000000000"
    "8877665544332211"  // credit_word
    "ccbbaa99";         // credit_key

Bytes bytes_of(const SideFrame& frame) { return std::as_bytes(std::span(&frame, 1)); }

// Records the channel's output; the test supplies the input and limits how much is sent at once.
class ScriptWire final : public Wire {
 public:
  void start(WireHandler& handler) override { handler_ = &handler; }
  Result<std::size_t> write(std::span<const iovec> parts) override {
    const std::size_t n = std::min(room, parts[0].iov_len);
    const auto* bytes = static_cast<const std::byte*>(parts[0].iov_base);
    sent.insert(sent.end(), bytes, bytes + n);
    room -= n;
    return n;
  }
  Result<std::size_t> read(std::span<const iovec> parts) override {
    if (coming.empty() && ended) return Status(Code::kUnavailable, "the end of the stream");
    const std::size_t n = std::min({parts[0].iov_len, coming.size(), piece});
    std::memcpy(parts[0].iov_base, coming.data(), n);
    coming.erase(coming.begin(), coming.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  void want_write(bool wanted) override { wants_write = wanted; }
  void set_waiting(bool) override {}
  [[nodiscard]] std::string describe() const override { return "script"; }
  void deliver(Bytes bytes) {
    coming.insert(coming.end(), bytes.begin(), bytes.end());
    handler_->on_readable();
  }
  WireHandler& handler() { return *handler_; }

  std::size_t room = SIZE_MAX;
  std::size_t piece = SIZE_MAX;
  bool wants_write = false;
  bool ended = false;
  ByteVector sent;
  ByteVector coming;

 private:
  WireHandler* handler_ = nullptr;
};

struct Listening final : verbs::SideChannelHandler {
  void on_side_frame(const SideFrame& frame) noexcept override { frames.push_back(frame); }
  void on_side_broken(Status reason) noexcept override {
    ++broken;
    why = std::move(reason);
  }
  std::vector<SideFrame> frames;
  int broken = 0;
  Status why;
};

struct Side {
  Side() {
    auto made = std::make_unique<ScriptWire>();
    wire = made.get();
    channel = std::make_unique<verbs::SideChannel>(std::move(made), heard);
  }
  Listening heard;
  ScriptWire* wire = nullptr;
  std::unique_ptr<verbs::SideChannel> channel;
};

TEST_CASE("the parameters have the documented bytes, and come back the same") {
  const ByteVector bytes = example().encode();
  CHECK(hex(bytes) == kGoldenParameters);
  const auto decoded = Parameters::decode(bytes);
  REQUIRE_MESSAGE(decoded.has_value(), decoded.status().text());
  CHECK(decoded->credit_key == 0x99aabbcc);
  CHECK(decoded->queue_pairs[1].number == 0xffffff);
  CHECK(decoded->encode() == bytes);
}

TEST_CASE("the most queue pairs fit into what a handshake carries") {
  Parameters full = example();
  full.queue_pair_count = verbs::kMaxQueuePairs;
  const ByteVector bytes = full.encode();
  CHECK(bytes.size() == 120);
  CHECK(bytes.size() <= limits::kProviderParameterBytes);
  CHECK(Parameters::decode(bytes).has_value());
}

TEST_CASE("parameters of any other size are refused") {
  ByteVector bytes = example().encode();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CAPTURE(n);
    CHECK(Parameters::decode(Bytes(bytes).first(n)).status().code() == Code::kCorrupt);
  }
  bytes.push_back(std::byte{0});
  CHECK(Parameters::decode(bytes).status().code() == Code::kCorrupt);
}

TEST_CASE("parameters out of range are refused with what is wrong") {
  Parameters wrong = example();
  std::string_view word;
  SUBCASE("no data queue pair") { wrong.queue_pair_count = 1, word = "queue pairs"; }
  SUBCASE("a queue pair's number") { wrong.queue_pairs[0].number = 1U << 24, word = "24 bits"; }
  SUBCASE("a PSN") { wrong.queue_pairs[1].psn = 1U << 24, word = "24 bits"; }
  SUBCASE("small slots") { wrong.slot_bytes = limits::kMinSlotBytes - 1, word = "slots"; }
  SUBCASE("large slots") { wrong.slot_bytes = limits::kMaxSlotBytes + 1, word = "slots"; }
  SUBCASE("no credit") { wrong.initial_credits = 0, word = "credits"; }
  SUBCASE("too many credits") { wrong.initial_credits = limits::kMaxPoolSlots + 1, word = "credits"; }
  SUBCASE("the link layer") { wrong.link_layer = IBV_LINK_LAYER_UNSPECIFIED, word = "link layer"; }
  SUBCASE("no MTU") { wrong.mtu = 0, word = "MTU"; }
  SUBCASE("an MTU that there is not") { wrong.mtu = IBV_MTU_4096 + 1, word = "MTU"; }
  SUBCASE("atomics") { wrong.atomics = 2, word = "atomics"; }
  SUBCASE("the credit word") { wrong.credit_word += 4, word = "misaligned"; }
  const Status status = Parameters::decode(wrong.encode()).status();
  CHECK(status.code() == Code::kCorrupt);
  CHECK(status.text().find(word) != std::string::npos);
}

TEST_CASE("more queue pairs than there is room for are refused before they are read") {
  ByteVector bytes = example().encode();
  bytes[35] = std::byte{verbs::kMaxQueuePairs + 1};
  bytes.resize(bytes.size() + 64);
  CHECK(Parameters::decode(bytes).status().text().find("10 queue pairs") != std::string::npos);
}

TEST_CASE("another version of the parameters is named, whatever follows") {
  ByteVector bytes = example().encode();
  bytes[0] = std::byte{2};
  bytes.resize(5);
  CHECK(Parameters::decode(bytes).status().text().find("version 2, this side speaks 1") != std::string::npos);
}

TEST_CASE("the immediate of a message has the documented bits") {
  CHECK(MessageNote{5, false, false, false}.encode() == 0x00000005);
  CHECK(MessageNote{5, true, false, false}.encode() == 0x80000005);
  CHECK(MessageNote{5, false, true, false}.encode() == 0x40000005);
  CHECK(MessageNote{5, false, false, true}.encode() == 0x20000005);
  CHECK(MessageNote{0x1ffffff, true, true, true}.encode() == 0xe0ffffff);  // 24 bits of the counter
  const auto note = MessageNote::decode(0xc0abcdef);
  REQUIRE(note.has_value());
  CHECK(note->granted == 0xabcdef);
  CHECK(note->control);
  CHECK(note->starved);
  CHECK_FALSE(note->woken);
}

TEST_CASE("bits of the immediate that are not in use are refused") {
  for (int bit = 24; bit < 29; ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(MessageNote::decode(1U << bit).has_value());
  }
}

TEST_CASE("a grant of 24 bits is compared with the whole counter, also where it turns over") {
  const auto ahead = [](std::uint64_t granted, std::uint64_t known) {
    return MessageNote::decode(static_cast<std::uint32_t>(granted) & MessageNote::kMask)->ahead_of(known);
  };
  CHECK(ahead(10, 10) == 0);
  CHECK(ahead(18, 10) == 8);
  CHECK(ahead(10, 18) == -8);
  CHECK(ahead((1ULL << 24) + 3, (1ULL << 24) - 2) == 5);
  CHECK(ahead((1ULL << 24) - 2, (1ULL << 24) + 3) == -5);
  CHECK(ahead((7ULL << 32) + 1, (7ULL << 32) - 1) == 2);
  CHECK(ahead((1U << 23) - 1, 0) == (1 << 23) - 1);
  CHECK(ahead(1U << 23, 0) == -(1 << 23));
}

TEST_CASE("side frames have the documented bytes") {
  Side side;
  side.channel->send(SideFrameType::kReady);
  side.channel->send(SideFrameType::kGoodbye, 0x0102, 3);
  side.channel->send(SideFrameType::kStarved, 9);
  side.channel->send(SideFrameType::kReturn, 5);
  CHECK(hex(side.wire->sent) ==
        "534c565301000000"
        "00000000000000000000000000000000"
        "534c565302000000"
        "02010000000000000300000000000000"
        "534c565303000000"
        "09000000000000000000000000000000"
        "534c565304000000"
        "05000000000000000000000000000000");
}

TEST_CASE("only whole, known frames without stray values are frames") {
  const auto decodes = [](const SideFrame& frame) { return SideFrame::decode(bytes_of(frame)).has_value(); };
  CHECK(decodes({SideFrame::kMagic, SideFrameType::kReady, 0, 0}));
  CHECK(decodes({SideFrame::kMagic, SideFrameType::kGoodbye, UINT64_MAX, 0}));
  CHECK(decodes({SideFrame::kMagic, SideFrameType::kStarved, 1, 0}));
  CHECK(decodes({SideFrame::kMagic, SideFrameType::kReturn, 1, 0}));
  CHECK(decodes({SideFrame::kMagic, SideFrameType::kUnreached, 0, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, SideFrameType::kUnreached, 0, 1}));
  CHECK_FALSE(decodes({SideFrame::kMagic + 1, SideFrameType::kReady, 0, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, SideFrameType::kReady, 1, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, SideFrameType::kStarved, 0, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, SideFrameType::kReturn, 0, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, SideFrameType::kReturn, 1, 1}));
  CHECK_FALSE(decodes({SideFrame::kMagic, static_cast<SideFrameType>(0), 0, 0}));
  CHECK_FALSE(decodes({SideFrame::kMagic, static_cast<SideFrameType>(6), 0, 0}));
  const SideFrame ready{SideFrame::kMagic, SideFrameType::kReady, 0, 0};
  CHECK_FALSE(SideFrame::decode(bytes_of(ready).first(23)).has_value());
}

TEST_CASE("frames that come in pieces arrive whole, in order") {
  Side side;
  side.wire->piece = 5;
  const SideFrame first{SideFrame::kMagic, SideFrameType::kReady, 0, 0};
  const SideFrame second{SideFrame::kMagic, SideFrameType::kReturn, 9, 0};
  side.wire->deliver(bytes_of(first).first(11));
  CHECK(side.heard.frames.empty());
  ByteVector rest(bytes_of(first).begin() + 11, bytes_of(first).end());
  rest.insert(rest.end(), bytes_of(second).begin(), bytes_of(second).end());
  side.wire->deliver(rest);
  REQUIRE(side.heard.frames.size() == 2);
  CHECK(side.heard.frames[0].type == SideFrameType::kReady);
  CHECK(side.heard.frames[1].a == 9);
  CHECK(side.heard.broken == 0);
}

TEST_CASE("what the kernel does not take goes out later") {
  Side side;
  side.wire->room = 10;
  side.channel->send(SideFrameType::kReady);
  CHECK(side.wire->wants_write);
  CHECK_FALSE(side.channel->flushed());
  side.wire->room = SIZE_MAX;
  side.wire->handler().on_writable();
  CHECK(side.channel->flushed());
  CHECK_FALSE(side.wire->wants_write);
  CHECK(side.wire->sent.size() == sizeof(SideFrame));
}

TEST_CASE("garbage, and the end of the stream, break the channel once and for all") {
  Side side;
  Code expected = Code::kCorrupt;
  SUBCASE("garbage") { side.wire->deliver(ByteVector(48, std::byte{7})); }
  SUBCASE("the end") {
    side.wire->ended = true;
    side.wire->handler().on_readable();
    expected = Code::kUnavailable;
  }
  CHECK(side.heard.broken == 1);
  CHECK(side.heard.why.code() == expected);
  side.wire->handler().on_broken(Status(Code::kUnavailable, "again"));
  const SideFrame ready{SideFrame::kMagic, SideFrameType::kReady, 0, 0};
  side.wire->deliver(bytes_of(ready));
  side.channel->send(SideFrameType::kReady);
  CHECK(side.heard.broken == 1);
  CHECK(side.heard.frames.empty());
  CHECK(side.wire->sent.empty());
}

}  // namespace
}  // namespace slime::transport::testing
