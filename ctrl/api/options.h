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
  // Every request needs a token. False: only once the registry has a token.
  bool require_token = false;
  // An administrator's token for all scopes that is not in the registry.
  std::optional<TokenRecord> admin_token = {};
  // The clock of token expiry and key rotation.
  std::function<std::uint64_t()> unix_time_s = ctrl::unix_time_s;
  // How often a scope with peers gets a new key; zero: never. At least the registry's TTL, so that
  // every member has received a key by heartbeat before the key is used.
  Nanos key_rotation = limits::kKeyRotation;
  std::size_t probes_max = limits::kProbes;
  double requests_per_second_of_token = limits::kTokenRequestsPerSecond;  // 0: no limit
  // While no token is needed, answers only requests whose Host and Origin name this machine.
  // Otherwise a web page could reach nanoctrl through a DNS name that resolves to this machine (DNS
  // rebinding).
  bool only_loopback_names = false;
  Nanos watch_wait_max = limits::kWatchWaitMax;
  // Logs the event and wakes the watches of its scope. Called under the engine's lock; may be
  // empty.
  std::function<void(const ScopedEvent&)> on_event = {};
  // The registry's change logs were reset: watches look again. Called under the engine's lock; may
  // be empty.
  std::function<void()> on_reset = {};
  // Values of the HTTP front for metrics and status. Must not block; may be empty.
  std::function<std::size_t()> connections = {};
  std::function<std::size_t()> refused = {};  // requests and connections refused before a route
  std::function<std::size_t()> parked = {};   // watches that wait now
};

}  // namespace slime::ctrl
