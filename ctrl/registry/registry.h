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
  // Incarnations and revisions of a new registry count up from this number. Use a larger number for
  // each start (microseconds since 1970), so that both grow even if the earlier state was lost.
  std::uint64_t epoch = 1;
  std::size_t scopes_max = limits::kScopes;
  std::size_t peers_per_scope_max = limits::kPeersPerScope;
  std::size_t record_bytes_max = limits::kRecordBytesTotal;
  std::size_t record_bytes_per_scope_max = limits::kRecordBytesPerScope;
  std::size_t events_per_scope_max = limits::kEventsPerScope;
  [[nodiscard]] Status validate() const;
};

// Shows by which right a command may change a peer's record. The route that makes the command sets
// the proof from its request; the registry sees only hashes.
struct Proof {
  enum class Kind : std::uint8_t {
    // permits every change: an administrator's request, or a log entry older than sessions
    kTrusted = 0,
    kSession = 1,  // the session must match the record's
    // from a route without sessions: the record must have no session, and the request's token or no
    // token
    kToken = 2,
  };
  // There is no default constructor. With a default, a command whose route forgot the proof would
  // be trusted, or always refused.
  Proof(Kind proof_kind, Owner sender) : kind(proof_kind), owner(std::move(sender)) {}
  static Proof trusted() { return {Kind::kTrusted, {}}; }

  Kind kind;
  // the sender of the request: the hash of its session, and the id of its token
  Owner owner;
};
// Checks that `proof` permits a change to the record of the peer `name`, which belongs to `owner`.
// Else returns kPermissionDenied.
Status check_proof(const Proof& proof, std::string_view name, const Owner& owner);

// Commands of the registry. Each changes the state through Registry::apply(). A command about a
// registered peer contains the incarnation from the peer's registration. RegisterCommand registers
// a peer.
struct RegisterCommand {
  Registration registration;
  // Incarnation of the holder from which to take the name, because the holder is dead or is to be
  // replaced. If another holder has the name by then, the command fails with kAlreadyExists.
  std::uint64_t takes_over = 0;
  // Proof of the new record's owner. If the same instance registers again with another session, the
  // command fails with kAlreadyExists.
  Proof by;
};
struct HeartbeatCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  Proof by;
};
// Renews the leases of `peers` whose incarnation is still current. Stands for heartbeats that were
// answered before; emits no events.
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
// Replaces the wanted links of the peer `name`: the peers to which it should be connected. Empty
// `targets`: no links are wanted. The peer need not be registered.
struct SetLinksCommand {
  std::string scope, name;
  std::vector<std::string> targets;
  // checked only if a peer with this name is registered
  Proof by;
};
// Adds a token, or replaces the token with its id. Once the registry has a token, every request
// needs one. So the command fails if no administrator's token of all scopes would exist, unless
// `other_admin` says that there is an administrator's token outside of the registry.
struct PutTokenCommand {
  TokenRecord token;
  bool other_admin = false;
};
struct RevokeTokenCommand {
  std::string id;
  bool other_admin = false;
};
// Adds a key to the scope, and removes the oldest key beyond kScopeKeys. `replaces` names the key
// that this key follows: of several concurrent commands only the first succeeds, the others get
// kAborted. The sender makes the secret, because a registry has no randomness.
struct RotateKeysCommand {
  std::string scope;
  std::uint64_t replaces = 0;  // id of the scope's newest key; 0: the scope has no key
  bool alone = false;          // removes all earlier keys
  Secret secret;
  std::uint64_t made_unix_s = 0;
};
struct TickCommand {};  // only expires leases
// Applied when the server has restarted with its stored state. Gives every lease a full TTL,
// because agents could not send heartbeats meanwhile. Raises revisions and incarnations to at least
// `epoch`, because some that were given out may not have been stored. Clears the change logs, so
// that watchers list the peers again.
struct RestartCommand {
  std::uint64_t epoch = 0;
};
using Command = std::variant<RegisterCommand, HeartbeatCommand, RenewCommand, DeregisterCommand,
                             UpdateRegionsCommand, UpdateServicesCommand, SetLinksCommand, PutTokenCommand,
                             RevokeTokenCommand, RotateKeysCommand, TickCommand, RestartCommand>;

// The peer that has a name for which another instance has asked.
struct Holder {
  InstanceId instance;
  std::uint64_t incarnation = 0;
  std::string address;
  Nanos expires_in{};
};

struct ScopedEvent {
  std::string scope;
  Event event;
  // token of the request that caused the event; empty: no token was needed, or a lease expired
  std::string token_id = {};
};

