#include "agent/registry/keyring.h"

#include <algorithm>
#include <utility>

#include "ctrl/limits.h"
#include "transport/limits.h"

namespace slime::agent {

static_assert(ctrl::limits::kScopeKeys <= transport::limits::kHandshakeKeys);

Keyring::Keyring() { set_.keys.push_back({0, Secret::random(ctrl::limits::kScopeKeyBytes), 0}); }

bool Keyring::begin(const ctrl::ScopeKeys& keys, Nanos heartbeat) {
  const MutexLock lock(mutex_);
  set_.grace = heartbeat;
  return (!keys.empty() || ctrl::newest_id(set_.keys) == 0) && take(keys);
}

bool Keyring::update(const ctrl::ScopeKeys& keys) {
  const MutexLock lock(mutex_);
  // A nanoctrl that lags behind may still send keys that were revoked: an older set is ignored.
  return ctrl::newest_id(keys) > ctrl::newest_id(set_.keys) && take(keys);
}

bool Keyring::take(const ctrl::ScopeKeys& keys) {
  if (keys == set_.keys) return false;
  const bool shares =
      std::any_of(keys.begin(), keys.end(), [this](const ctrl::ScopeKey& key) SLIME_REQUIRES(mutex_) {
        return std::find(set_.keys.begin(), set_.keys.end(), key) != set_.keys.end();
      });
  ++set_.version.changes;
  if (!shares && !set_.keys.empty()) ++set_.version.revocations;
  set_.keys = keys;
  return true;
}

transport::HandshakeKeys Keyring::handshake_keys() const {
  const MutexLock lock(mutex_);
  transport::HandshakeKeys out;
  out.version = set_.version;
  for (auto key = set_.keys.rbegin(); key != set_.keys.rend(); ++key) out.keys.push_back(key->secret);
  if (out.keys.size() > 1) std::swap(out.keys[0], out.keys[1]);
  return out;
}

KeySet Keyring::set() const {
  const MutexLock lock(mutex_);
  return set_;
}

std::uint64_t Keyring::newest() const {
  const MutexLock lock(mutex_);
  return ctrl::newest_id(set_.keys);
}

}  // namespace slime::agent
