#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/context.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// Makes the keys with which members of a scope prove their membership to each other. A member has a
// token that may join the scope. If nanoctrl requires no tokens, there are no members and no keys.
// Thread: any.
class KeyMaker {
 public:
  // `context` outlives this.
  explicit KeyMaker(Context& context) : context_(context) {}

  // Returns the scope's keys for a principal that may join the scope; empty if the newest key has
  // the id `have`. Makes the scope's first key if there is none. kUnauthenticated: the principal's
  // token was revoked or expired.
  Result<ScopeKeys> keys_for(const Principal& principal, const std::string& scope, std::uint64_t have);
  // Adds a key to each scope whose newest key is due for rotation, or may be known to the bearer of
  // an expired token. Does nothing if it was called before in the same second.
  void rotate();

 private:
  // Remembers the newest key of each scope where that key was made by a nanoctrl whose clock is
  // ahead of ours. Keeps the keys of the last two calls of rotate().
  class KeysAhead {
   public:
    void begin() { before_ = std::exchange(seen_, {}); }
    // Returns whether `id` has been the scope's newest key for at least `period` by our clock.
    // Without this wait, two nanoctrl whose clocks differ by more than `period` would replace each
    // other's key every second.
    bool for_long(const std::string& scope, std::uint64_t id, TimePoint now, Nanos period);

   private:
    struct Seen {
      std::uint64_t id;
      TimePoint since;
    };
    std::map<std::string, Seen> before_, seen_;
  };

  [[nodiscard]] Status still_holds(const Registry& registry, const std::string& token,
                                   const ScopeKeys& keys) const;
  // Returns the time between two keys of a scope. At least the TTL of leases, so that every member
  // gets each key with a heartbeat.
  [[nodiscard]] Nanos period(const Registry& registry) const;
  [[nodiscard]] std::vector<RotateKeysCommand> due_rotations(const Registry& registry, std::uint64_t now);
  [[nodiscard]] RotateKeysCommand new_key(std::string scope, std::uint64_t replaces, bool alone) const;

  Context& context_;
  std::atomic<std::uint64_t> rotated_at_s_{0};  // the last second in which rotate() looked
  Mutex ahead_mutex_;                           // locked while the engine's lock is held
  KeysAhead ahead_ SLIME_GUARDED_BY(ahead_mutex_);
};

}  // namespace slime::ctrl