// Kinds of records. A store keeps each record separately, under its RecordKey.
enum class Table : std::uint8_t {
  kRegistry,  // the counters; one record
  kScope,     // per scope: its revision
  kPeer,      // per scope and name
  kToken,     // the name is the token's id
  // per scope and name: the wanted links of the peer `name`
  kLinks,
  kKeys,  // per scope: its members' keys
};
struct RecordKey {
  Table table = Table::kRegistry;
  std::string scope, name;
  auto operator<=>(const RecordKey&) const = default;
};

// A peer at the moment of a query. The record never changes, because an update makes a new record;
// so a PeerView can be read without the registry's lock.
struct PeerView {
  std::shared_ptr<const PeerInfo> info;  // its own expires_in is not set
  Nanos expires_in{};
  std::size_t bytes = 0;  // approximate memory of the record
};

// The state of a registry, without its change logs. Shares the records of peers and links with the
// registry, instead of copying them.
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

// Consecutive peers of a scope, ordered by name.
struct PeerSlice {
  std::vector<PeerView> peers;
  // name of the last peer, to continue after; empty: there are no further peers
  std::optional<std::string> next;
};
// Consecutive peers of a scope that have wanted links, ordered by name.
struct LinkSlice {
  struct Entry {
    std::string name;
    std::shared_ptr<const std::vector<std::string>> targets;
  };
  std::vector<Entry> peers;
  std::optional<std::string> next;
};

// The resources that one scope uses. RegistryOptions has the limits of `peers` and `record_bytes`.
struct ScopeUse {
  std::uint64_t revision = 0;
  std::size_t peers = 0;
  std::size_t services = 0;
  std::size_t regions = 0;
  std::size_t links = 0;         // peers with wanted links
  std::size_t record_bytes = 0;  // approximate memory of peers and wanted links
};

// The result of a command. A command that fails changes nothing, except that it may expire leases.
struct Outcome {
  Status status;                 // kNotFound, kAborted (old incarnation), kAlreadyExists (see holder), ...
  Lease lease;                   // of a successful RegisterCommand
  std::optional<Holder> holder;  // with kAlreadyExists
  // the command's events, in order; the change logs of the scopes contain them too
  std::vector<ScopedEvent> events;
  // keys of all records that were changed or removed; may contain duplicates
  std::vector<RecordKey> touched;
};

// The registry as a pure state machine, without I/O, clock and randomness: the same commands at the
// same times give the same state, on which the replicated log relies. Each command first expires
// the leases that have ended by its `now`. A `now` before the latest one counts as the latest.
// Thread: one at a time.
class Registry {
 public:
  explicit Registry(RegistryOptions options);
  // Makes a registry with the given state and empty change logs, so that watchers list the peers
  // again. kCorrupt when parts of `state` contradict each other.
  static Result<Registry> restore(RegistryOptions options, RegistryState state, TimePoint now);

  Outcome apply(const Command& command, TimePoint now);
  // Extends every lease to a full TTL from `now`, even if it has ended already. Called after a
  // period in which no lease could be renewed.
  void renew_all(TimePoint now);

  // Returns the outcome that apply() would have for this heartbeat. Renews nothing and expires
  // nothing.
  [[nodiscard]] Outcome check(const HeartbeatCommand& command) const;
  // Queries show the state after the last command: apply a TickCommand first to expire leases.
  // find() returns the peer's record.
  [[nodiscard]] std::optional<PeerInfo> find(std::string_view scope, std::string_view name) const;
  // Returns the peer's incarnation, without copying its record; 0: there is no such peer.
  [[nodiscard]] std::uint64_t incarnation(std::string_view scope, std::string_view name) const;
  // Like find(), but shares the record instead of copying it.
  [[nodiscard]] std::optional<PeerView> view(std::string_view scope, std::string_view name) const;
  // Returns the first `limit` peers after the name `after`. The time taken does not depend on the
  // size of the records.
  [[nodiscard]] PeerSlice slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // Returns at most `limit` events after the revision `since`.
  [[nodiscard]] Changes changes(std::string_view scope, std::uint64_t since,
                                std::size_t limit = limits::kEventsPerReply) const;
  [[nodiscard]] std::uint64_t revision(std::string_view scope) const;
  [[nodiscard]] std::map<std::string, std::uint64_t> revisions() const;  // by scope
  [[nodiscard]] bool has_peer(std::string_view scope, std::string_view name) const {
    const auto it = scopes_.find(scope);
    return it != scopes_.end() && it->second.peers.contains(name);
  }
  // Returns the owner in the peer's record, without copying the record; nullopt: there is no such
  // peer.
  [[nodiscard]] std::optional<Owner> owner_of(std::string_view scope, std::string_view name) const;
  [[nodiscard]] bool has_scope(std::string_view scope) const { return scopes_.contains(scope); }

