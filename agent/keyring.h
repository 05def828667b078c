#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/secret.h"
#include "ctrl/types.h"

namespace slime::agent {

// The keys that nanoctrl hands to the members of the scope, for handshakes. Until the first registration has
// said whether there are any, a key that nobody has, so that nobody comes in meanwhile. Thread: any.
class Keyring {
 public:
  Keyring();
  // What a registration told. None: nanoctrl requires no tokens, and handshakes need none either; but who has
  // had keys keeps them.
  void begin(const ctrl::ScopeKeys& keys);
  // What a heartbeat told; none: nothing new.
  void update(const ctrl::ScopeKeys& keys);

  // What a handshake may use; the first is what this side proves: the current one, which has been handed out
  // for a while, and not the next one, of which the peer may not have heard.
  [[nodiscard]] std::vector<Secret> keys() const;
  // The newest_id() of them.
  [[nodiscard]] std::uint64_t newest() const;

 private:
  void take(const ctrl::ScopeKeys& keys);

  mutable std::mutex mutex_;
  std::uint64_t newest_ = 0;
  std::vector<Secret> keys_;
};

}  // namespace slime::agent
