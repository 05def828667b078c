#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "tests/transport/fixture.h"
#include "transport/soft/device.h"
#include "transport/soft/frames.h"
#include "transport/soft/region_key.h"

namespace slime::transport::testing {

using soft::FrameHeader;
using soft::FrameType;

// Keeps what the engine sends; the test says what it receives.
class ScriptWire final : public Wire {
 public:
  void start(WireHandler& handler) override { handler_ = &handler; }
  Result<std::size_t> write(std::span<const iovec> parts) override {
    std::size_t total = 0;
    for (const iovec& part : parts) {
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      const std::size_t n = std::min(part.iov_len, room - total);
      sent.insert(sent.end(), bytes, bytes + n);
      total += n;
    }
    if (room != SIZE_MAX) room -= total;
    return total;
  }
  Result<std::size_t> read(std::span<const iovec> parts) override {
    std::size_t total = 0;
    for (const iovec& part : parts) {
      const std::size_t n = std::min(part.iov_len, coming.size());
      std::memcpy(part.iov_base, coming.data(), n);
      coming.erase(coming.begin(), coming.begin() + static_cast<std::ptrdiff_t>(n));
      total += n;
    }
    return total;
  }
  void want_write(bool) override {}
  PeerMemory* peer_memory(Lender&) override { return memory; }
  [[nodiscard]] bool takes_long_messages() const override { return long_messages; }
  [[nodiscard]] std::uint64_t backlog_bytes() const override { return backlog; }
  void set_waiting(bool now) override { waiting = now; }
  [[nodiscard]] std::string describe() const override { return "script"; }
  void deliver(Bytes bytes) {
    coming.insert(coming.end(), bytes.begin(), bytes.end());
    handler_->on_readable();
  }
  void take(std::size_t bytes) {
    room = bytes;
    handler_->on_writable();
  }
  void tell_peer_memory() { handler_->on_peer_memory(); }
  bool waiting = false;
  std::size_t room = SIZE_MAX;  // what it takes until it is full
  std::uint64_t backlog = 0;    // what the peer has not acknowledged
  PeerMemory* memory = nullptr;
  bool long_messages = false;
  ByteVector sent;
  ByteVector coming;

 private:
  WireHandler* handler_ = nullptr;
};

// One endpoint whose peer is the test.
struct Scripted {
  // `memory`: what is beside the wire; null: nothing.
  explicit Scripted(PeerMemory* memory = nullptr, bool long_messages = false)
      : loop(std::move(*Loop::create({.clock = &clock}))),
        device([this, memory, long_messages](Loop& its_loop, const PortOptions&) {
          return soft::plain_wires(its_loop,
                                   [this, memory, long_messages](Loop&, UniqueFd, const Introduction&) {
                                     auto made = std::make_unique<ScriptWire>();
                                     made->memory = memory;
                                     made->long_messages = long_messages;
                                     wire = made.get();
                                     return Result<std::unique_ptr<Wire>>(std::move(made));
                                   });
        }) {
    port = std::move(*device.open_port(*loop, {}));
    auto pending = port->prepare();
    REQUIRE(pending.has_value());
    const ByteVector parameters = soft::Parameters{.slot_bytes = 512, .initial_credits = 8}.encode();
    endpoint = std::move(*(*pending)->finish(parameters, UniqueFd(), {"self", "peer", false}));
    endpoint->set_receiver(recorder);
    RegionDescriptor far;
    far.id = {0x0a0b0c0d, 0x01020304};
    far.length_bytes = 16 << 20;
    far.rights = Rights::kReadWrite;
    far.key = soft::pack_key(0x1122334455667788);
    remote = *endpoint->import_region(far);
  }
  void turns() {
    while (loop->poll(Nanos::zero())) {
    }
  }
  std::string take_sent() {
    turns();
    return to_hex(std::exchange(wire->sent, {}));
  }

  ManualClock clock;
  std::shared_ptr<Loop> loop;
  ScriptWire* wire = nullptr;
  soft::SoftDevice device;
  std::unique_ptr<Port> port;
  Recorder recorder;
  std::unique_ptr<Endpoint> endpoint;  // before the recorder
  RemoteRegion remote;
};

inline std::vector<FrameHeader> headers_of(Bytes sent) {
  std::vector<FrameHeader> out;
  while (sent.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, sent.data(), sizeof header);
    out.push_back(header);
    sent = sent.subspan(sizeof header + header.payload_bytes);
  }
  CHECK(sent.empty());
  return out;
}

// What one scripted endpoint has sent since it was asked last.
inline std::vector<FrameHeader> sent_by(Scripted& s) {
  s.turns();
  const ByteVector sent = std::exchange(s.wire->sent, {});
  return headers_of(sent);
}

inline ByteVector frame(const FrameHeader& header, Bytes payload = {}) {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(header);
  writer.append(payload);
  return out;
}

}  // namespace slime::transport::testing
