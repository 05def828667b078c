#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/limits.h"
#include "ctrl/types.h"

namespace slime::ctrl {

struct RegistryOptions {
  Nanos ttl = limits::kTtlDefault;
  // The first incarnations and revisions follow this number. Use a larger number at each start
  // (microseconds since 1970), so that both go on increasing after a restart without state.
  std::uint64_t epoch = 1;
  std::size_t scopes_max = limits::kScopes;
  std::size_t peers_per_scope_max = limits::kPeersPerScope;
  std::size_t record_bytes_max = limits::kRecordBytesTotal;
  std::size_t record_bytes_per_scope_max = limits::kRecordBytesPerScope;
  std::size_t events_per_scope_max = limits::kEventsPerScope;
  [[nodiscard]] Status validate() const;
};

// The right by which a command changes a peer's record. The maker of the command, which has the
// request, must set it; a registry sees hashes only.
struct Proof {
  enum class Kind : std::uint8_t {
    kTrusted = 0,  // an administrator, or a log entry from before sessions existed
    kSession = 1,  // the session must match the record's
    kToken = 2,    // a route without sessions: the record has no session, and has this token or none
  };
  // No default: a command whose maker forgot the proof would be trusted, or refused.
  Proof(Kind proof_kind, Owner sender) : kind(proof_kind), owner(std::move(sender)) {}
  static Proof trusted() { return {Kind::kTrusted, {}}; }

  Kind kind;
  Owner owner;  // hash of the request's session; its token, for the log of changes
};
// kPermissionDenied when `proof` does not permit changes to the record of that name and owner.
Status check_proof(const Proof& proof, std::string_view name, const Owner& owner);

// The commands. A command for a peer carries the incarnation that the peer was granted.
struct RegisterCommand {
  Registration registration;
  // Takes the name from the holder with this incarnation (found dead, or to be replaced). Any other
  // holder is still a conflict, so that a decision about one holder never affects its successor.
  std::uint64_t takes_over = 0;
  // The owner of the record from now on. The same instance with another proof is another owner: a
  // conflict.
  Proof by;
};
struct HeartbeatCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  Proof by;
};
// Renews each lease that still has its incarnation. For heartbeats that were answered already;
// emits no events.
struct RenewCommand {
  struct Peer {
    std::string scope, name;
    std::uint64_t incarnation = 0;
  };
  std::vector<Peer> peers;
};
struct DeregisterCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  Proof by;
};
struct UpdateRegionsCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  bool replace = false;  // first remove everything published
  std::vector<RegionInfo> publish;
  std::vector<std::string> unpublish;
  Proof by;
};
struct UpdateServicesCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  bool replace = false;
  std::vector<ServiceInfo> publish;
  std::vector<std::string> unpublish;
  Proof by;
};
// Replaces the set of peers that this peer should be connected to; empty: no links are wanted. The
// peer need not be registered.
struct SetLinksCommand {
  std::string scope, name;
  std::vector<std::string> targets;
  Proof by;  // checked only while a peer of that name is registered
};
// Adds or replaces the token with that id. Once a token exists, every request needs one, so at
// least one token must be an administrator's of all scopes, unless there is another way to make
// tokens (`other_admin`).
struct PutTokenCommand {
  TokenRecord token;
  bool other_admin = false;
};
struct RevokeTokenCommand {
  std::string id;
  bool other_admin = false;
};
// Adds a key to the scope, and removes the oldest key beyond the limit. Names the key that it
// follows, so of several rotations at once only one has an effect; the others are kAborted. The
// maker of the command makes the key, since a registry has no randomness.
struct RotateKeysCommand {
  std::string scope;
  std::uint64_t replaces = 0;  // id of the newest key; 0: no key yet
  bool alone = false;          // removes all earlier keys
  Secret secret;
  std::uint64_t made_unix_s = 0;
};
struct TickCommand {};  // only expires leases
// The server has restarted with its state. Agents could not send heartbeats meanwhile, so every
// lease starts anew. Numbers that were reported but not stored may be lost, so numbers continue
// from `epoch` where they are behind it, and watchers list the peers again.
struct RestartCommand {
  std::uint64_t epoch = 0;
};
using Command = std::variant<RegisterCommand, HeartbeatCommand, RenewCommand, DeregisterCommand,
                             UpdateRegionsCommand, UpdateServicesCommand, SetLinksCommand, PutTokenCommand,
                             RevokeTokenCommand, RotateKeysCommand, TickCommand, RestartCommand>;

