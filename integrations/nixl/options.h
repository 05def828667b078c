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

// Settings of users, given as NIXL's init params of the backend or as SLIME_NIXL_<NAME> in the
// environment; the params win.
struct Options {
  PeerAgentOptions agent;
  Nanos stall_timeout{};
  Nanos timeout{};  // of a transfer, whether it moves or not; zero: none

  // Returns the names of all settings with their defaults as text.
  static std::unordered_map<std::string, std::string> defaults();
  using Environment = std::function<std::optional<std::string>(const std::string& name)>;
  // kInvalidArgument names the parameter and its valid values. Ignores unknown parameters: users of
  // NIXL give the same params to every backend.
  static Result<Options> from(const std::unordered_map<std::string, std::string>& params,
                              const Environment& environment);
};

// std::getenv as an Options::Environment.
std::optional<std::string> environment(const std::string& name);

}  // namespace slime::nixl
