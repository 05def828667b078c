#pragma once

#include <utility>

#include "base/random.h"
#include "ctrl/registry.h"

namespace slime::ctrl::test {

// What agents send of this peer; `granted`: the incarnation that they think they have.
inline Command random_peer_command(Rng& rng, Registration peer, std::uint64_t granted) {
  switch (rng.below(6)) {
    case 0:
      return HeartbeatCommand{peer.scope, peer.name, granted};
    case 1:
      return DeregisterCommand{peer.scope, peer.name, granted};
    case 2:
      return UpdateServicesCommand{
          peer.scope, peer.name, granted, rng.chance(1, 2), {{"calc", "math", {"add"}}}, {"old"}};
    case 3:
      return UpdateRegionsCommand{
          peer.scope, peer.name, granted, rng.chance(1, 2), {{"kv", 4096, RegionRights::kReadWrite}},
          {"old"}};
    default:
      return RegisterCommand{std::move(peer), rng.chance(1, 4) ? granted : 0};
  }
}

}  // namespace slime::ctrl::test
