#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace slime::transport::shm {

// Data of 60 bytes that each side sends the other in the handshake.
struct Parameters {
  static constexpr std::uint32_t kVersion = 2;  // 2: regions may be mapped

  std::uint32_t version = kVersion;
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;   // for people
  InstanceId boot;         // of the kernel: names the host
  InstanceId socket_name;  // name of the local socket on which the sender's port listens
  InstanceId cookie;       // an initiator sends its peer's cookie to the peer's local socket

  [[nodiscard]] ByteVector encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

// Data of 36 bytes that an initiator sends with its offer of shared memory: its host, namespaces
// and user.
struct Hint {
  InstanceId boot;
  std::uint64_t network_namespace = 0;  // namespace of its local sockets; 0: unknown
  std::uint64_t user_namespace = 0;     // namespace of its user id; 0: unknown
  std::uint32_t uid = 0;

  // Returns the hint of this process; kUnavailable if /proc cannot be read.
  static Result<Hint> of_this_process();
  [[nodiscard]] ByteVector encode() const;
};

// Returns OK if processes with these hints can share memory, else the reason why not. `theirs` may
// be any bytes.
Status check_hints(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name);

// Returns the name of the local socket with this id, in the abstract namespace.
std::string local_socket_name(const InstanceId& id);

// Returns the id of this boot of the host's kernel; kUnavailable if /proc cannot be read.
Result<InstanceId> boot_id();

// Returns OK if the two processes can share memory (same host and user), else the reason why not.
Status check_same_host(const Parameters& ours, const Parameters& theirs, const std::string& peer_name);

}  // namespace slime::transport::shm
