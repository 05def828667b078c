#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/secret.h"
#include "ctrl/types.h"
#include "transport/connect.h"

namespace slime::agent {

// The keys of the scope at one moment.
struct KeySet {
  ctrl::ScopeKeys keys;
  transport::KeySetVersion version;
  // How long a peer whose proved keys were revoked has to prove one of these: a heartbeat of the lease.
  Nanos grace{};
};

// The keys that nanoctrl hands to the members of the scope, for handshakes. Until the first registration has
// said whether there are any, a key that nobody has, so that nobody comes in meanwhile. Thread: any.
//
// A new set that shares a key with the set before is a rotation. One that shares none follows a revocation:
// nanoctrl took all keys of the scope away. So does one that follows more rotations than a set has keys, of
// which this agent heard nothing; to be safe it counts as a revocation too.
class Keyring {
 public:
  Keyring();
  // Takes the keys of a registration's answer, and the heartbeat interval of its lease. An answer without
  // keys says that nanoctrl requires no tokens: handshakes then need no keys. A keyring that has had keys
  // keeps them all the same. Returns whether the set changed.
  bool begin(const ctrl::ScopeKeys& keys, Nanos heartbeat);
  // Takes the keys of a heartbeat's answer; an answer without keys changes nothing. Returns whether the set
  // changed.
  bool update(const ctrl::ScopeKeys& keys);

  // What a handshake may use; the first is what this side proves: the current one, which has been handed out
  // for a while, and not the next one, of which the peer may not have heard.
  [[nodiscard]] transport::HandshakeKeys handshake_keys() const;
  [[nodiscard]] KeySet set() const;
  // The newest_id() of them.
  [[nodiscard]] std::uint64_t newest() const;

 private:
  bool take(const ctrl::ScopeKeys& keys);

  mutable std::mutex mutex_;
  KeySet set_;
};

}  // namespace slime::agent
