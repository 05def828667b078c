#pragma once

#include <string>

#include "base/secret.h"
#include "ctrl/limits.h"
#include "ctrl/types.h"

namespace slime::ctrl::test {

// Returns an instance id with the number in its last byte, recognisable in texts.
inline InstanceId instance(std::uint8_t number) {
  InstanceId id;
  id.bytes[15] = std::byte{number};
  return id;
}

// The session of the agents in these tests, in hexadecimal and as a Secret.
inline const std::string kSession(2 * limits::kSessionBytes, '5');
inline Secret session() { return *Secret::from_hex(kSession, limits::kSessionBytes); }

inline Registration registration(std::string name, std::uint8_t number) {
  Registration out;
  out.name = std::move(name);
  out.instance = instance(number);
  out.address = "127.0.0.1:7001";
  out.kind = "worker";
  return out;
}

}  // namespace slime::ctrl::test
