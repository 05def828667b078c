#pragma once

#include <string>

#include "ctrl/types.h"

namespace slime::ctrl::test {

// An instance id that is recognised in texts: the number in its last byte.
inline InstanceId instance(std::uint8_t number) {
  InstanceId id;
  id.bytes[15] = std::byte{number};
  return id;
}

inline Registration registration(std::string name, std::uint8_t number) {
  Registration out;
  out.name = std::move(name);
  out.instance = instance(number);
  out.address = "127.0.0.1:7001";
  out.kind = "worker";
  return out;
}

}  // namespace slime::ctrl::test
