#include <algorithm>
#include <map>
#include <utility>

#include "base/log.h"
#include "ctrl/api/api_query.h"

// The keys that members of a scope prove themselves to each other with. A member is who has a token that may
// join it; where nobody needs a token there are no members, and no keys.
namespace slime::ctrl {
namespace {

// When the last token of each scope ("*": of all) that may join it ran out.
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

// What is made after a token was revoked or ran out is not for its bearer, whose request may be under way, or
// at one of several nanoctrl whose clock is behind that of the one that made it.
Status Api::still_holds(const Registry& registry, const std::string& token, const ScopeKeys& keys) const {
  const auto it = registry.tokens().find(token);
  if (it == registry.tokens().end()) return {Code::kUnauthenticated, "the token was revoked"};
  const std::uint64_t end = it->second.expires_unix_s;
  const std::uint64_t now = options_.unix_time_s();
  const bool later = !keys.empty() && keys.back().made_unix_s >= end &&
                     keys.back().made_unix_s <= now + to_seconds(key_period(registry));
  if (end != 0 && (now >= end || later)) return {Code::kUnauthenticated, "the token has expired"};
  return {};
}

// Those of the scope, for who has others; the caller may join it. Without any yet it gets the first one.
Result<ScopeKeys> Api::keys_for(const Principal& who, const std::string& scope, std::uint64_t have) {
  if (who.token_id.empty()) return ScopeKeys();
  bool none = false;
  const auto look = [&] {
    return engine_->look([&](const Registry& registry) -> Result<ScopeKeys> {
      const ScopeKeys& keys = registry.keys(scope);
      if (!admin()->contains(who.token_id)) SLIME_TRY(still_holds(registry, who.token_id, keys));
      none = keys.empty();
      return newest_id(keys) == have ? ScopeKeys() : keys;
    });
  };
  Result<ScopeKeys> keys = look();
  if (!keys || !none) return keys;
  const Status made = engine_->submit(new_key(scope, 0, false)).status;
  if (!made.ok() && made.code() != Code::kAborted) return made;  // aborted: somebody else was faster
  keys = look();
  if (keys && none)  // an answer without keys would say that nobody needs them
    return Status(Code::kUnavailable,
                  str("the keys of scope '", scope, "' were taken away meanwhile: try again"));
  return keys;
}

RotateKeysCommand Api::new_key(std::string scope, std::uint64_t replaces, bool alone) const {
  return {std::move(scope), replaces, alone, Secret::random(limits::kScopeKeyBytes), options_.unix_time_s()};
}

// Between two keys of a scope: members hear of each with a heartbeat.
Nanos Api::key_period(const Registry& registry) const {
  return std::max(options_.key_rotation, registry.options().ttl);
}

// Whether this newest key of a scope, which a clock ahead of ours made, has been there for a period by ours.
// Not sooner: of two nanoctrl whose clocks are further apart than that, each would replace the other's every
// second.
bool Api::KeysAhead::for_long(const std::string& scope, std::uint64_t id, TimePoint now, Nanos period) {
  const auto it = before_.find(scope);
  const Seen seen = it != before_.end() && it->second.id == id ? it->second : Seen{id, now};
  seen_.emplace(scope, seen);
  return now - seen.since >= period;
}

std::vector<RotateKeysCommand> Api::due_rotations(const Registry& registry, std::uint64_t now) {
  const std::lock_guard lock(ahead_mutex_);
  ahead_.begin();
  const std::uint64_t period = to_seconds(key_period(registry));
  const std::map<std::string, std::uint64_t> ends = ends_of_tokens(registry, now);
  const auto end_of = [&](const std::string& scope) {
    const auto it = ends.find(scope);
    return it == ends.end() ? 0 : it->second;
  };
  const std::uint64_t end_of_any = end_of("*");
  std::vector<RotateKeysCommand> out;
  for (const auto& [scope, revision] : registry.revisions()) {
    const ScopeKeys& keys = registry.keys(scope);
    if (keys.empty()) continue;  // whoever needs the first one makes it
    // Who had the token knows what was made until then.
    const std::uint64_t end = std::max(end_of(scope), end_of_any);
    // A clock that was ahead made keys whose age nobody knows: they are old, and known.
    const auto of_the_future = [&](const ScopeKey& key) { return key.made_unix_s > now + period; };
    const bool ahead = of_the_future(keys.back());
    const bool settled =
        !ahead || ahead_.for_long(scope, newest_id(keys), clock_.now(), key_period(registry));
    const bool known = std::any_of(keys.begin(), keys.end(), [&](const ScopeKey& key) {
      return key.made_unix_s < end || (end != 0 && settled && of_the_future(key));
    });
    const bool old = options_.key_rotation > Nanos::zero() && registry.peer_count(scope) > 0 &&
                     (ahead ? settled : now >= keys.back().made_unix_s + period);
    if ((known || old) && out.size() < limits::kRotationsPerTick)
      out.push_back(new_key(scope, newest_id(keys), known));
  }
  return out;
}

// Of several nanoctrl each tries, and the first one has done it.
void Api::rotate_keys() {
  const std::uint64_t now = options_.unix_time_s();
  if (now == rotated_at_s_.exchange(now)) return;
  const auto due = engine_->look([&](const Registry& registry) { return due_rotations(registry, now); });
  for (const RotateKeysCommand& command : due) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;  // each may wait for the store
    }
    const Status status = engine_->submit(command).status;
    if (status.ok()) {
      SLIME_LOG(LogLevel::kInfo, "audit", "scope ", command.scope, " has a new key",
                command.alone ? ", and no earlier one: a token that could join it ran out" : "");
    } else if (status.code() == Code::kUnavailable) {
      return;  // the store has said so itself; the next second tries again
    } else if (status.code() != Code::kAborted) {
      SLIME_LOG(LogLevel::kWarning, "nanoctrl", "scope ", command.scope,
                " gets no new key: ", status.to_string());
      return;
    }
  }
}

}  // namespace slime::ctrl
