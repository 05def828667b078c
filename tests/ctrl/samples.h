#pragma once

#include <string>

#include "base/secret.h"
#include "ctrl/limits.h"
#include "ctrl/types.h"

namespace slime::ctrl::test {

// An instance id that is recognised in texts: the number in its last byte.
inline InstanceId instance(std::uint8_t number) {
  InstanceId id;
  id.bytes[15] = std::byte{number};
  return id;
}

// The session that the agents of these tests have, as HTTP has it too.
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