// The holder of a name that another instance wants.
struct Holder {
  InstanceId instance;
  std::uint64_t incarnation = 0;
  std::string address;
  Nanos expires_in{};
};

struct ScopedEvent {
  std::string scope;
  Event event;
  std::string token_id = {};  // token of the request; empty: an expiry, or no token was needed
};

// The tables of a registry's records. Each record has a key and is stored independently.
enum class Table : std::uint8_t {
  kRegistry,  // the counters; one record
  kScope,     // per scope: its revision
  kPeer,      // per scope and name
  kToken,     // the name is the token's id
  kLinks,     // per scope and name: the wanted links of that peer
  kKeys,      // per scope: its members' keys
};
struct RecordKey {
  Table table = Table::kRegistry;
  std::string scope, name;
  auto operator<=>(const RecordKey&) const = default;
};

// A peer as of the moment of a query. The record is immutable: an update replaces it, so a PeerView
// may be read without the registry's lock.
struct PeerView {
  std::shared_ptr<const PeerInfo> info;  // its own expires_in is not set
  Nanos expires_in{};
  std::size_t bytes = 0;  // approximate memory of the record
};

// A registry without its change logs. Shares the large records with the registry it was taken from.
struct RegistryState {
  std::uint64_t epoch = 0;
  std::uint64_t last_incarnation = 0;
  std::uint64_t revision_floor = 0;
  std::map<std::string, std::uint64_t> revisions;  // by scope
  std::vector<PeerView> peers = {};
  std::map<std::string, TokenRecord, std::less<>> tokens = {};  // by id
  struct Links {
    std::string scope, name;
    std::shared_ptr<const std::vector<std::string>> targets;
  };
  std::vector<Links> links = {};
  std::map<std::string, ScopeKeys> keys = {};  // by scope
};

// Some peers of a scope, in the order of names.
struct PeerSlice {
  std::vector<PeerView> peers;
  std::optional<std::string> next;  // the name to continue after; empty: these were the last
};
// Some wanted links of a scope, in the order of names.
struct LinkSlice {
  struct Entry {
    std::string name;
    std::shared_ptr<const std::vector<std::string>> targets;
  };
  std::vector<Entry> peers;
  std::optional<std::string> next;
};

// The resources that a scope uses. RegistryOptions holds the limits of peers and bytes.
struct ScopeUse {
  std::uint64_t revision = 0;
  std::size_t peers = 0;
  std::size_t services = 0;
  std::size_t regions = 0;
  std::size_t links = 0;         // peers with wanted links
  std::size_t record_bytes = 0;  // approximate memory of peers and wanted links
};

// The result of a command. A refused command changed nothing, apart from leases that expired.
struct Outcome {
  Status status;                    // kNotFound, kAborted (old incarnation), kAlreadyExists (see holder), ...
  Lease lease;                      // of a successful RegisterCommand
  std::optional<Holder> holder;     // with kAlreadyExists
  std::vector<ScopedEvent> events;  // in order; also appended to the scopes' logs
  std::vector<RecordKey> touched;   // keys of changed and removed records; may contain duplicates
};

// The registry as a pure state machine: no I/O, no clock, no randomness. The same commands at the
// same times give the same state; a replicated log of commands relies on this. Every command first
// expires the leases that ended by its `now`. Time never goes back: an earlier `now` counts as the
// latest one seen. Thread: one at a time.
class Registry {
 public:
  explicit Registry(RegistryOptions options);
  // Restores a registry without its change logs: earlier watchers list the peers again. kCorrupt
  // when the parts are inconsistent.
  static Result<Registry> restore(RegistryOptions options, RegistryState state, TimePoint now);

