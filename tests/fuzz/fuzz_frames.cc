// A peer that sends anything: the input is the stream read by a software endpoint with registered
// regions and a receiver. Bytes outside the regions must not change, and the endpoint's memory is
// bounded.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "transport/soft/device.h"
#include "transport/soft/frames.h"
#include "transport/soft/region_key.h"

namespace slime::transport {
namespace {

constexpr std::size_t kRegionBytes = 4096;
constexpr std::size_t kGuard = 4096;
constexpr std::byte kGuardByte{0xa5};
// Bound of the bytes that the endpoint sends: a peer can only cause answers to its requests.
constexpr std::size_t kMostSent = 64 * 1024 * 1024;

// Returns the bytes that the kernel would read from the peer's memory; sometimes reports a failure.
class FuzzMemory final : public PeerMemory {
 public:
  Reach reach(const RemoteRegion&) override { return {}; }
  Outcome fetch(PeerBlocks& list) override {
    SLIME_CHECK(!withdrawn_ && list.count() <= limits::kFetchBlocks && list.bytes() <= limits::kChunkBytes);
    if (++calls_ % 3 == 0) return calls_ % 2 == 0 ? Outcome::kFault : Outcome::kDenied;
    for (std::size_t i = 0; i < list.count(); ++i)
      std::memset(list.here()[i].iov_base, 0x5a, list.here()[i].iov_len);
    return Outcome::kDone;
  }
  Outcome store(PeerBlocks&, const PeerWindow&) override { return Outcome::kDenied; }
  [[nodiscard]] bool fetches() const override { return true; }
  [[nodiscard]] Known peer_fetches() override { return Known::kYes; }
  void withdraw() override { withdrawn_ = true; }

 private:
  std::size_t calls_ = 0;
  bool withdrawn_ = false;
};

// Passes the input to the engine in pieces, and discards its output.
class FuzzWire final : public Wire {
 public:
  explicit FuzzWire(Bytes input) : input_(input) {}
  void start(WireHandler& handler) override { handler_ = &handler; }
  Result<std::size_t> write(std::span<const iovec> parts) override {
    std::size_t total = 0;
    for (const iovec& part : parts) total += part.iov_len;
    sent += total;
    SLIME_CHECK(sent <= kMostSent);
    return total;
  }
  Result<std::size_t> read(std::span<const iovec> parts) override {
    if (input_.empty()) return Status(Code::kUnavailable, "the end of the input");
    std::size_t left = std::min(piece_, input_.size());
    std::size_t total = 0;
    for (const iovec& part : parts) {
      const std::size_t n = std::min(left, part.iov_len);
      std::memcpy(part.iov_base, input_.data(), n);
      input_ = input_.subspan(n);
      left -= n;
      total += n;
    }
    piece_ = piece_ * 7 % 1021 + 1;
    return total;
  }
  [[nodiscard]] bool takes_long_messages() const override { return true; }
  PeerMemory* peer_memory(Lender&) override { return &memory_; }
  void want_write(bool) override {}
  void set_waiting(bool) override {}
  [[nodiscard]] std::string describe() const override { return "fuzz"; }
  WireHandler* handler() { return handler_; }
  std::size_t sent = 0;

