#include "ctrl/registry/registry.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/str.h"

namespace slime::ctrl {
namespace {

constexpr std::size_t kRecordOverheadBytes = 512;  // maps, lease, empty strings
constexpr std::size_t kEntryOverheadBytes = 64;

// Returns the approximate number of bytes that a record uses in memory. Grows with the data that
// clients send.
std::size_t record_size(const Registration& r) {
  std::size_t bytes = kRecordOverheadBytes + r.name.size() + r.address.size() + r.kind.size();
  for (const std::string& provider : r.providers) bytes += kEntryOverheadBytes + provider.size();
  for (const auto& [key, value] : r.metadata) bytes += 2 * kEntryOverheadBytes + key.size() + value.size();
  for (const ServiceInfo& service : r.services) {
    bytes += 2 * kEntryOverheadBytes + service.name.size() + service.kind.size();
    for (const std::string& method : service.methods) bytes += kEntryOverheadBytes + method.size();
    for (const auto& [key, value] : service.labels)
      bytes += 2 * kEntryOverheadBytes + key.size() + value.size();
  }
  for (const RegionInfo& region : r.regions) bytes += kEntryOverheadBytes + region.name.size();
  return bytes;
}

// Returns a list after an update: removes the names `unpublish`, then adds the entries `publish` at
// the end. An entry with an existing name replaces that entry in its place. `replace`: starts from
// an empty list.
template <class T>
std::vector<T> merged(const std::vector<T>& current, bool replace, const std::vector<T>& publish,
                      const std::vector<std::string>& unpublish) {
  std::vector<T> out;
  if (!replace) out = current;
  if (!unpublish.empty()) {
    std::vector<std::string_view> gone(unpublish.begin(), unpublish.end());
    std::sort(gone.begin(), gone.end());
    std::erase_if(out, [&](const T& entry) {
      return std::binary_search(gone.begin(), gone.end(), std::string_view(entry.name));
    });
  }
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < out.size(); ++i) index.emplace(out[i].name, i);
  for (const T& entry : publish) {
    const auto [it, fresh] = index.emplace(entry.name, out.size());
    if (fresh) {
      out.push_back(entry);
    } else {
      out[it->second] = entry;
    }
  }
  return out;
}

}  // namespace

std::size_t Registry::links_size(const Targets& targets) {
  std::size_t bytes = targets.empty() ? 0 : kRecordOverheadBytes;
  for (const std::string& target : targets) bytes += kEntryOverheadBytes + target.size();
  return bytes;
}

Status RegistryOptions::validate() const {
  if (ttl < limits::kTtlMin || ttl > limits::kTtlMax)
    return {Code::kInvalidArgument, "ttl must be from 100 ms to 24 h"};
  if (epoch == 0 || epoch > limits::kIntegerMax)
    return {Code::kInvalidArgument, "epoch must be from 1 to 2^53 - 1"};
  if (scopes_max == 0 || peers_per_scope_max == 0 || record_bytes_max == 0 ||
      record_bytes_per_scope_max == 0 || events_per_scope_max == 0)
    return {Code::kInvalidArgument, "the limits of a registry must be positive"};
  return {};
}

