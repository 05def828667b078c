#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

// What goes over the local socket: packets with descriptors. Little endian. First the two that attach, then,
// in both directions and for as long as the connection lives, those about memory that the peer copies.
using Cookie = std::array<std::byte, 16>;

inline constexpr std::array<char, 4> kPacketMagic = {'S', 'L', 'S', 'M'};
inline constexpr std::uint32_t kPacketVersion = 3;  // 2: with windows; 3: with addresses

// Initiator -> acceptor, with the rings, the initiator's bell and its eventfd.
struct AttachPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  Cookie cookie{};               // the acceptor's, from the handshake
  std::uint32_t ring_bytes = 0;  // of each direction; a power of two
  std::uint32_t bell_number = 0;
  std::uint64_t word = 0;  // where the initiator's own cookie lies in its memory; 0: not to be read
  static constexpr std::size_t kDescriptors = 3;
};
static_assert(sizeof(AttachPacket) == 40);

// Acceptor -> initiator, with the acceptor's bell and its eventfd; without descriptors, and with zeros behind
// the code, if it refuses.
struct AttachedPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint32_t bell_number = 0;
  std::uint32_t code = 0;     // a slime::Code: why not
  std::uint64_t word = 0;     // as the initiator's
  std::uint32_t fetches = 0;  // 1: the acceptor can read the initiator's memory
  std::uint32_t reserved = 0;
  static constexpr std::size_t kDescriptors = 2;
};
static_assert(sizeof(AttachedPacket) == 32);

// Initiator -> acceptor, the last word of attaching.
struct MetPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint32_t fetches = 0;  // 1: the initiator can read the acceptor's memory
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MetPacket) == 16);

// "Show me this region of yours." One answer follows.
struct WindowRequest {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint64_t region = 0;  // its handle, packed
  std::uint64_t key = 0;
};
static_assert(sizeof(WindowRequest) == 24);

// With the region's memory, or with its address. Without either, and all zero behind `code`, if there is a
// code: a slime::Code, why not.
struct WindowReply {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint64_t region = 0;  // as asked
  std::uint64_t key = 0;
  std::uint8_t code = 0;
  std::uint8_t rights = 0;
  std::uint16_t slot = 0;  // where the owner shows the ticket for as long as the peer may use the region
  std::uint32_t reserved = 0;
  std::uint64_t ticket = 0;
  std::uint64_t length_bytes = 0;  // of the memory, exactly
  std::uint64_t address = 0;       // in the owner, of memory that is not mapped; 0: it is
  static constexpr std::size_t kDescriptors = 1;
};
static_assert(sizeof(WindowReply) == 56);

inline constexpr std::size_t kMostDescriptors = AttachPacket::kDescriptors;

struct Packet {
  ByteVector bytes;
  std::vector<UniqueFd> descriptors;
  bool lost_descriptors = false;  // this process has too many open
};

// kCorrupt for anything but what the peer's side of this file sends; kResourceExhausted when it was sent, but
// its descriptors were lost.
Result<AttachPacket> decode_attach(const Packet& packet);
Result<AttachedPacket> decode_attached(const Packet& packet);
Result<MetPacket> decode_met(const Packet& packet);
Result<WindowRequest> decode_window_request(const Packet& packet);
// One whose descriptor was lost has the code for that.
Result<WindowReply> decode_window_reply(const Packet& packet);
[[nodiscard]] inline bool is_met(const Packet& packet) { return packet.bytes.size() == sizeof(MetPacket); }
[[nodiscard]] inline bool is_window_request(const Packet& packet) {
  return packet.bytes.size() == sizeof(WindowRequest);
}

// ---- local sockets, in the abstract namespace of the network namespace
// Non-blocking, listening at `name`.
Result<UniqueFd> listen_local(const std::string& name);
// Connects to `name`. Returns an empty UniqueFd if the backlog is full: try again. kUnavailable if the
// listener is gone, or on another host or in another network namespace; kResourceExhausted if this
// process has no descriptor left.
Result<UniqueFd> connect_local(const std::string& name);
Status send_packet(int socket, Bytes bytes, std::span<const int> descriptors);
// Sends the acceptor's refusal of an attach attempt. Ignores a failed send.
void send_refusal(int socket, const Status& reason);
// kResourceExhausted when nothing has come yet, kUnavailable when nothing will.
Result<Packet> receive_packet(int socket);
// kPermissionDenied unless the other end belongs to our user.
Status check_neighbour(int socket);

}  // namespace slime::transport::shm
