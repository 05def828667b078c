#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

// What goes over the local socket, once in each direction: a packet with descriptors. Little endian.
using Cookie = std::array<std::byte, 16>;

inline constexpr std::array<char, 4> kPacketMagic = {'S', 'L', 'S', 'M'};
inline constexpr std::uint32_t kPacketVersion = 1;

// Initiator -> acceptor, with the rings, the initiator's bell and its eventfd.
struct AttachPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  Cookie cookie{};               // the acceptor's, from the handshake
  std::uint32_t ring_bytes = 0;  // of each direction; a power of two
  std::uint32_t bell_number = 0;
  static constexpr std::size_t kDescriptors = 3;
};
static_assert(sizeof(AttachPacket) == 32);

// Acceptor -> initiator, with the acceptor's bell and its eventfd; without descriptors if it refuses.
struct AttachedPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint32_t bell_number = 0;
  std::uint32_t code = 0;  // a slime::Code: why not
  static constexpr std::size_t kDescriptors = 2;
};
static_assert(sizeof(AttachedPacket) == 16);

inline constexpr std::size_t kMostDescriptors = AttachPacket::kDescriptors;

struct Packet {
  ByteVector bytes;
  std::vector<UniqueFd> descriptors;
};

// kCorrupt for anything but what the peer's side of this file sends.
Result<AttachPacket> decode_attach(const Packet& packet);
Result<AttachedPacket> decode_attached(const Packet& packet);

// ---- local sockets, in the abstract namespace of the network namespace
// Non-blocking, listening at `name`.
Result<UniqueFd> listen_local(const std::string& name);
// kUnavailable when nobody listens there: another host, another network namespace, or gone.
// kResourceExhausted when its backlog is full: try again.
Result<UniqueFd> connect_local(const std::string& name);
Status send_packet(int socket, Bytes bytes, std::span<const int> descriptors);
// kResourceExhausted when nothing has come yet, kUnavailable when nothing will.
Result<Packet> receive_packet(int socket);
// kPermissionDenied unless the other end belongs to our user.
Status check_neighbour(int socket);

}  // namespace slime::transport::shm
