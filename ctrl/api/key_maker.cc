#include "ctrl/api/key_maker.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

// Returns, for each scope, the latest expiry of the scope's expired tokens that could join it, in
// seconds since 1970. The entry "*" is for tokens of all scopes.
std::map<std::string, std::uint64_t> ends_of_tokens(const Registry& registry, std::uint64_t now) {
  std::map<std::string, std::uint64_t> out;
  for (const auto& [id, token] : registry.tokens()) {
    if (token.role < Role::kJoin || token.expires_unix_s == 0 || token.expires_unix_s > now) continue;
    std::uint64_t& end = out[token.scope];
    end = std::max(end, token.expires_unix_s);
  }
  return out;
}

std::uint64_t to_seconds(Nanos span) {
  return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::seconds>(span).count());
}

}  // namespace

// Checks that a token may still receive `keys`. kUnauthenticated if the token was revoked, has
// expired by our clock, or had expired when the newest key was made: the nanoctrl that made the key
// may have a clock ahead of ours.
Status KeyMaker::still_holds(const Registry& registry, const std::string& token,
                             const ScopeKeys& keys) const {
  const auto it = registry.tokens().find(token);
  if (it == registry.tokens().end()) return {Code::kUnauthenticated, "the token was revoked"};
  const std::uint64_t end = it->second.expires_unix_s;
  const std::uint64_t now = context_.options().unix_time_s();
  const bool later = !keys.empty() && keys.back().made_unix_s >= end &&
                     keys.back().made_unix_s <= now + to_seconds(period(registry));
  if (end != 0 && (now >= end || later)) return {Code::kUnauthenticated, "the token has expired"};
  return {};
}

Result<ScopeKeys> KeyMaker::keys_for(const Principal& principal, const std::string& scope,
                                     std::uint64_t have) {
  if (principal.token_id.empty()) return ScopeKeys();
  bool none = false;
  const auto look = [&] {
    return context_.engine().look([&](const Registry& registry) -> Result<ScopeKeys> {
      const ScopeKeys& keys = registry.keys(scope);
      if (!context_.access().admin_tokens()->contains(principal.token_id))
        SLIME_TRY(still_holds(registry, principal.token_id, keys));
      none = keys.empty();
      return newest_id(keys) == have ? ScopeKeys() : keys;
    });
  };
  Result<ScopeKeys> keys = look();
  if (!keys || !none) return keys;
  const Status made = context_.engine().submit(new_key(scope, 0, false)).status;
  if (!made.ok() && made.code() != Code::kAborted)
    // ^Returns every error except kAborted, which means that another nanoctrl has just made the
    // first key.
    return made;
  keys = look();
  // A reply without keys would tell the member that no token is needed, so return an error.
  if (keys && none)
    return Status(Code::kUnavailable,
                  str("the keys of scope '", scope, "' were taken away meanwhile: try again"));
  return keys;
}

RotateKeysCommand KeyMaker::new_key(std::string scope, std::uint64_t replaces, bool alone) const {
  return {std::move(scope), replaces, alone, Secret::random(limits::kScopeKeyBytes),
          context_.options().unix_time_s()};
}

Nanos KeyMaker::period(const Registry& registry) const {
  return std::max(context_.options().key_rotation, registry.options().ttl);
}

bool KeyMaker::KeysAhead::for_long(const std::string& scope, std::uint64_t id, TimePoint now, Nanos period) {
  const auto it = before_.find(scope);
  const Seen seen = it != before_.end() && it->second.id == id ? it->second : Seen{id, now};
  seen_.emplace(scope, seen);
  return now - seen.since >= period;
}

std::vector<RotateKeysCommand> KeyMaker::due_rotations(const Registry& registry, std::uint64_t now) {
  const MutexLock lock(ahead_mutex_);
  ahead_.begin();
  const std::uint64_t period_s = to_seconds(period(registry));
  const std::map<std::string, std::uint64_t> ends = ends_of_tokens(registry, now);
  const auto end_of = [&](const std::string& scope) {
    const auto it = ends.find(scope);
    return it == ends.end() ? 0 : it->second;
  };
  const std::uint64_t end_of_any = end_of("*");
  std::vector<RotateKeysCommand> out;
  for (const auto& [scope, revision] : registry.revisions()) {
    const ScopeKeys& keys = registry.keys(scope);
    // Skips a scope without keys: keys_for() makes its first key on demand.
    if (keys.empty()) continue;
    // Keys made before this time may be known to the bearer of a token that has expired since.
    const std::uint64_t end = std::max(end_of(scope), end_of_any);
    // A key may have been made by a nanoctrl whose clock is ahead of ours, so its age is unknown.
    // If the key stays the newest for a period by our clock, it counts as due, and as known to the
    // bearer of an expired token.
    const auto of_the_future = [&](const ScopeKey& key) { return key.made_unix_s > now + period_s; };
    const bool ahead = of_the_future(keys.back());
    const bool settled =
        !ahead || ahead_.for_long(scope, newest_id(keys), context_.clock().now(), period(registry));
    const bool known = std::any_of(keys.begin(), keys.end(), [&](const ScopeKey& key) {
      return key.made_unix_s < end || (end != 0 && settled && of_the_future(key));
    });
    const bool old = context_.options().key_rotation > Nanos::zero() && registry.peer_count(scope) > 0 &&
                     (ahead ? settled : now >= keys.back().made_unix_s + period_s);
    if ((known || old) && out.size() < limits::kRotationsPerTick)
      out.push_back(new_key(scope, newest_id(keys), known));
  }
  return out;
}

// All nanoctrl that share a store call this function for the same keys; only the first command for
// a key has an effect, the others get kAborted.
void KeyMaker::rotate() {
  const std::uint64_t now = context_.options().unix_time_s();
  if (now == rotated_at_s_.exchange(now)) return;
  const auto due =
      context_.engine().look([&](const Registry& registry) { return due_rotations(registry, now); });
  for (const RotateKeysCommand& command : due) {
    if (context_.stopped()) return;  // each command may wait for the store
    const Status status = context_.engine().submit(command).status;
    if (status.ok()) {
      SLIME_LOG(LogLevel::kInfo, "audit", "scope ", command.scope, " has a new key",
                command.alone ? ", and no earlier one: a token that could join it ran out" : "");
    } else if (status.code() == Code::kUnavailable) {
      // The engine has logged why the store failed. The next call, a second later, tries again.
      return;
    } else if (status.code() != Code::kAborted) {
      SLIME_LOG(LogLevel::kWarning, "nanoctrl", "scope ", command.scope,
                " gets no new key: ", status.to_string());
      return;
    }
  }
}

}  // namespace slime::ctrl