  Outcome apply(const Command& command, TimePoint now);
  // Gives every lease a full TTL from `now`, including leases that ended by `now`, for time in
  // which no lease could be renewed.
  void renew_all(TimePoint now);

  // Returns the outcome that the heartbeat would have, as of the last command; renews nothing.
  [[nodiscard]] Outcome check(const HeartbeatCommand& command) const;
  // Queries, as of the last command: apply a TickCommand first.
  [[nodiscard]] std::optional<PeerInfo> find(std::string_view scope, std::string_view name) const;
  // Returns the incarnation of find() without copying the record; 0: no such peer.
  [[nodiscard]] std::uint64_t incarnation(std::string_view scope, std::string_view name) const;
  // Like find(), but does not copy the record.
  [[nodiscard]] std::optional<PeerView> view(std::string_view scope, std::string_view name) const;
  // Returns the first `limit` records after the name `after`. Takes time per record, whatever its
  // size.
  [[nodiscard]] PeerSlice slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // Returns the events after `since`, at most `limit`.
  [[nodiscard]] Changes changes(std::string_view scope, std::uint64_t since,
                                std::size_t limit = limits::kEventsPerReply) const;
  [[nodiscard]] std::uint64_t revision(std::string_view scope) const;
  [[nodiscard]] std::map<std::string, std::uint64_t> revisions() const;  // by scope
  [[nodiscard]] bool has_peer(std::string_view scope, std::string_view name) const {
    const auto it = scopes_.find(scope);
    return it != scopes_.end() && it->second.peers.contains(name);
  }
  // Returns the owner of find() without copying the record.
  [[nodiscard]] std::optional<Owner> owner_of(std::string_view scope, std::string_view name) const;
  [[nodiscard]] bool has_scope(std::string_view scope) const { return scopes_.contains(scope); }

  // Returns the peers that a peer should be connected to; null: no links are wanted.
  using Targets = std::vector<std::string>;
  [[nodiscard]] std::shared_ptr<const Targets> links(std::string_view scope, std::string_view name) const;
  [[nodiscard]] LinkSlice link_slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // Returns the keys of a scope's members. Revoking a token that may join the scope removes them;
  // new keys are made for the remaining members.
  [[nodiscard]] const ScopeKeys& keys(std::string_view scope) const;
  // By id.
  [[nodiscard]] const std::map<std::string, TokenRecord, std::less<>>& tokens() const { return tokens_; }

  // Return the whole state, or only the counters.
  [[nodiscard]] RegistryState state() const;
  [[nodiscard]] RegistryState counters() const;

  // Returns a time not later than the next expiry; kNever when there are no leases.
  [[nodiscard]] TimePoint next_expiry() const;
  [[nodiscard]] std::size_t scope_count() const { return scopes_.size(); }
  [[nodiscard]] std::size_t peer_count() const { return peer_count_; }
  [[nodiscard]] std::size_t peer_count(std::string_view scope) const {
    const auto it = scopes_.find(scope);
    return it == scopes_.end() ? 0 : it->second.peers.size();
  }
  [[nodiscard]] std::size_t record_bytes() const { return record_bytes_; }
  // Returns what each scope uses. Takes time per scope, not per peer.
  [[nodiscard]] std::map<std::string, ScopeUse> uses() const;
  [[nodiscard]] const RegistryOptions& options() const { return options_; }

 private:
  struct Record {
    std::shared_ptr<const PeerInfo> info;
    TimePoint expires_at;
    TimePoint scheduled_at;  // time of its entry in expiries_; never later than expires_at
    std::size_t bytes = 0;
  };
  struct Scope {
    std::uint64_t first_revision = 0;  // the log holds the later events
    std::uint64_t revision = 0;
    std::deque<Event> log;
    std::map<std::string, Record, std::less<>> peers;
    std::map<std::string, std::shared_ptr<const std::vector<std::string>>, std::less<>> links;  // wanted
    ScopeKeys keys;
    std::size_t services = 0;      // of all peers
    std::size_t regions = 0;       // of all peers
    std::size_t record_bytes = 0;  // of all peers and wanted links
  };
  // One entry per record. Heartbeats do not move it: when the entry is due and the lease was
  // renewed meanwhile, it is scheduled again. Leases that end together expire in the order of their
  // incarnations.
  struct ExpiryKey {
    TimePoint at;
    std::uint64_t incarnation = 0;
    auto operator<=>(const ExpiryKey&) const = default;
  };
  struct PeerKey {
    std::string scope, name;
  };
  using Scopes = std::map<std::string, Scope, std::less<>>;

