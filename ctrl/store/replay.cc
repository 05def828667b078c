#include "ctrl/store/replay.h"

#include <algorithm>

#include "base/check.h"

namespace slime::ctrl {

using std::chrono::milliseconds;

Nanos tick_interval(Nanos ttl) { return std::clamp<Nanos>(ttl / 10, milliseconds(50), milliseconds(1000)); }

// A longer gap between two entries counts as an outage, and renews all leases. The limit is longer
// than the usual interval between entries, so a usual pause is no outage. It is shorter than the
// two thirds of the TTL that a lease has left when it is due for renewal.
Nanos idle_limit(Nanos ttl) { return std::max<Nanos>(ttl / 3, milliseconds(500)); }

Outcome Replay::apply(Registry& registry, EntryId id, const Command& command) {
  SLIME_CHECK(id > at_);
  if (id.time() - at_.time() > idle_limit(registry.options().ttl)) registry.renew_all(id.time());
  at_ = id;
  ++entries_;
  return registry.apply(command, id.time());
}

std::uint64_t largest_number(const RegistryState& state) {
  std::uint64_t out = std::max({state.epoch, state.last_incarnation, state.revision_floor});
  for (const auto& [scope, revision] : state.revisions) out = std::max(out, revision);
  return out;
}

bool goes_on_from(const RegistryState& state, std::uint64_t known) {
  return state.last_incarnation >= known && state.revision_floor >= known &&
         std::all_of(state.revisions.begin(), state.revisions.end(),
                     [known](const auto& scope) { return scope.second >= known; });
}

bool went_back(const RegistryState& earlier, const RegistryState& state) {
  if (state.last_incarnation < earlier.last_incarnation || state.revision_floor < earlier.revision_floor)
    return true;
  return std::any_of(earlier.revisions.begin(), earlier.revisions.end(), [&state](const auto& scope) {
    const auto it = state.revisions.find(scope.first);
    // A missing scope was removed to make room, which raised the floor to the scope's revision.
    return (it == state.revisions.end() ? state.revision_floor : it->second) < scope.second;
  });
}

}  // namespace slime::ctrl
