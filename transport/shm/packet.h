#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

// The packets that the two sides of a connection send each other over the local socket, some with
// descriptors. Little endian. The first three attach the initiator to the acceptor. Then either
// side asks for regions of the other, as long as the connection lives.
using Cookie = std::array<std::byte, 16>;

inline constexpr std::array<char, 4> kPacketMagic = {'S', 'L', 'S', 'M'};
inline constexpr std::uint32_t kPacketVersion = 3;  // 2: with windows; 3: with addresses

// First packet, initiator to acceptor. Its descriptors are the memory of the rings, the initiator's
// bell and the bell's eventfd.
struct AttachPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  Cookie cookie{};               // the acceptor's cookie, from the handshake
  std::uint32_t ring_bytes = 0;  // of each direction; a power of two
  std::uint32_t bell_number = 0;
  // address of the initiator's cookie in its own memory; 0: the initiator's memory must not be read
  std::uint64_t word = 0;
  static constexpr std::size_t kDescriptors = 3;
};
static_assert(sizeof(AttachPacket) == 40);

// Answer of the acceptor to the initiator. Its descriptors are the acceptor's bell and the bell's
// eventfd. A refusal has no descriptors, and zeros after the code.
struct AttachedPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint32_t bell_number = 0;
  std::uint32_t code = 0;     // a slime::Code: the reason of a refusal
  std::uint64_t word = 0;     // as the initiator's
  std::uint32_t fetches = 0;  // 1: the acceptor can read the initiator's memory
  std::uint32_t reserved = 0;
  static constexpr std::size_t kDescriptors = 2;
};
static_assert(sizeof(AttachedPacket) == 32);

// Initiator -> acceptor, the last packet of attaching.
struct MetPacket {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint32_t fetches = 0;  // 1: the initiator can read the acceptor's memory
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MetPacket) == 16);

// Asks the peer for one of its regions. One answer follows.
struct WindowRequest {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint64_t region = 0;  // its handle, packed
  std::uint64_t key = 0;
};
static_assert(sizeof(WindowRequest) == 24);

// The answer to a WindowRequest, with a descriptor of the region's memory or with the region's
// address. `code` is a slime::Code; if it is not 0, there is no descriptor and all later fields are
// zero.
struct WindowReply {
  std::array<char, 4> magic = kPacketMagic;
  std::uint32_t version = kPacketVersion;
  std::uint64_t region = 0;  // as asked
  std::uint64_t key = 0;
  std::uint8_t code = 0;
  std::uint8_t rights = 0;
  // index into ExportPage::shown, where the owner shows the ticket while the peer may use the
  // region
  std::uint16_t slot = 0;
  std::uint32_t reserved = 0;
  std::uint64_t ticket = 0;
  std::uint64_t length_bytes = 0;  // exact length of the memory
  // the region's address in the owner's process, if it is not to be mapped; 0: map the descriptor
  std::uint64_t address = 0;
  static constexpr std::size_t kDescriptors = 1;
};
static_assert(sizeof(WindowReply) == 56);

inline constexpr std::size_t kMostDescriptors = AttachPacket::kDescriptors;

struct Packet {
  ByteVector bytes;
  std::vector<UniqueFd> descriptors;
  bool lost_descriptors = false;  // this process has too many open descriptors
};

// Decode a packet. kCorrupt for a packet that a correct peer does not send; kResourceExhausted if
// the packet's descriptors were lost.
Result<AttachPacket> decode_attach(const Packet& packet);
Result<AttachedPacket> decode_attached(const Packet& packet);
Result<MetPacket> decode_met(const Packet& packet);
Result<WindowRequest> decode_window_request(const Packet& packet);
// Decodes a reply. If its descriptor was lost, the result has the code kResourceExhausted.
Result<WindowReply> decode_window_reply(const Packet& packet);
[[nodiscard]] inline bool is_met(const Packet& packet) { return packet.bytes.size() == sizeof(MetPacket); }
[[nodiscard]] inline bool is_window_request(const Packet& packet) {
  return packet.bytes.size() == sizeof(WindowRequest);
}

// ---- local sockets, in the abstract namespace of the network namespace
// Makes a non-blocking socket that listens at `name`.
Result<UniqueFd> listen_local(const std::string& name);
// Connects to `name`. Returns an empty UniqueFd if the listener's backlog is full: try again later.
// kUnavailable if there is no such listener on this host in this network namespace;
// kResourceExhausted if this process has no descriptor left.
Result<UniqueFd> connect_local(const std::string& name);
Status send_packet(int socket, Bytes bytes, std::span<const int> descriptors);
// Sends an initiator the acceptor's refusal. Ignores failures of sending.
void send_refusal(int socket, const Status& reason);
// Receives one packet. Returns kResourceExhausted if none has arrived yet, and kUnavailable if the
// peer has closed the socket or receiving failed.
Result<Packet> receive_packet(int socket);
// Returns kPermissionDenied unless the process at the other end belongs to the user of this
// process.
Status check_neighbour(int socket);

}  // namespace slime::transport::shm
