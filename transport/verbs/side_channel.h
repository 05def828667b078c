#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "transport/wire.h"

namespace slime::transport::verbs {

// Types of the frames that an endpoint sends on the handshake's TCP connection.
enum class SideFrameType : std::uint32_t {
  kReady = 1,      // the sender's queue pairs can receive: the peer may post
  kGoodbye = 2,    // the sender has closed; a: messages, b: notifications that it sent in all
  kStarved = 3,    // the sender has used all `a` credits that it was given in all: wake it
  kReturn = 4,     // a: number of credits that the sender gives back unused
  kUnreached = 5,  // the sender gives up: the RDMA path has not carried bytes both ways
};
// One frame: 24 bytes, little endian.
struct SideFrame {
  std::uint32_t magic = kMagic;
  SideFrameType type{};
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  static constexpr std::uint32_t kMagic = 0x53564c53;  // "SLVS"

  // Decodes bytes of a peer. Returns nothing if they are not a frame.
  static std::optional<SideFrame> decode(Bytes bytes);
};
static_assert(sizeof(SideFrame) == 24);

// Takes the events of a side channel.
class SideChannelHandler {
 public:
  virtual void on_side_frame(const SideFrame& frame) noexcept = 0;
  // Called when the connection has ended, or when the peer sent bytes that are not a frame
  // (kCorrupt). Called at most once; no other call follows.
  virtual void on_side_broken(Status reason) noexcept = 0;

 protected:
  ~SideChannelHandler() = default;
};

// Sends and receives the frames of one endpoint over a wire. Thread: the loop. Do not destroy the
// channel inside of a call to its handler.
class SideChannel final : private WireHandler {
 public:
  SideChannel(std::unique_ptr<Wire> wire, SideChannelHandler& handler);
  // Queues a frame, and sends as much as the kernel takes. The queue stays short: an endpoint says
  // STARVED only once before it is woken, and RETURN at most every 500 ms.
  void send(SideFrameType type, std::uint64_t a = 0, std::uint64_t b = 0);
  // Sends one frame on a connection that gets no endpoint. The frame is lost if the socket's buffer
  // is full.
  static void say_once(int socket, SideFrameType type);
  // `waiting`: work waits for the peer. Meanwhile the wire's keepalive ends the connection of a
  // silent peer.
  void set_waiting(bool waiting) { wire_->set_waiting(waiting); }
  [[nodiscard]] std::string describe() const { return wire_->describe(); }
  // Returns whether all queued frames were handed to the kernel.
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
