#pragma once

#include <string>
#include <string_view>

#include "base/address.h"
#include "base/status.h"

namespace slime::agent {

// What the text given to PeerAgent::peer() means.
struct Target {
  bool by_name = true;
  std::string address;  // when it is not by name
  Status problem{};     // why the text is neither an address nor a name
};

// "tcp://host:port" is an address. So is "host:port" with a port from 1 up, when there is no registry, or
// when the host is an IP address or "localhost". Everything else is a name: "worker:0", and, with a registry,
// "worker:1". Any other URL is a `problem`.
Target parse_target(std::string_view text, bool has_registry);

// 0.0.0.0 or ::, which one can listen on and nobody can connect to.
bool is_wildcard(const Address& address);

}  // namespace slime::agent