namespace {

// Compares two hashes. The time taken does not depend on where they differ.
bool same_hash(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

template <class Command>
std::string_view actor(const Command& command) {
  if constexpr (requires { command.by; }) return command.by.owner.token_id;
  return {};
}

}  // namespace

Status check_proof(const Proof& proof, std::string_view name, const Owner& owner) {
  if (proof.kind == Proof::Kind::kTrusted) return {};
  const auto denied = [](std::string text) { return Status(Code::kPermissionDenied, std::move(text)); };
  if (proof.kind == Proof::Kind::kToken) {
    if (!owner.session_sha256.empty())
      return denied(str("'", name, "' has a session, which this route does not know"));
    if (!owner.token_id.empty() && owner.token_id != proof.owner.token_id)
      return denied(str("'", name, "' was registered with another token; use that one"));
    return {};
  }
  if (proof.owner.session_sha256.empty())
    return denied(str("this nanoctrl needs the session of the registration of '", name,
                      "'; upgrade agents of an earlier version, which send none"));
  if (owner.session_sha256.empty())
    return denied(str("'", name, "' was registered without a session, so none speaks for it"));
  if (!same_hash(proof.owner.session_sha256, owner.session_sha256))
    return denied(str("the session is not that of the registration of '", name, "'"));
  return {};
}

Registry::Registry(RegistryOptions options)
    : options_(options), last_incarnation_(options.epoch), revision_floor_(options.epoch) {
  SLIME_CHECK(options_.validate().ok());
}

Outcome Registry::apply(const Command& command, TimePoint now) {
  now_ = std::max(now_, now);
  Outcome out;
  expire(out);
  const auto expired = static_cast<std::ptrdiff_t>(out.events.size());
  std::visit([&](const auto& c) { run(c, out); }, command);
  const std::string_view by = std::visit([](const auto& c) { return actor(c); }, command);
  std::for_each(out.events.begin() + expired, out.events.end(),
                [by](ScopedEvent& event) { event.token_id = by; });
  return out;
}

void Registry::run(const RegisterCommand& command, Outcome& out) {
  const Registration& wanted = command.registration;
  out.status = check_registration(wanted);
  if (out.status.ok()) out.status = check_owner(command.by.owner);
  if (!out.status.ok()) return;
  const auto scope_it = scopes_.find(wanted.scope);
  Scope* scope = scope_it == scopes_.end() ? nullptr : &scope_it->second;
  Record* held = nullptr;
  if (scope != nullptr) {
    if (const auto it = scope->peers.find(wanted.name); it != scope->peers.end()) held = &it->second;
  }
  const bool same = held != nullptr && held->info->instance == wanted.instance;
  // A matching instance id is not enough to prove ownership, because instance ids are public.
  const bool ours = same && check_proof(command.by, wanted.name, held->info->owner).ok();
  if (held != nullptr && !ours && held->info->incarnation != command.takes_over) {
    out.holder =
        Holder{held->info->instance, held->info->incarnation, held->info->address, held->expires_at - now_};
    out.status = Status(Code::kAlreadyExists,
                        str("'", wanted.name, "' in scope '", wanted.scope, "' belongs to instance ",
                            held->info->instance.to_string(), " at ", held->info->address,
                            same ? ", and this registration does not have its session" : ""));
    return;
  }
  const std::size_t old_bytes = held != nullptr ? held->bytes : 0;
  out.status = check_room(wanted.scope, scope, held == nullptr, old_bytes, record_size(wanted));
  if (!out.status.ok()) return;
  if (ours) {
    replace(wanted.scope, *scope, *held, wanted, out);
    if (held->info->owner.token_id == command.by.owner.token_id) return;
    PeerInfo info = *held->info;
    info.owner.token_id = command.by.owner.token_id;
    held->info = std::make_shared<const PeerInfo>(std::move(info));
    out.touched.push_back({Table::kPeer, wanted.scope, wanted.name});
    return;
  }
  scope = scope_for(wanted.scope, out);
  if (scope == nullptr) {
    out.status = Status(Code::kResourceExhausted, str("all ", options_.scopes_max, " scopes have peers"));
    return;
  }
  if (held != nullptr) remove(wanted.scope, *scope, wanted.name, EventKind::kExpired, out);
  insert(wanted.scope, *scope, command, out);
}

void Registry::run(const HeartbeatCommand& command, Outcome& out) {
  Record* record = owned(command.scope, command.name, command.incarnation, command.by, out);
  if (record == nullptr) return;
  record->expires_at = deadline_after(now_, ttl_of(*record->info));
  out.lease = lease_of(scopes_.find(command.scope)->second, *record);
}

Outcome Registry::check(const HeartbeatCommand& command) const {
  Outcome out;
  const Record* record = owned(command.scope, command.name, command.incarnation, command.by, out);
  if (record != nullptr) out.lease = lease_of(scopes_.find(command.scope)->second, *record);
  return out;
}

void Registry::run(const RenewCommand& command, Outcome&) {
  // needs no proof: the heartbeat's session was checked when the heartbeat was answered
  const Proof by = Proof::trusted();
  for (const RenewCommand::Peer& peer : command.peers) {
    // an error is ignored: a peer without its lease learns this from its next heartbeat
    Outcome ignored;
    Record* record = owned(peer.scope, peer.name, peer.incarnation, by, ignored);
    if (record != nullptr) record->expires_at = deadline_after(now_, ttl_of(*record->info));
  }
}

void Registry::run(const DeregisterCommand& command, Outcome& out) {
  if (owned(command.scope, command.name, command.incarnation, command.by, out) == nullptr) return;
  remove(command.scope, scopes_.find(command.scope)->second, command.name, EventKind::kDeregistered, out);
}

template <class Update, class Entry>
void Registry::update_list(const Update& command, std::vector<Entry> Registration::*list,
                           Status (*check)(const std::vector<Entry>&), Outcome& out) {
  Record* record = owned(command.scope, command.name, command.incarnation, command.by, out);
  if (record == nullptr) return;
  out.status = check(command.publish);
  if (!out.status.ok()) return;
  Registration next = *record->info;
  next.*list = merged((*record->info).*list, command.replace, command.publish, command.unpublish);
  out.status = check(next.*list);
  if (!out.status.ok()) return;
  Scope& scope = scopes_.find(command.scope)->second;
  out.status = check_room(command.scope, &scope, false, record->bytes, record_size(next));
  if (out.status.ok()) replace(command.scope, scope, *record, next, out);
}

void Registry::run(const UpdateRegionsCommand& command, Outcome& out) {
  update_list(command, &Registration::regions, check_regions, out);
}

void Registry::run(const UpdateServicesCommand& command, Outcome& out) {
  update_list(command, &Registration::services, check_services, out);
}

void Registry::run(const SetLinksCommand& command, Outcome& out) {
  out.status = check_links(command.name, command.targets);
  if (out.status.ok()) out.status = check_name("scope", command.scope);
  if (!out.status.ok()) return;
  // Checks the proof only if a peer has this name: the wanted links of a name that is not
  // registered belong to no peer.
  if (const std::optional<Owner> owner = owner_of(command.scope, command.name))
    out.status = check_proof(command.by, command.name, *owner);
  if (!out.status.ok()) return;
  const std::shared_ptr<const Targets> before = links(command.scope, command.name);
  if (before == nullptr ? command.targets.empty() : *before == command.targets) return;
  const auto known = scopes_.find(command.scope);
  const std::size_t old_bytes = before == nullptr ? 0 : links_size(*before);
  const std::size_t new_bytes = links_size(command.targets);
  out.status = check_room(command.scope, known == scopes_.end() ? nullptr : &known->second, false, old_bytes,
                          new_bytes);
  if (!out.status.ok()) return;
  Scope* scope = scope_for(command.scope, out);
  if (scope == nullptr) {
    out.status = Status(Code::kResourceExhausted, str("all ", options_.scopes_max, " scopes are in use"));
    return;
  }
  if (before == nullptr && scope->links.size() >= options_.peers_per_scope_max) {
    out.status = Status(
        Code::kResourceExhausted,
        str("links of ", scope->links.size(), " peers are wanted in scope '", command.scope, "', the limit"));
    return;
  }
  record_bytes_ = record_bytes_ - old_bytes + new_bytes;
  scope->record_bytes = scope->record_bytes - old_bytes + new_bytes;
  if (command.targets.empty()) {
    scope->links.erase(command.name);
  } else {
    scope->links[command.name] = std::make_shared<const Targets>(command.targets);
  }
  const auto subject = scope->peers.find(command.name);
  PeerInfo absent;
  absent.name = command.name;
  record_event(command.scope, *scope, subject == scope->peers.end() ? absent : *subject->second.info,
               EventKind::kLinks, out);
  out.touched.back().table = Table::kLinks;
}

void Registry::run(const PutTokenCommand& command, Outcome& out) {
  out.status = check_token(command.token);
  if (!out.status.ok()) return;
  if (tokens_.size() >= limits::kTokens && !tokens_.contains(command.token.id)) {
    out.status = Status(Code::kResourceExhausted, str("there are ", tokens_.size(), " tokens, the limit"));
    return;
  }
  out.status = check_token_room(command.token);
  if (!out.status.ok()) return;
  const bool admin = command.token.role == Role::kAdmin && command.token.scope == "*";
  if (!admin && !command.other_admin && !has_admin_besides(command.token.id)) {
    out.status =
        Status(Code::kInvalidArgument, "the first token must be of role admin and of all scopes (\"*\")");
    return;
  }
  if (const auto it = tokens_.find(command.token.id); it != tokens_.end() && it->second != command.token)
    drop_keys(it->second, out);
  tokens_[command.token.id] = command.token;
  out.touched.push_back({Table::kToken, {}, command.token.id});
}

void Registry::run(const RevokeTokenCommand& command, Outcome& out) {
  const auto token = tokens_.find(command.id);
  if (token == tokens_.end()) {
    out.status = Status(Code::kNotFound, str("there is no token '", command.id, "'"));
    return;
  }
  if (!command.other_admin && !has_admin_besides(command.id)) {
    out.status =
        Status(Code::kInvalidArgument,
               str("'", command.id, "' is the last token that may make others; create another one first"));
    return;
  }
  drop_keys(token->second, out);
  tokens_.erase(token);
  out.touched.push_back({Table::kToken, {}, command.id});
}

// Checks the limit of tokens per scope, which keeps the administrator of one scope from using the
// room of others. Tokens of all scopes ("*") belong to the operator and are not limited.
Status Registry::check_token_room(const TokenRecord& token) const {
  const auto same = tokens_.find(token.id);
  if (token.scope == "*" || (same != tokens_.end() && same->second.scope == token.scope)) return {};
  const auto has = static_cast<std::size_t>(std::count_if(
      tokens_.begin(), tokens_.end(), [&](const auto& entry) { return entry.second.scope == token.scope; }));
  if (has < limits::kTokensPerScope) return {};
  return {Code::kResourceExhausted, str("scope '", token.scope, "' has ", has, " tokens, its limit")};
}

bool Registry::has_admin_besides(std::string_view id) const {
  return std::any_of(tokens_.begin(), tokens_.end(), [id](const auto& entry) {
    return entry.first != id && entry.second.role == Role::kAdmin && entry.second.scope == "*";
  });
}

void Registry::run(const RestartCommand& command, Outcome& out) {
  // Raises the first revision of new scopes to the epoch, beyond each revision that was given out
  // before the restart.
  revision_floor_ = std::max(revision_floor_, command.epoch);
  last_incarnation_ = std::max(last_incarnation_, command.epoch);
  out.touched.push_back({Table::kRegistry, {}, {}});
  for (auto& [name, scope] : scopes_) {
    scope.revision = std::max(scope.revision + 1, command.epoch);
    scope.first_revision = scope.revision;
    scope.log.clear();
    out.touched.push_back({Table::kScope, name, {}});
  }
  renew_all(now_);
}

void Registry::renew_all(TimePoint now) {
  now_ = std::max(now_, now);
  for (auto& [name, scope] : scopes_) {
    for (auto& [peer, record] : scope.peers)
      record.expires_at = std::max(record.expires_at, deadline_after(now_, ttl_of(*record.info)));
  }
}

void Registry::expire(Outcome& out) {
  while (!expiries_.empty() && expiries_.begin()->first.at <= now_) {
    auto node = expiries_.extract(expiries_.begin());
    const PeerKey& key = node.mapped();
    Scope& scope = scopes_.find(key.scope)->second;
    Record& record = scope.peers.find(key.name)->second;
    // If the lease was renewed, moves the entry to the lease's new end. Does so even if that has
    // passed too, so that leases expire in the order of their ends.
    if (record.expires_at > node.key().at) {
      node.key().at = record.scheduled_at = record.expires_at;
      expiries_.insert(std::move(node));
    } else {
      remove(key.scope, scope, key.name, EventKind::kExpired, out);
    }
  }
}

Registry::Record* Registry::owned(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                                  const Proof& by, Outcome& out) {
  return const_cast<Record*>(std::as_const(*this).owned(scope, name, incarnation, by, out));
}

const Registry::Record* Registry::owned(std::string_view scope, std::string_view name,
                                        std::uint64_t incarnation, const Proof& by, Outcome& out) const {
  const auto scope_it = scopes_.find(scope);
  if (scope_it != scopes_.end()) {
    if (const auto it = scope_it->second.peers.find(name); it != scope_it->second.peers.end()) {
      if (it->second.info->incarnation == incarnation) {
        out.status = check_proof(by, name, it->second.info->owner);
        return out.status.ok() ? &it->second : nullptr;
      }
      out.status = Status(Code::kAborted, str("'", name, "' in scope '", scope, "' has incarnation ",
                                              it->second.info->incarnation, " now, not ", incarnation));
      return nullptr;
    }
  }
  out.status = Status(Code::kNotFound, str("'", name, "' is not registered in scope '", scope, "'"));
  return nullptr;
}

Registry::Scope* Registry::scope_for(const std::string& name, Outcome& out) {
  if (const auto it = scopes_.find(name); it != scopes_.end()) return &it->second;
  if (scopes_.size() >= options_.scopes_max) {
    const auto empty = std::find_if(scopes_.begin(), scopes_.end(), [](const auto& entry) {
      return entry.second.peers.empty() && entry.second.links.empty();
    });
    if (empty == scopes_.end()) return nullptr;
    revision_floor_ = std::max(revision_floor_, empty->second.revision);
    out.touched.push_back({Table::kScope, empty->first, {}});
    out.touched.push_back({Table::kKeys, empty->first, {}});
    out.touched.push_back({Table::kRegistry, {}, {}});
    scopes_.erase(empty);
  }
  Scope& scope = scopes_[name];
  scope.first_revision = scope.revision = revision_floor_;
  return &scope;
}

Status Registry::check_room(const std::string& name, const Scope* scope, bool new_peer, std::size_t old_bytes,
                            std::size_t new_bytes) const {
  if (new_peer && scope != nullptr && scope->peers.size() >= options_.peers_per_scope_max)
    return {Code::kResourceExhausted,
            str("scope '", name, "' has ", scope->peers.size(), " peers, its limit (--scope-peers)")};
  // Allows every change that makes a record smaller, even if the scope is over a limit that was
  // lowered.
  if (new_bytes <= old_bytes) return {};
  const std::size_t more = new_bytes - old_bytes;
  const std::size_t has = scope == nullptr ? 0 : scope->record_bytes;
  if (has + more > options_.record_bytes_per_scope_max)
    return {Code::kResourceExhausted,
            str("the records of scope '", name, "' take ", has, " bytes; ", more,
                " more are over its limit of ", options_.record_bytes_per_scope_max, " (--scope-bytes)")};
  if (record_bytes_ + more > options_.record_bytes_max)
    return {Code::kResourceExhausted,
            str("the registry's records take ", record_bytes_, " of ", options_.record_bytes_max, " bytes")};
  return {};
}

void Registry::count_in(Scope& scope, const Record& record) {
  record_bytes_ += record.bytes;
  scope.record_bytes += record.bytes;
  scope.services += record.info->services.size();
  scope.regions += record.info->regions.size();
}

void Registry::count_out(Scope& scope, const Record& record) {
  record_bytes_ -= record.bytes;
  scope.record_bytes -= record.bytes;
  scope.services -= record.info->services.size();
  scope.regions -= record.info->regions.size();
}

void Registry::insert(const std::string& scope_name, Scope& scope, const RegisterCommand& command,
                      Outcome& out) {
  PeerInfo info;
  static_cast<Registration&>(info) = command.registration;
  info.owner = command.by.owner;
  info.incarnation = ++last_incarnation_;
  info.revision = scope.revision + 1;  // of the event below
  const TimePoint expires_at = deadline_after(now_, ttl_of(info));
  const Record& record = place(scope, std::make_shared<const PeerInfo>(std::move(info)), expires_at);
  record_event(scope_name, scope, *record.info, EventKind::kRegistered, out);
  out.touched.push_back({Table::kRegistry, {}, {}});
  out.lease = lease_of(scope, record);
}

// Adds a record to the scope, the expiries and the totals. Emits no event.
Registry::Record& Registry::place(Scope& scope, const std::shared_ptr<const PeerInfo>& info,
                                  TimePoint expires_at) {
  const std::size_t bytes = record_size(*info);
  expiries_.emplace(ExpiryKey{expires_at, info->incarnation}, PeerKey{info->scope, info->name});
  ++peer_count_;
  const std::string& name = info->name;
  const auto [it, fresh] = scope.peers.emplace(name, Record{info, expires_at, expires_at, bytes});
  SLIME_CHECK(fresh);
  count_in(scope, it->second);
  return it->second;
}

void Registry::replace(const std::string& scope_name, Scope& scope, Record& record,
                       const Registration& registration, Outcome& out) {
  record.expires_at = deadline_after(now_, ttl_of(registration));
  if (static_cast<const Registration&>(*record.info) != registration) {
    PeerInfo info;
    static_cast<Registration&>(info) = registration;
    info.owner = record.info->owner;
    info.incarnation = record.info->incarnation;
    info.revision = scope.revision + 1;  // of the event below
    count_out(scope, record);
    record.bytes = record_size(registration);
    record.info = std::make_shared<const PeerInfo>(std::move(info));
    count_in(scope, record);
    record_event(scope_name, scope, *record.info, EventKind::kUpdated, out);
  }
  out.lease = lease_of(scope, record);
}

void Registry::remove(const std::string& scope_name, Scope& scope, const std::string& name, EventKind kind,
                      Outcome& out) {
  const auto it = scope.peers.find(name);
  SLIME_CHECK(it != scope.peers.end());
  count_out(scope, it->second);
  --peer_count_;
  expiries_.erase({it->second.scheduled_at, it->second.info->incarnation});
  record_event(scope_name, scope, *it->second.info, kind, out);
  scope.peers.erase(it);
}

void Registry::record_event(const std::string& scope_name, Scope& scope, const PeerInfo& peer, EventKind kind,
                            Outcome& out) {
  Event event{++scope.revision, kind, peer.name, peer.instance, peer.incarnation, peer.address, peer.kind};
  scope.log.push_back(event);
  while (scope.log.size() > options_.events_per_scope_max) {
    scope.first_revision = scope.log.front().revision;
    scope.log.pop_front();
  }
  out.events.push_back({scope_name, std::move(event)});
  out.touched.push_back({Table::kScope, scope_name, {}});
  out.touched.push_back({Table::kPeer, scope_name, peer.name});
}

Lease Registry::lease_of(const Scope& scope, const Record& record) const {
  const Nanos ttl = ttl_of(*record.info);
  Lease out{
      record.info->incarnation, options_.epoch, scope.revision, ttl, ttl / limits::kHeartbeatsPerTtl, {}};
  if (const auto it = scope.links.find(record.info->name); it != scope.links.end()) out.links = *it->second;
  return out;
}

}  // namespace slime::ctrl
