#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace slime::transport::shm {

// The data that the two sides send each other in the handshake, 60 bytes.
struct Parameters {
  static constexpr std::uint32_t kVersion = 2;  // 2: regions may be mapped

  std::uint32_t version = kVersion;
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;   // for people
  InstanceId boot;         // of the kernel: names the host
  InstanceId socket_name;  // local socket on which the sender's port listens
  InstanceId cookie;       // what the peer sends to that socket, if it is the initiator

  [[nodiscard]] ByteVector encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

// The data that an initiator sends with its offer of shared memory: its host, namespaces and user.
// 36 bytes.
struct Hint {
  InstanceId boot;
  std::uint64_t network_namespace = 0;  // namespace of its local sockets; 0: unknown
  std::uint64_t user_namespace = 0;     // namespace of its user id; 0: unknown
  std::uint32_t uid = 0;

  // Returns the hint of this process; kUnavailable if /proc cannot be read.
  static Result<Hint> of_this_process();
  [[nodiscard]] ByteVector encode() const;
};

// Returns OK, or why two processes with these hints cannot share memory. `theirs` may be any bytes.
Status check_hints(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name);

// Returns the name of a local socket, in the abstract namespace.
std::string local_socket_name(const InstanceId& id);

// Returns the id of this boot of the kernel; kUnavailable if /proc cannot be read.
Result<InstanceId> boot_id();

// Returns OK, or why the two processes cannot share memory.
Status check_same_host(const Parameters& ours, const Parameters& theirs, const std::string& peer_name);

}  // namespace slime::transport::shm