 private:
  FuzzMemory memory_;
  Bytes input_;
  std::size_t piece_ = 1;
  WireHandler* handler_ = nullptr;
};

class Sink final : public Receiver {
 public:
  void on_message(Message message) noexcept override {
    // The credits that the endpoint gave bound a long message, too.
    SLIME_CHECK(message.bytes().size() <= std::size_t{32} * 512);
    for (const std::byte each : message.bytes()) sum += std::to_integer<unsigned>(each);
    if (++messages % 3 == 0) held.push_back(std::move(message));
    if (messages % 5 == 0 && kept.size() < 8 && message.keep()) kept.push_back(std::move(message));
    SLIME_CHECK(held.size() <= 64);
  }
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status& reason) noexcept override {
    SLIME_CHECK(!reason.ok());
    ++closed;
  }
  std::size_t messages = 0;
  std::vector<Message> held;
  std::vector<Message> kept;  // long ones, which have given their credits back
  unsigned sum = 0;           // of all bytes, so that all are read
  int closed = 0;
};

class Once final : public Operation {
 public:
  void complete(Status) noexcept override { ++completions; }
  int completions = 0;
};

// A region's memory between two guards.
struct Guarded {
  Guarded() : bytes(kRegionBytes + 2 * kGuard, kGuardByte) {}
  ~Guarded() {
    for (std::size_t i = 0; i < kGuard; ++i)
      SLIME_CHECK(bytes[i] == kGuardByte && bytes[bytes.size() - 1 - i] == kGuardByte);
  }
  std::byte* data() { return bytes.data() + kGuard; }
  ByteVector bytes;
};

// Replaces the key in headers that name a region by the real key, which is random and cannot be
// guessed.
void put_real_keys(ByteVector& stream, std::span<const RegionDescriptor> regions) {
  std::size_t at = 0;
  while (stream.size() - at >= soft::kHeaderBytes) {
    soft::FrameHeader header;
    std::memcpy(&header, stream.data() + at, sizeof header);
    const std::uint64_t which = header.key;
    if (which >= 1 && which <= regions.size()) {
      header.key = soft::unpack_key(regions[which - 1].key)->key;
      header.region = regions[which - 1].id.packed();
      std::memcpy(stream.data() + at, &header, sizeof header);
    }
    at += soft::kHeaderBytes +
          std::min<std::size_t>(header.payload_bytes, stream.size() - at - soft::kHeaderBytes);
  }
}

void run(Bytes input) {
  ManualClock clock;
  auto loop = Loop::create({.clock = &clock});
  SLIME_CHECK(loop.has_value());
  FuzzWire* wire = nullptr;
  ByteVector stream(input.begin(), input.end());
  soft::SoftDevice soft_device([&](Loop& its_loop, const PortOptions&) {
    return soft::plain_wires(its_loop, [&](Loop&, UniqueFd, const Introduction&) {
      auto made = std::make_unique<FuzzWire>(stream);
      wire = made.get();
      return Result<std::unique_ptr<Wire>>(std::move(made));
    });
  });
  Device& device = soft_device;
  Guarded open;
  Guarded readable;
  Guarded local;
  auto open_region = device.register_memory(open.data(), kRegionBytes, Rights::kReadWrite, MemoryKind::kHost);
  auto readable_region =
      device.register_memory(readable.data(), kRegionBytes, Rights::kRemoteRead, MemoryKind::kHost);
  auto local_region = device.register_memory(local.data(), kRegionBytes, Rights::kLocal, MemoryKind::kHost);
  SLIME_CHECK(open_region && readable_region && local_region);
  const ByteVector readable_before = readable.bytes;
  const std::array regions{open_region->describe(), readable_region->describe(), local_region->describe()};
  put_real_keys(stream, regions);

  auto port =
      device.open_port(**loop, {.slot_bytes = 512, .pool_slots = 64, .base_credits = 8, .max_credits = 32});
  SLIME_CHECK(port.has_value());
  auto pending = (*port)->prepare();
  SLIME_CHECK(pending.has_value());
  const ByteVector parameters = soft::Parameters{.slot_bytes = 512, .initial_credits = 8}.encode();
  auto endpoint = (*pending)->finish(parameters, UniqueFd(), {"self", "fuzz", false});
  SLIME_CHECK(endpoint.has_value());
  Sink sink;
  (*endpoint)->set_receiver(sink);

  // Operations of our own, so that answers in the input may match.
  RegionDescriptor far;
  far.id = {0, 1};
  far.length_bytes = kRegionBytes;
  far.rights = Rights::kReadWrite;
  far.key = soft::pack_key(0);
  const auto remote = (*endpoint)->import_region(far);
  SLIME_CHECK(remote.has_value());
  const CopyBlock copies[] = {{&*local_region, 100, &*remote, 0, 1000},
                              {&*local_region, 2000, &*remote, 0, 500}};
  const AtomicTarget numbers[] = {{&*local_region, 3000, &*remote, 8}, {&*local_region, 3011, &*remote, 16}};
  // Large enough that the peer reads them: kFetchLeastBytes.
  static_assert(8 * kRegionBytes >= limits::kFetchLeastBytes && kRegionBytes >= limits::kFetchLeastBlock);
  const std::array<CopyBlock, 8> long_copies = [&] {
    std::array<CopyBlock, 8> out;
    out.fill({&*local_region, 0, &*remote, 0, kRegionBytes});
    return out;
  }();
  std::array<Once, 7> operations;
  SLIME_CHECK((*endpoint)->read(copies, operations[0]).ok());
  SLIME_CHECK((*endpoint)->write(copies, operations[1]).ok());
  SLIME_CHECK((*endpoint)->write_with_imm(copies, 5, operations[2]).ok());
  SLIME_CHECK((*endpoint)->write(long_copies, operations[6]).ok());
  SLIME_CHECK((*endpoint)->send({}, operations[3]).ok());
  SLIME_CHECK((*endpoint)->fetch_add(numbers[0], 3, operations[4]).ok());
  SLIME_CHECK((*endpoint)->compare_swap(numbers[1], 4, 5, operations[5]).ok());

  // Six of the eight credits are free, and four stay so: it may have two slots.
  SLIME_CHECK((*endpoint)->takes_long(1000));
  ByteVector large(1000, std::byte{0x33});
  const Bytes large_part(large);
  Once sent_large;
  SLIME_CHECK((*endpoint)->send(std::span(&large_part, 1), sent_large).ok());

  const auto turns = [&](int most) {
    while (most-- > 0 && (*loop)->poll(Nanos::zero())) {
    }
  };
  turns(100);
  for (std::size_t i = 0; sink.closed == 0; ++i) {
    SLIME_CHECK(i <= 2 * stream.size() + 100);
    if ((*endpoint)->error().ok()) wire->handler()->on_readable();
    turns(100);
    if (i % 16 == 15) sink.held.clear();
    if (i % 64 == 63) sink.kept.clear();
  }
  for (const Once& operation : operations) SLIME_CHECK(operation.completions == 1);
  SLIME_CHECK(sent_large.completions == 1);
  SLIME_CHECK(readable.bytes == readable_before);
  for (std::size_t i = 0; i < kRegionBytes; ++i) {
    const bool read = (i >= 100 && i < 1100) || (i >= 2000 && i < 2500);
    const bool old_value = (i >= 3000 && i < 3008) || (i >= 3011 && i < 3019);
    SLIME_CHECK(read || old_value || local.data()[i] == kGuardByte);
  }
  endpoint->reset();
  sink.held.clear();
  turns(100);
  SLIME_CHECK((*port)->free_slots() == 64);
}

}  // namespace
}  // namespace slime::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 256 * 1024) return 0;
  slime::transport::run(slime::Bytes(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
