#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "ctrl/registry/registry.h"

// The queries of Registry, and the conversion of a Registry to and from RegistryState.
namespace slime::ctrl {

std::optional<PeerView> Registry::view(std::string_view scope, std::string_view name) const {
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return std::nullopt;
  const auto it = scope_it->second.peers.find(name);
  if (it == scope_it->second.peers.end()) return std::nullopt;
  const Record& record = it->second;
  return PeerView{record.info, record.expires_at - now_, record.bytes};
}

std::optional<PeerInfo> Registry::find(std::string_view scope, std::string_view name) const {
  const std::optional<PeerView> peer = view(scope, name);
  if (!peer) return std::nullopt;
  PeerInfo out = *peer->info;
  out.expires_in = peer->expires_in;
  return out;
}

std::optional<Owner> Registry::owner_of(std::string_view scope, std::string_view name) const {
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return std::nullopt;
  const auto it = scope_it->second.peers.find(name);
  if (it == scope_it->second.peers.end()) return std::nullopt;
  return it->second.info->owner;
}

std::uint64_t Registry::incarnation(std::string_view scope, std::string_view name) const {
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return 0;
  const auto it = scope_it->second.peers.find(name);
  return it == scope_it->second.peers.end() ? 0 : it->second.info->incarnation;
}

PeerSlice Registry::slice(std::string_view scope, std::string_view after, std::size_t limit) const {
  PeerSlice out;
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return out;
  const auto& peers = scope_it->second.peers;
  out.peers.reserve(std::min(limit, peers.size()));
  auto it = peers.upper_bound(after);
  for (; it != peers.end() && out.peers.size() < limit; ++it)
    out.peers.push_back({it->second.info, it->second.expires_at - now_, it->second.bytes});
  if (it != peers.end() && !out.peers.empty()) out.next = out.peers.back().info->name;
  return out;
}

LinkSlice Registry::link_slice(std::string_view scope, std::string_view after, std::size_t limit) const {
  LinkSlice out;
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return out;
  const auto& links = scope_it->second.links;
  auto it = links.upper_bound(after);
  for (; it != links.end() && out.peers.size() < limit; ++it) out.peers.push_back({it->first, it->second});
  if (it != links.end() && !out.peers.empty()) out.next = out.peers.back().name;
  return out;
}

std::map<std::string, ScopeUse> Registry::uses() const {
  std::map<std::string, ScopeUse> out;
  for (const auto& [name, scope] : scopes_)
    out.emplace(name, ScopeUse{scope.revision, scope.peers.size(), scope.services, scope.regions,
                               scope.links.size(), scope.record_bytes});
  return out;
}

Changes Registry::changes(std::string_view scope, std::uint64_t since, std::size_t limit) const {
  Changes out;
  out.server_epoch = options_.epoch;
  const auto it = scopes_.find(scope);
  const std::uint64_t first = it == scopes_.end() ? revision_floor_ : it->second.first_revision;
  out.revision = it == scopes_.end() ? revision_floor_ : it->second.revision;
  if (since < first || since > out.revision) {
    out.resync = true;
    return out;
  }
  if (it == scopes_.end()) return out;
  const std::deque<Event>& log = it->second.log;
  // Revisions in a log are consecutive.
  const std::size_t skip = static_cast<std::size_t>(since - first);
  const std::size_t count = std::min(limit, log.size() - skip);
  out.events.assign(log.begin() + static_cast<std::ptrdiff_t>(skip),
                    log.begin() + static_cast<std::ptrdiff_t>(skip + count));
  if (skip + count < log.size()) {
    out.more = true;
    out.revision = since + count;
  }
  return out;
}

std::uint64_t Registry::revision(std::string_view scope) const {
  const auto it = scopes_.find(scope);
  return it == scopes_.end() ? revision_floor_ : it->second.revision;
}

std::shared_ptr<const Registry::Targets> Registry::links(std::string_view scope,
                                                         std::string_view name) const {
  const auto scope_it = scopes_.find(scope);
  if (scope_it == scopes_.end()) return nullptr;
  const auto it = scope_it->second.links.find(name);
  return it == scope_it->second.links.end() ? nullptr : it->second;
}

RegistryState Registry::counters() const {
  return {options_.epoch, last_incarnation_, revision_floor_, {}, {}, {}, {}, {}};
}

RegistryState Registry::state() const {
  RegistryState out = counters();
  out.tokens = tokens_;
  out.peers.reserve(peer_count_);
  for (const auto& [name, scope] : scopes_) {
    out.revisions.emplace(name, scope.revision);
    if (!scope.keys.empty()) out.keys.emplace(name, scope.keys);
    for (const auto& [peer, targets] : scope.links) out.links.push_back({name, peer, targets});
    for (const auto& [peer, record] : scope.peers)
      out.peers.push_back({record.info, record.expires_at - now_, record.bytes});
  }
  return out;
}

Result<Registry> Registry::restore(RegistryOptions options, RegistryState state, TimePoint now) {
  const auto corrupt = [](std::string text) { return Status(Code::kCorrupt, std::move(text)); };
  options.epoch = state.epoch;
  if (Status valid = options.validate(); !valid.ok()) return corrupt(valid.text());
  Registry out(options);
  out.now_ = now;
  out.last_incarnation_ = state.last_incarnation;
  out.revision_floor_ = state.revision_floor;
  for (const auto& [name, revision] : state.revisions) {
    Scope& scope = out.scopes_[name];
    scope.first_revision = scope.revision = revision;
  }
  for (const auto& [id, token] : state.tokens) {
    if (Status valid = check_token(token); !valid.ok())
      return corrupt(str("token '", id, "': ", valid.text()));
  }
  out.tokens_ = std::move(state.tokens);
  for (auto& [name, keys] : state.keys) {
    if (Status valid = check_keys(keys); !valid.ok())
      return corrupt(str("keys of '", name, "': ", valid.text()));
    const auto scope = out.scopes_.find(name);
    if (scope == out.scopes_.end()) return corrupt(str("keys of '", name, "' have no scope"));
    if (newest_id(keys) > state.last_incarnation)
      return corrupt(str("keys of '", name, "' are of a later time than the counters"));
    scope->second.keys = std::move(keys);
  }
  for (RegistryState::Links& links : state.links) {
    if (Status valid = check_links(links.name, *links.targets); !valid.ok())
      return corrupt(str("links of '", links.name, "': ", valid.text()));
    const auto scope = out.scopes_.find(links.scope);
    if (scope == out.scopes_.end()) return corrupt(str("links of '", links.name, "' have no scope"));
    const std::size_t bytes = links_size(*links.targets);
    out.record_bytes_ += bytes;
    scope->second.record_bytes += bytes;
    scope->second.links[links.name] = std::move(links.targets);
  }
  for (PeerView& view : state.peers) {
    const PeerInfo& peer = *view.info;
    const std::string what = str("peer '", peer.name, "' of scope '", peer.scope, "' ");
    if (Status valid = check_registration(peer); !valid.ok()) return corrupt(str(what, valid.text()));
    if (Status valid = check_owner(peer.owner); !valid.ok()) return corrupt(str(what, valid.text()));
    const auto scope = out.scopes_.find(peer.scope);
    if (scope == out.scopes_.end()) return corrupt(str(what, "has no scope"));
    if (scope->second.peers.contains(peer.name)) return corrupt(str(what, "is there twice"));
    if (peer.incarnation > state.last_incarnation || peer.revision > scope->second.revision)
      return corrupt(str(what, "is of a later time than the counters"));
    const TimePoint expires_at = deadline_after(now, view.expires_in);
    out.place(scope->second, view.info, expires_at);
  }
  return out;
}

std::map<std::string, std::uint64_t> Registry::revisions() const {
  std::map<std::string, std::uint64_t> out;
  for (const auto& [name, scope] : scopes_) out.emplace(name, scope.revision);
  return out;
}

TimePoint Registry::next_expiry() const { return expiries_.empty() ? kNever : expiries_.begin()->first.at; }

}  // namespace slime::ctrl