  void run(const RegisterCommand& command, Outcome& out);
  void run(const HeartbeatCommand& command, Outcome& out);
  void run(const RenewCommand& command, Outcome& out);
  void run(const DeregisterCommand& command, Outcome& out);
  void run(const UpdateRegionsCommand& command, Outcome& out);
  void run(const UpdateServicesCommand& command, Outcome& out);
  void run(const SetLinksCommand& command, Outcome& out);
  void run(const PutTokenCommand& command, Outcome& out);
  void run(const RevokeTokenCommand& command, Outcome& out);
  void run(const RotateKeysCommand& command, Outcome& out);
  void run(const TickCommand&, Outcome&) {}
  void run(const RestartCommand& command, Outcome& out);
  // Publishes and unpublishes entries of `list`, a member of the peer's record; `check` validates
  // the entries of the command and the resulting list.
  template <class Update, class Entry>
  void update_list(const Update& command, std::vector<Entry> Registration::*list,
                   Status (*check)(const std::vector<Entry>&), Outcome& out);

  void expire(Outcome& out);
  // Returns the record if it exists, has that incarnation, and `by` may change it; else sets
  // out.status.
  Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation, const Proof& by,
                Outcome& out);
  const Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                      const Proof& by, Outcome& out) const;
  // Returns the scope, creating it if needed (an empty scope may be removed for it); null when
  // there are too many.
  Scope* scope_for(const std::string& name, Outcome& out);
  Status check_room(const std::string& name, const Scope* scope, bool new_peer, std::size_t old_bytes,
                    std::size_t new_bytes) const;
  // Add a record to, and remove it from, the totals.
  void count_in(Scope& scope, const Record& record);
  void count_out(Scope& scope, const Record& record);
  void insert(const std::string& scope_name, Scope& scope, const RegisterCommand& command, Outcome& out);
  Record& place(Scope& scope, const std::shared_ptr<const PeerInfo>& info, TimePoint expires_at);
  void replace(const std::string& scope_name, Scope& scope, Record& record, const Registration& registration,
               Outcome& out);
  void remove(const std::string& scope_name, Scope& scope, const std::string& name, EventKind kind,
              Outcome& out);
  void record_event(const std::string& scope_name, Scope& scope, const PeerInfo& peer, EventKind kind,
                    Outcome& out);
  // Approximate memory of wanted links.
  static std::size_t links_size(const Targets& targets);
  // Removes the keys that the token's bearer may know.
  void drop_keys(const TokenRecord& token, Outcome& out);
  [[nodiscard]] Status check_token_room(const TokenRecord& token) const;
  // Returns whether an administrator's token of all scopes exists, other than `id`.
  [[nodiscard]] bool has_admin_besides(std::string_view id) const;
  [[nodiscard]] Nanos ttl_of(const Registration& peer) const {
    return peer.ttl > Nanos::zero() ? peer.ttl : options_.ttl;
  }
  [[nodiscard]] Lease lease_of(const Scope& scope, const Record& record) const;

  RegistryOptions options_;
  TimePoint now_{};
  std::uint64_t last_incarnation_;
  std::uint64_t revision_floor_;  // first revision of new scopes, so that a recreated scope never
                                  // goes back
  std::size_t peer_count_ = 0;
  std::size_t record_bytes_ = 0;
  Scopes scopes_;
  std::map<ExpiryKey, PeerKey> expiries_;
  std::map<std::string, TokenRecord, std::less<>> tokens_;
};

}  // namespace slime::ctrl
