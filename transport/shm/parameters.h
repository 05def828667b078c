#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace slime::transport::shm {

// What the two sides tell each other through the handshake, 60 bytes.
struct Parameters {
  static constexpr std::uint32_t kVersion = 2;  // 2: regions may be mapped

  std::uint32_t version = kVersion;
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;   // for people
  InstanceId boot;         // of the kernel: which host
  InstanceId socket_name;  // where the teller's port listens
  InstanceId cookie;       // what the peer shows there, if it is the initiator

  [[nodiscard]] ByteVector encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

// What an initiator tells with its offer of shared memory: where it is, and whose. 36 bytes.
struct Hint {
  InstanceId boot;
  std::uint64_t network_namespace = 0;  // that its local sockets are in; 0: cannot be seen
  std::uint64_t user_namespace = 0;     // that its user id is of; 0: cannot be seen
  std::uint32_t uid = 0;

  // Of this process; kUnavailable where /proc does not say.
  static Result<Hint> of_this_process();
  [[nodiscard]] ByteVector encode() const;
};

// Why two processes that tell these cannot share memory, or OK. `theirs` may be any bytes.
Status check_hints(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name);

// The name of a local socket, in the abstract namespace.
std::string local_socket_name(const InstanceId& id);

// Which boot of which kernel this is; kUnavailable where /proc does not say.
Result<InstanceId> boot_id();

// Why the two cannot share memory, or OK.
Status check_same_host(const Parameters& ours, const Parameters& theirs, const std::string& peer_name);

}  // namespace slime::transport::shm
