#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/secret.h"
#include "ctrl/types.h"
#include "transport/connect.h"

namespace slime::agent {

// The scope's keys at one moment.
struct KeySet {
  ctrl::ScopeKeys keys;
  transport::KeySetVersion version;
  // Time that a peer has to prove one of `keys` after all keys that it proved were revoked: the
  // heartbeat interval of the lease.
  Nanos grace{};
};

// The scope's keys for handshakes, as nanoctrl hands them to agents. Until the first registration
// has told whether there are any, the keyring holds a random key that no peer has, so that no peer
// can connect meanwhile. Thread: any.
//
// A new set that shares a key with the set before is a rotation. A set that shares none follows a
// revocation: nanoctrl took all keys of the scope away. If this agent has missed so many rotations
// that no old key is left, the new set counts as a revocation, too, to be safe.
class Keyring {
 public:
  Keyring();
  // Takes over the keys in the answer to a registration, and the heartbeat interval of its lease.
  // An answer without keys says that nanoctrl requires no tokens: handshakes then need no keys. But
  // a keyring that has had keys keeps them. Returns whether the set changed.
  bool begin(const ctrl::ScopeKeys& keys, Nanos heartbeat);
  // Takes over the keys in the answer to a heartbeat. An answer without keys changes nothing.
  // Returns whether the set changed.
  bool update(const ctrl::ScopeKeys& keys);

  // Returns the keys for a handshake. This side proves the first of them: the current key, which
  // nanoctrl has handed out for a while. The peer may not have the next key yet.
  [[nodiscard]] transport::HandshakeKeys handshake_keys() const;
  [[nodiscard]] KeySet set() const;
  // Returns the newest_id() of the keys.
  [[nodiscard]] std::uint64_t newest() const;

 private:
  bool take(const ctrl::ScopeKeys& keys) SLIME_REQUIRES(mutex_);

  mutable Mutex mutex_;
  KeySet set_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::agent
