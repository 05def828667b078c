#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/context.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// Makes the keys that the members of a scope prove themselves to each other with. A member is who has a token
// that may join the scope; where nobody needs a token there are no members, and no keys. Thread: any.
class KeyMaker {
 public:
  // `context` outlives this.
  explicit KeyMaker(Context& context) : context_(context) {}

  // Returns the scope's keys for a principal that may join the scope, or none if the newest of them is
  // `have`. Makes the first key of a scope. kUnauthenticated: the token was revoked meanwhile, or ran out.
  Result<ScopeKeys> keys_for(const Principal& who, const std::string& scope, std::uint64_t have);
  // Gives each scope whose newest key is due another one. Looks once a second of unix_time_s, however often
  // it is called.
  void rotate();

 private:
  // The newest keys of scopes that a clock ahead of ours made, as of two looks at them all.
  class KeysAhead {
   public:
    void begin() { before_ = std::exchange(seen_, {}); }
    // Whether this newest key has been there for a period by our clock. Not sooner: of two nanoctrl whose
    // clocks are further apart than that, each would replace the other's key every second.
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
  // Time between two keys of a scope: members hear of each with a heartbeat.
  [[nodiscard]] Nanos period(const Registry& registry) const;
  [[nodiscard]] std::vector<RotateKeysCommand> due_rotations(const Registry& registry, std::uint64_t now);
  [[nodiscard]] RotateKeysCommand new_key(std::string scope, std::uint64_t replaces, bool alone) const;

  Context& context_;
  std::atomic<std::uint64_t> rotated_at_s_{0};  // the last second in which rotate() looked
  std::mutex ahead_mutex_;                      // taken with the engine's
  KeysAhead ahead_;
};

}  // namespace slime::ctrl
