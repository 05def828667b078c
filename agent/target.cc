#include "agent/target.h"

namespace slime::agent {

Target parse_target(std::string_view text, bool has_registry) {
  constexpr std::string_view kScheme = "tcp://";
  if (text.starts_with(kScheme)) return {false, std::string(text.substr(kScheme.size()))};
  const auto address = Address::parse(text);
  if (!address || address->port == 0) return {true, {}};
  if (has_registry && !SocketAddress::numeric(*address)) return {true, {}};
  return {false, std::string(text)};
}

bool is_wildcard(const Address& address) {
  const auto numeric = SocketAddress::numeric(address);
  if (!numeric) return false;
  const std::string host = numeric->to_address().host;
  return host == "0.0.0.0" || host == "::";
}

}  // namespace slime::agent
