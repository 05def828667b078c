#include "agent/connecting/target.h"

#include "base/str.h"
#include "ctrl/types.h"

namespace slime::agent {

Target parse_target(std::string_view text, bool has_registry) {
  if (text.empty())
    return {true,
            {},
            Status(Code::kInvalidArgument,
                   "the name of the peer is empty: a peer is a name (\"worker:0\"), \"host:port\" or "
                   "\"tcp://host:port\"")};
  constexpr std::string_view kScheme = "tcp://";
  if (text.starts_with(kScheme)) return {false, std::string(text.substr(kScheme.size()))};
  if (text.find("://") != std::string_view::npos)
    return {
        true,
        {},
        Status(Code::kInvalidArgument, str("\"", text,
                                           "\" is a URL: a peer is a name (\"worker:0\"), \"host:port\" or "
                                           "\"tcp://host:port\"; the URL of nanoctrl goes into ctrl_url"))};
  const auto address = Address::parse(text);
  if (!address || address->port == 0) return {true, {}};
  if (has_registry && !SocketAddress::numeric(*address)) return {true, {}};
  return {false, std::string(text)};
}

Status check_agent_name(std::string_view what, std::string_view name) {
  SLIME_TRY(ctrl::check_name(what, name));
  if (parse_target(name, true).by_name) return {};
  return {Code::kInvalidArgument, str(what, " \"", name, "\" would be taken for an address")};
}

bool is_wildcard(const Address& address) {
  const auto numeric = SocketAddress::numeric(address);
  if (!numeric) return false;
  const std::string host = numeric->to_address().host;
  return host == "0.0.0.0" || host == "::";
}

}  // namespace slime::agent
