#include "transport/shm/packet.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/ids.h"
#include "base/str.h"
#include "transport/copy_checks.h"
#include "transport/limits.h"
#include "transport/memory.h"

namespace slime::transport::shm {
namespace {

template <class T>
Result<T> decode(const Packet& packet) {
  T out;
  if (packet.bytes.size() != sizeof out) return Status(Code::kCorrupt, "a packet of an unknown size");
  std::memcpy(&out, packet.bytes.data(), sizeof out);
  if (out.magic != kPacketMagic) return Status(Code::kCorrupt, "not a packet of Slime");
  if (out.version != kPacketVersion)
    return Status(Code::kCorrupt,
                  str("shared memory of version ", out.version, ", this is version ", kPacketVersion));
  return out;
}

Status check_descriptors(const Packet& packet, std::size_t wanted) {
  if (packet.lost_descriptors)
    return {Code::kResourceExhausted, "descriptors of a packet were lost: this process has too many open"};
  if (packet.descriptors.size() != wanted) return {Code::kCorrupt, "a packet without its descriptors"};
  return {};
}

struct LocalAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

LocalAddress abstract(const std::string& name) {
  LocalAddress out;
  SLIME_CHECK(name.size() < sizeof out.address.sun_path);
  out.address.sun_family = AF_UNIX;
  std::memcpy(out.address.sun_path + 1, name.data(), name.size());
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

Result<UniqueFd> local_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return from_errno("socket(AF_UNIX)", errno);
  return socket;
}

}  // namespace

Result<AttachPacket> decode_attach(const Packet& packet) {
  auto out = decode<AttachPacket>(packet);
  if (out) SLIME_TRY(check_descriptors(packet, AttachPacket::kDescriptors));
  return out;
}

Result<AttachedPacket> decode_attached(const Packet& packet) {
  auto out = decode<AttachedPacket>(packet);
  if (!out) return out;
  SLIME_TRY(check_descriptors(packet, out->code == 0 ? AttachedPacket::kDescriptors : 0));
  if (out->fetches > 1 || out->reserved != 0 || (out->code != 0 && (out->word != 0 || out->fetches != 0)))
    return Status(Code::kCorrupt, "an answer to an initiator that cannot be");
  return out;
}

Result<MetPacket> decode_met(const Packet& packet) {
  auto out = decode<MetPacket>(packet);
  if (!out) return out;
  if (!packet.descriptors.empty() || out->fetches > 1 || out->reserved != 0)
    return Status(Code::kCorrupt, "a last word that cannot be");
  return out;
}

Result<WindowRequest> decode_window_request(const Packet& packet) {
  auto out = decode<WindowRequest>(packet);
  if (!out) return out;
  if (!packet.descriptors.empty() || Handle::unpack(out->region).generation == 0)
    return Status(Code::kCorrupt, "a request for what can be no region");
  return out;
}

Result<WindowReply> decode_window_reply(const Packet& packet) {
  auto out = decode<WindowReply>(packet);
  if (!out) return out;
  const bool refused = out->code != 0;
  const bool empty = out->rights == 0 && out->slot == 0 && out->ticket == 0 && out->length_bytes == 0 &&
                     out->address == 0 && packet.descriptors.empty();
  if (out->reserved != 0 || out->code >= kCodeCount || (refused && !empty))
    return Status(Code::kCorrupt, "a refusal of a region that says more");
  if (refused) return out;
  if (out->rights == 0 || out->rights > static_cast<std::uint8_t>(Rights::kReadWrite) ||
      out->slot >= limits::kExports || out->ticket == 0 || out->length_bytes == 0 ||
      !in_bounds(out->address, out->length_bytes, UINT64_MAX))
    return Status(Code::kCorrupt, "a region that cannot be");
  const Status there = check_descriptors(packet, out->address == 0 ? WindowReply::kDescriptors : 0);
  if (there.code() == Code::kResourceExhausted)
    out->code = static_cast<std::uint8_t>(there.code());
  else
    SLIME_TRY(there);
  return out;
}

Result<UniqueFd> listen_local(const std::string& name) {
  auto socket = local_socket();
  if (!socket) return socket;
  const LocalAddress at = abstract(name);
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0)
    return from_errno("bind of a local socket", errno);
  if (::listen(socket->get(), SOMAXCONN) != 0) return from_errno("listen on a local socket", errno);
  return socket;
}

Result<UniqueFd> connect_local(const std::string& name) {
  auto socket = local_socket();
  if (!socket) return socket;
  const LocalAddress at = abstract(name);
  if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0) return socket;
  if (errno == EAGAIN) return UniqueFd();
  return Status(Code::kUnavailable, str("its local socket cannot be reached (", std::strerror(errno),
                                        "): it is in another network namespace, on another host, or gone"));
}

Status send_packet(int socket, Bytes bytes, std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    SLIME_CHECK(descriptors.size() <= kMostDescriptors);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t n = 0;
  do {
    n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return from_errno("sendmsg on a local socket", errno);
  return {};
}

void send_refusal(int socket, const Status& reason) {
  AttachedPacket answer;
  answer.code = static_cast<std::uint32_t>(reason.code());
  send_packet(socket, std::as_bytes(std::span(&answer, 1)), {}).ignore();
}

Result<Packet> receive_packet(int socket) {
  Packet out;
  // room for one byte more than the longest packet, so that a packet that is too long is noticed
  out.bytes.resize(sizeof(WindowReply) + 1);
  iovec part{out.bytes.data(), out.bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return Status(Code::kResourceExhausted, "nothing has come yet");
  if (n < 0) return Status(Code::kUnavailable, from_errno("recvmsg on a local socket", errno).text());
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      out.descriptors.emplace_back(fd);
    }
  }
  if (n == 0) return Status(Code::kUnavailable, "the peer closed its local socket");
  out.lost_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  out.bytes.resize(static_cast<std::size_t>(n));
  return out;
}

Status check_neighbour(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return from_errno("SO_PEERCRED", errno);
  if (credentials.uid != ::geteuid())
    return Status(Code::kPermissionDenied,
                  str("shared memory is for processes of one user: the peer has uid ", credentials.uid,
                      ", this process ", ::geteuid()));
  return {};
}

}  // namespace slime::transport::shm
