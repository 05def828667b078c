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
  // Every request needs a token. False: as soon as the registry has tokens.
  bool require_token = false;
  // A token with all rights in all scopes that is not in the registry.
  std::optional<TokenRecord> admin_token = {};
  // Decides when tokens expire and when keys are due.
  std::function<std::uint64_t()> unix_time_s = ctrl::unix_time_s;
  // How often a scope with peers gets a new key; zero: never. At least the registry's TTL apart, so that
  // every member has heard of a key with a heartbeat before the key is used.
  Nanos key_rotation = limits::kKeyRotation;
  std::size_t probes_max = limits::kProbes;
  double requests_per_second_of_token = limits::kTokenRequestsPerSecond;  // 0: any number
  // While nobody needs a token, answers only requests for names of this machine. Otherwise a web page could
  // ask by a name of its own that leads here, and would be answered.
  bool only_loopback_names = false;
  Nanos watch_wait_max = limits::kWatchWaitMax;
  // Logs the event and wakes the watches of its scope. Called under the engine's lock; may be empty.
  std::function<void(const ScopedEvent&)> on_event = {};
  // The logs of changes begin anew: watches look again. Called under the engine's lock; may be empty.
  std::function<void()> on_reset = {};
  // Figures of the front for metrics and status. Never block; may be empty.
  std::function<std::size_t()> connections = {};
  std::function<std::size_t()> refused = {};  // requests and connections that no route saw
  std::function<std::size_t()> parked = {};   // watches that wait now
};

}  // namespace slime::ctrl
