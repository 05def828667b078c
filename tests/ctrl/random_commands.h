#pragma once

#include <string>
#include <utility>

#include "base/random.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl::test {

// Returns the proof of one of a few owners, or trust.
inline Proof random_proof(Rng& rng) {
  Proof out = Proof::trusted();
  out.owner.token_id = std::string(limits::kTokenIdDigits, static_cast<char>('0' + rng.below(2)));
  const std::uint64_t kind = rng.below(6);
  if (kind == 0) out.kind = Proof::Kind::kToken;
  if (kind > 1) {
    out.kind = Proof::Kind::kSession;
    out.owner.session_sha256 = std::string(2 * limits::kSessionBytes, static_cast<char>('a' + rng.below(2)));
  }
  return out;
}

// Returns a command as agents send it for this peer. `granted`: the incarnation that the agent has.
inline Command random_peer_command(Rng& rng, Registration peer, std::uint64_t granted) {
  switch (rng.below(6)) {
    case 0:
      return HeartbeatCommand{peer.scope, peer.name, granted, random_proof(rng)};
    case 1:
      return DeregisterCommand{peer.scope, peer.name, granted, random_proof(rng)};
    case 2:
      return UpdateServicesCommand{
          peer.scope, peer.name,        granted, rng.chance(1, 2), {{"calc", "math", {"add"}}},
          {"old"},    random_proof(rng)};
    case 3:
      return UpdateRegionsCommand{
          peer.scope, peer.name,        granted, rng.chance(1, 2), {{"kv", 4096, RegionRights::kReadWrite}},
          {"old"},    random_proof(rng)};
    default:
      return RegisterCommand{std::move(peer), rng.chance(1, 4) ? granted : 0, random_proof(rng)};
  }
}

}  // namespace slime::ctrl::test