  // Names of the peers to which a peer should be connected. links() returns null if no links are
  // wanted.
  using Targets = std::vector<std::string>;
  [[nodiscard]] std::shared_ptr<const Targets> links(std::string_view scope, std::string_view name) const;
  [[nodiscard]] LinkSlice link_slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // Returns the keys with which members of the scope authenticate each other. Revoking a token that
  // may join the scope removes the keys; KeyMaker makes new keys for the remaining members.
  [[nodiscard]] const ScopeKeys& keys(std::string_view scope) const;
  // By id.
  [[nodiscard]] const std::map<std::string, TokenRecord, std::less<>>& tokens() const { return tokens_; }

  // state() returns the whole state; counters() only the epoch, the last incarnation and
  // the first revision of new scopes.
  [[nodiscard]] RegistryState state() const;
  [[nodiscard]] RegistryState counters() const;

  // Returns the earliest time at which a lease may end, or a time before it; kNever without leases.
  [[nodiscard]] TimePoint next_expiry() const;
  [[nodiscard]] std::size_t scope_count() const { return scopes_.size(); }
  [[nodiscard]] std::size_t peer_count() const { return peer_count_; }
  [[nodiscard]] std::size_t peer_count(std::string_view scope) const {
    const auto it = scopes_.find(scope);
    return it == scopes_.end() ? 0 : it->second.peers.size();
  }
  [[nodiscard]] std::size_t record_bytes() const { return record_bytes_; }
  // Returns the resources that each scope uses. The time taken grows with the number of scopes, not
  // of peers.
  [[nodiscard]] std::map<std::string, ScopeUse> uses() const;
  [[nodiscard]] const RegistryOptions& options() const { return options_; }

 private:
  struct Record {
    std::shared_ptr<const PeerInfo> info;
    TimePoint expires_at;
    // time of the record's entry in expiries_; at or before expires_at
    TimePoint scheduled_at;
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
  // Key of a record's entry in expiries_, ordered by time and then by incarnation. A heartbeat does
  // not move the entry: when the entry is due and the lease was renewed, the entry moves to the
  // lease's new end.
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
  // Adds and removes entries of `list`, a member of the peer's record. `check` validates the
  // entries in the command, and then the resulting list.
  template <class Update, class Entry>
  void update_list(const Update& command, std::vector<Entry> Registration::*list,
                   Status (*check)(const std::vector<Entry>&), Outcome& out);

  void expire(Outcome& out);
  // Returns the record if the peer exists with this incarnation and `by` permits a change. Else
  // sets out.status and returns null.
  Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation, const Proof& by,
                Outcome& out);
  const Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                      const Proof& by, Outcome& out) const;
  // Returns the scope, and makes it if it does not exist. If the registry has the most scopes it
  // may have, first removes an empty scope; returns null if no scope is empty.
  Scope* scope_for(const std::string& name, Outcome& out);
  Status check_room(const std::string& name, const Scope* scope, bool new_peer, std::size_t old_bytes,
                    std::size_t new_bytes) const;
  // count_in() adds a record to the totals of the scope and the registry; count_out() subtracts it.
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
  // Removes all keys that the bearer of `token` may have received.
  void drop_keys(const TokenRecord& token, Outcome& out);
  [[nodiscard]] Status check_token_room(const TokenRecord& token) const;
  // Returns whether there is an administrator's token of all scopes with another id than `id`.
  [[nodiscard]] bool has_admin_besides(std::string_view id) const;
  [[nodiscard]] Nanos ttl_of(const Registration& peer) const {
    return peer.ttl > Nanos::zero() ? peer.ttl : options_.ttl;
  }
  [[nodiscard]] Lease lease_of(const Scope& scope, const Record& record) const;

  RegistryOptions options_;
  TimePoint now_{};
  std::uint64_t last_incarnation_;
  // first revision of new scopes; keeps a scope's revisions growing if it is removed and made again
  std::uint64_t revision_floor_;
  std::size_t peer_count_ = 0;
  std::size_t record_bytes_ = 0;
  Scopes scopes_;
  std::map<ExpiryKey, PeerKey> expiries_;
  std::map<std::string, TokenRecord, std::less<>> tokens_;
};

}  // namespace slime::ctrl
