// A peer's data for a verbs endpoint outside of the fabric's messages. The first byte of the input
// chooses the test: 0 the parameters of the handshake, 1 the immediate of a message, 2 the side
// channel, with input and output in pieces, 3 the descriptor of a region with its keys.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/limits.h"
#include "transport/verbs/parameters.h"
#include "transport/verbs/regions.h"
#include "transport/verbs/side_channel.h"

namespace {

using namespace slime::transport;
using slime::ByteReader;
using slime::Bytes;
using slime::ByteVector;
using slime::ByteWriter;
using slime::Code;
using slime::Result;
using slime::Status;
using verbs::MessageNote;
using verbs::Parameters;
using verbs::SideFrame;
using verbs::SideFrameType;

void require(bool condition) {
  if (!condition) std::abort();
}

void parameters(Bytes input) {
  const auto decoded = Parameters::decode(input);
  if (!decoded) {
    require(decoded.status().code() == Code::kCorrupt && !decoded.status().text().empty());
    return;
  }
  // Each meaning has one encoding, and a device accepts all values.
  require(std::ranges::equal(decoded->encode(), input));
  require(decoded->queue_pair_count >= 2 && decoded->queue_pair_count <= verbs::kMaxQueuePairs);
  require(decoded->slot_bytes <= limits::kMaxSlotBytes);
  require(decoded->initial_credits >= 1 && decoded->initial_credits <= limits::kMaxPoolSlots);
  require(decoded->credit_word % 8 == 0);
  for (const verbs::QueuePairAddress& address : decoded->queue_pairs)
    require(address.number < (1U << 24) && address.psn < (1U << 24));
}

void immediate(Bytes input) {
  std::uint32_t bits = 0;
  std::uint64_t known = 0;
  if (input.size() < sizeof bits + sizeof known) return;
  std::memcpy(&bits, input.data(), sizeof bits);
  std::memcpy(&known, input.data() + sizeof bits, sizeof known);
  const auto note = MessageNote::decode(bits);
  require(note.has_value() == ((bits & 0x1f000000) == 0));
  if (!note) return;
  require(note->encode() == bits);
  const std::int32_t ahead = note->ahead_of(known);
  require(ahead >= -(1 << 23) && ahead < (1 << 23));
  const std::uint64_t meant = known + static_cast<std::uint64_t>(std::int64_t{ahead});
  require((meant & MessageNote::kMask) == note->granted);
}

// Passes the input to the channel in pieces, then the end of the stream; takes the output in
// pieces.
class FuzzWire final : public Wire {
 public:
  explicit FuzzWire(Bytes input) : input_(input) {}
  void start(WireHandler& handler) override { handler_ = &handler; }
  Result<std::size_t> write(std::span<const iovec> parts) override {
    if (broken_) return Status(Code::kUnavailable, "broken");
    const std::size_t n = std::min(parts[0].iov_len, next_piece());
    const auto* bytes = static_cast<const std::byte*>(parts[0].iov_base);
    sent.insert(sent.end(), bytes, bytes + n);
    return n;
  }
  Result<std::size_t> read(std::span<const iovec> parts) override {
    if (input_.empty()) {
      broken_ = true;
      return Status(Code::kUnavailable, "the end of the input");
    }
    require(parts.size() == 1 && parts[0].iov_len > 0);
    const std::size_t n = std::min({parts[0].iov_len, input_.size(), next_piece()});
    std::memcpy(parts[0].iov_base, input_.data(), n);
    input_ = input_.subspan(n);
    return n;
  }
  void want_write(bool wanted) override { wants_write = wanted; }
  void set_waiting(bool) override {}
  [[nodiscard]] std::string describe() const override { return "fuzz"; }
  WireHandler& handler() { return *handler_; }
  bool wants_write = false;
  ByteVector sent;

 private:
  std::size_t next_piece() { return piece_ = (piece_ * 7 + 3) % 41; }  // 0: no input, or no room

  Bytes input_;
  std::size_t piece_ = 3;
  bool broken_ = false;
  WireHandler* handler_ = nullptr;
};

// Answers some frames, like an endpoint.
struct Listening final : verbs::SideChannelHandler {
  void on_side_frame(const SideFrame& frame) noexcept override {
    require(broken == 0);
    require(SideFrame::decode(std::as_bytes(std::span(&frame, 1))).has_value());
    ++frames;
    if (frame.type == SideFrameType::kStarved) {
      channel->send(SideFrameType::kReturn, frame.a | 1);
      ++answers;
    }
  }
  void on_side_broken(Status reason) noexcept override {
    require(!reason.ok());
    ++broken;
  }
  verbs::SideChannel* channel = nullptr;
  std::size_t frames = 0;
  std::size_t answers = 0;
  int broken = 0;
};

void side_channel(Bytes input) {
  auto made = std::make_unique<FuzzWire>(input);
  FuzzWire& wire = *made;
  Listening heard;
  verbs::SideChannel channel(std::move(made), heard);
  heard.channel = &channel;
  // Enough turns for all bytes and the end of the stream, though some pieces are empty.
  for (std::size_t turn = 0; turn < 4 * input.size() + 64 && heard.broken == 0; ++turn) {
    if (wire.wants_write) wire.handler().on_writable();
    wire.handler().on_readable();
  }
  require(heard.broken == 1);
  require(heard.frames <= input.size() / sizeof(SideFrame));
  require(wire.sent.size() <= heard.answers * sizeof(SideFrame));
  wire.handler().on_broken(Status(Code::kUnavailable, "later"));
  require(heard.broken == 1);
}

void region(Bytes input) {
  ByteReader in(input);
  const auto descriptor = RegionDescriptor::decode(in);
  if (!descriptor) return;
  ByteVector again;
  ByteWriter out(again);
  descriptor->encode(out);
  require(again.size() == descriptor->encoded_bytes());
  require(std::ranges::equal(again, input.first(again.size())));
  const auto access = verbs::unpack_keys(descriptor->key, descriptor->length_bytes);
  if (!access) return;
  std::vector<std::uint32_t> keys{static_cast<std::uint32_t>(access->key)};
  if (access->keys) keys.assign(access->keys->begin(), access->keys->end());
  require(keys.size() <= verbs::kMaxParts && keys.front() == access->key);
  const Bytes packed = descriptor->key.bytes();
  require(std::ranges::equal(verbs::pack_keys(keys, access->base).bytes(), packed));
  // The last byte has a key.
  const std::uint64_t part = verbs::part_bytes(descriptor->length_bytes, keys.size());
  require(descriptor->length_bytes == 0 || (descriptor->length_bytes - 1) / part < keys.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input = Bytes(reinterpret_cast<const std::byte*>(data), size).subspan(1);
  switch (data[0] % 4) {
    case 0:
      parameters(input);
      break;
    case 1:
      immediate(input);
      break;
    case 2:
      side_channel(input);
      break;
    default:
      region(input);
      break;
  }
  return 0;
}
