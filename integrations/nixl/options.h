#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/result.h"

namespace slime::nixl {

// Settings of the backend. Users give them as NIXL's init params or as SLIME_NIXL_<NAME> in the
// environment; the params win.
struct Options {
  PeerAgentOptions agent;
  Nanos stall_timeout{};
  Nanos timeout{};  // longest time of a transfer, even one that makes progress; zero: no limit

  // Returns the names of all settings with their defaults as text.
  static std::unordered_map<std::string, std::string> defaults();
  using Environment = std::function<std::optional<std::string>(const std::string& name)>;
  // Reads all settings. kInvalidArgument names the parameter and its valid values. Ignores unknown
  // parameters, because users of NIXL give the same params to every backend.
  static Result<Options> from(const std::unordered_map<std::string, std::string>& params,
                              const Environment& environment);
};

// std::getenv as an Options::Environment.
std::optional<std::string> environment(const std::string& name);

}  // namespace slime::nixl
