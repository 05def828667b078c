#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "ctrl/api/auth.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"
#include "ctrl/types.h"

namespace slime::ctrl {

struct ApiOptions {
  // True: every request needs a token. False: requests need a token only once the registry has one.
  bool require_token = false;
  // An administrator's token for all scopes, in addition to the tokens in the registry.
  std::optional<TokenRecord> admin_token = {};
  // Returns the time in seconds since 1970, used for the expiry of tokens and the rotation of keys.
  std::function<std::uint64_t()> unix_time_s = ctrl::unix_time_s;
  // Time between two keys of a scope that has peers. A value below the registry's TTL counts as the
  // TTL, so that every member gets a key by heartbeat before the key is used. Zero: only a revoked
  // or expired token causes a new key.
  Nanos key_rotation = limits::kKeyRotation;
  std::size_t probes_max = limits::kProbes;
  double requests_per_second_of_token = limits::kTokenRequestsPerSecond;  // 0: no limit
  // While requests need no token, refuses requests whose Host or Origin does not name this machine.
  // Without this check, a web page could reach nanoctrl through a DNS name that resolves to this
  // machine (DNS rebinding).
  bool only_loopback_names = false;
  Nanos watch_wait_max = limits::kWatchWaitMax;
  // Called under the engine's lock for each change of the registry; may be empty. Must log the
  // event and wake the watches of its scope.
  std::function<void(const ScopedEvent&)> on_event = {};
  // Called under the engine's lock when the registry's change logs were reset; may be empty. Must
  // wake all watches.
  std::function<void()> on_reset = {};
  // `connections`, `refused` and `parked` return counts of the HTTP front, for metrics and the
  // status. They must not block, and may be empty. `connections`: the number of open connections.
  std::function<std::size_t()> connections = {};
  std::function<std::size_t()> refused = {};  // requests and connections refused before a route
  std::function<std::size_t()> parked = {};   // watches that wait now
};

}  // namespace slime::ctrl
