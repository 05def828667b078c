#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "transport/wire.h"

namespace slime::transport::verbs {

// What travels on the handshake's TCP connection while the endpoint lives: 24 bytes each, little endian.
enum class SideFrameType : std::uint32_t {
  kReady = 1,    // the sender's queue pairs take what comes: the peer may post
  kGoodbye = 2,  // the sender closed; a: messages, b: notifications that it sent in all and that were taken
  kStarved =
      3,  // the sender may send `a` messages since the beginning, and has: wake it when it may send more
  kReturn = 4,     // a: credits that the sender will not use
  kUnreached = 5,  // the sender gives the connection up: the fabric brought it nothing from the peer
};
struct SideFrame {
  std::uint32_t magic = kMagic;
  SideFrameType type{};
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  static constexpr std::uint32_t kMagic = 0x53564c53;  // "SLVS"

  // Nothing for bytes that are not one: a peer's.
  static std::optional<SideFrame> decode(Bytes bytes);
};
static_assert(sizeof(SideFrame) == 24);

class SideChannelHandler {
 public:
  virtual void on_side_frame(const SideFrame& frame) noexcept = 0;
  // The connection is over, or the peer sent garbage (kCorrupt). Once; the last call.
  virtual void on_side_broken(Status reason) noexcept = 0;

 protected:
  ~SideChannelHandler() = default;
};

// The small frames of one endpoint over a wire. Thread: the loop. Destroyed never from inside its own events.
class SideChannel final : private WireHandler {
 public:
  SideChannel(std::unique_ptr<Wire> wire, SideChannelHandler& handler);
  // Queues and sends as much as the kernel takes; bounded by what the endpoint has to say.
  void send(SideFrameType type, std::uint64_t a = 0, std::uint64_t b = 0);
  // The one thing that whoever makes no endpoint of its connection has to say on it; lost if that is full.
  static void say_once(int socket, SideFrameType type);
  // Work waits for the peer: a silent one is declared dead.
  void set_waiting(bool waiting) { wire_->set_waiting(waiting); }
  [[nodiscard]] std::string describe() const { return wire_->describe(); }
  // Everything was handed to the kernel.
  [[nodiscard]] bool flushed() const { return out_.empty(); }

 private:
  void on_readable() noexcept override;
  void on_writable() noexcept override;
  void on_broken(Status reason) noexcept override;
  void flush();
  void break_with(Status reason);

  const std::unique_ptr<Wire> wire_;
  SideChannelHandler& handler_;
  ByteVector out_;
  std::byte in_[sizeof(SideFrame)];
  std::size_t in_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace slime::transport::verbs
