#pragma once

#include <string>
#include <string_view>

#include "base/address.h"
#include "base/status.h"

namespace slime::agent {

// The text given to PeerAgent::peer(), parsed: an address or a name.
struct Target {
  bool by_name = true;
  std::string address;  // unless by_name
  Status problem{};     // not OK: the text is neither an address nor a name
};

// Parses "tcp://host:port" as an address. "host:port" with a port of at least 1 is an address, too,
// if there is no registry, or if the host is an IP address or "localhost". Everything else is a
// name: "worker:0", and, with a registry, "worker:1". An empty text and any other URL set
// `problem`.
Target parse_target(std::string_view text, bool has_registry);

// Checks the name of an agent, this one's or a peer's. Refuses what ctrl::check_name() refuses,
// and names that parse_target() takes for addresses: nothing would find an agent by such a name.
// `what` begins the text of kInvalidArgument.
Status check_agent_name(std::string_view what, std::string_view name);

// Returns true for 0.0.0.0 and ::, which are addresses to listen on but not to connect to.
bool is_wildcard(const Address& address);

}  // namespace slime::agent
