#include "agent/keyring.h"

#include <utility>

#include "ctrl/limits.h"
#include "transport/limits.h"

namespace slime::agent {

static_assert(ctrl::limits::kScopeKeys <= transport::limits::kHandshakeKeys);

Keyring::Keyring() { keys_.push_back(Secret::random(ctrl::limits::kScopeKeyBytes)); }

void Keyring::begin(const ctrl::ScopeKeys& keys) {
  const std::lock_guard lock(mutex_);
  if (!keys.empty() || newest_ == 0) take(keys);
}

void Keyring::update(const ctrl::ScopeKeys& keys) {
  const std::lock_guard lock(mutex_);
  // A nanoctrl that is behind may still have those that a revocation took away.
  if (ctrl::newest_id(keys) > newest_) take(keys);
}

void Keyring::take(const ctrl::ScopeKeys& keys) {
  std::vector<Secret> next;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) next.push_back(key->secret);
  if (next.size() > 1) std::swap(next[0], next[1]);
  keys_ = std::move(next);
  newest_ = ctrl::newest_id(keys);
}

std::vector<Secret> Keyring::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

std::uint64_t Keyring::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

}  // namespace slime::agent
