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

// Makes the keys with which the members of a scope prove their membership to each other. A member
// is the bearer of a token that may join the scope; where no token is needed there are no members
// and no keys. Thread: any.
class KeyMaker {
 public:
  // `context` outlives this.
  explicit KeyMaker(Context& context) : context_(context) {}

  // Returns the scope's keys for a principal that may join the scope; empty if the newest key is
  // `have`. Makes the first key of a scope. kUnauthenticated: the token was revoked or expired
  // meanwhile.
  Result<ScopeKeys> keys_for(const Principal& principal, const std::string& scope, std::uint64_t have);
  // Adds a key to each scope whose newest key is due for rotation. Looks at most once per second of
  // unix_time_s.
  void rotate();

 private:
  // Newest keys whose maker's clock is ahead of ours. Holds the keys seen in the last two rounds of
  // rotate().
  class KeysAhead {
   public:
    void begin() { before_ = std::exchange(seen_, {}); }
    // Returns whether this newest key has been there for `period` by our clock. Rotating sooner
    // would make two nanoctrl whose clocks differ by more than `period` replace each other's key
    // every second.
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
  // Time between two keys of a scope. At least the TTL, so that members receive each key by
  // heartbeat.
  [[nodiscard]] Nanos period(const Registry& registry) const;
  [[nodiscard]] std::vector<RotateKeysCommand> due_rotations(const Registry& registry, std::uint64_t now);
  [[nodiscard]] RotateKeysCommand new_key(std::string scope, std::uint64_t replaces, bool alone) const;

  Context& context_;
  std::atomic<std::uint64_t> rotated_at_s_{0};  // the last second in which rotate() looked
  Mutex ahead_mutex_;                           // locked while the engine's lock is held
  KeysAhead ahead_ SLIME_GUARDED_BY(ahead_mutex_);
};

}  // namespace slime::ctrl
