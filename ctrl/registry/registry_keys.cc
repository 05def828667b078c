#include "base/str.h"
#include "ctrl/registry/registry.h"

// The keys of scopes.
namespace slime::ctrl {

void Registry::run(const RotateKeysCommand& command, Outcome& out) {
  out.status = check_keys({{1, command.secret, command.made_unix_s}});
  if (!out.status.ok()) return;
  const auto it = scopes_.find(command.scope);
  if (it == scopes_.end()) {
    out.status = Status(Code::kNotFound, str("there is no scope '", command.scope, "'"));
    return;
  }
  ScopeKeys& keys = it->second.keys;
  if (newest_id(keys) != command.replaces) {
    out.status = Status(Code::kAborted, str("the scope '", command.scope, "' has other keys by now"));
    return;
  }
  if (command.alone) keys.clear();
  keys.push_back({++last_incarnation_, command.secret, command.made_unix_s});
  if (keys.size() > limits::kScopeKeys) keys.erase(keys.begin());
  out.touched.push_back({Table::kRegistry, {}, {}});
  out.touched.push_back({Table::kKeys, command.scope, {}});
}

void Registry::drop_keys(const TokenRecord& token, Outcome& out) {
  if (token.role < Role::kJoin) return;
  for (auto& [name, scope] : scopes_) {
    if (scope.keys.empty() || (token.scope != "*" && token.scope != name)) continue;
    scope.keys.clear();
    out.touched.push_back({Table::kKeys, name, {}});
  }
}

const ScopeKeys& Registry::keys(std::string_view scope) const {
  static const ScopeKeys kNone;
  const auto it = scopes_.find(scope);
  return it == scopes_.end() ? kNone : it->second.keys;
}

}  // namespace slime::ctrl
