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
  // Where incarnations and revisions start. Larger for a later server, so that both go on increasing when a
  // restarted one knows nothing: microseconds since 1970 at start.
  std::uint64_t epoch = 1;
  std::size_t scopes_max = limits::kScopes;
  std::size_t peers_per_scope_max = limits::kPeersPerScope;
  std::size_t record_bytes_max = limits::kRecordBytesTotal;
  std::size_t record_bytes_per_scope_max = limits::kRecordBytesPerScope;
  std::size_t events_per_scope_max = limits::kEventsPerScope;
  [[nodiscard]] Status validate() const;
};

// By what right a command changes a peer's record. Whoever makes the command has the request, and must say
// it; a registry sees hashes alone.
struct Proof {
  enum class Kind : std::uint8_t {
    kTrusted = 0,  // an administrator, or an entry of a log from before there were sessions
    kSession = 1,  // the session must be that of the record
    kToken = 2,    // a route without sessions: the record has none either, and is of this token or of none
  };
  // There is no default: a command that forgot it would be trusted, or refused.
  Proof(Kind kind_of, Owner whose) : kind(kind_of), owner(std::move(whose)) {}
  static Proof trusted() { return {Kind::kTrusted, {}}; }

  Kind kind;
  Owner owner;  // the hash of the request's session, and its token, which the log of changes names
};
// kPermissionDenied when the record of that name and owner is not for `proof` to change.
Status check_proof(const Proof& proof, std::string_view name, const Owner& owner);

// The commands. Each that speaks for a peer carries the incarnation that it was granted.
struct RegisterCommand {
  Registration registration;
  // Take the name from the holder with this incarnation (found dead, or told to go). Any other holder is
  // still a conflict, so a decision about one holder never hits its successor.
  std::uint64_t takes_over = 0;
  // What owns the record from now on. The same instance with another proof is another owner: a conflict.
  Proof by;
};
struct HeartbeatCommand {
  std::string scope, name;
  std::uint64_t incarnation = 0;
  Proof by;
};
// Heartbeats that were answered already: renews each lease that still has its incarnation, and tells nobody.
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
  bool replace = false;  // first forget what was published
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
// Who this peer should be connected to, whether it is there or not; the new set. None: nothing is wanted.
struct SetLinksCommand {
  std::string scope, name;
  std::vector<std::string> targets;
  Proof by;  // matters while a peer of that name is registered
};
// Adds or replaces the token of that id. As soon as there are tokens nobody gets in without one, so among
// them is always one that may make others, unless there is another way to that (`other_admin`).
struct PutTokenCommand {
  TokenRecord token;
  bool other_admin = false;
};
struct RevokeTokenCommand {
  std::string id;
  bool other_admin = false;
};
// Gives the scope one more key, and takes the oldest away where there are too many. It names what it comes
// after, so of several who do this at once one has an effect: kAborted for the others. Whoever makes the
// command makes the key, since a registry has no randomness.
struct RotateKeysCommand {
  std::string scope;
  std::uint64_t replaces = 0;  // the id of the newest one; 0: there is none
  bool alone = false;          // takes all earlier ones away
  Secret secret;
  std::uint64_t made_unix_s = 0;
};
struct TickCommand {};  // nothing but expiry
// The server was away and has its state again. Agents could not send heartbeats meanwhile, so every lease
// starts anew. What it told without keeping it may be lost, so numbers go on from `epoch` where they are
// behind it, and who watches lists the peers again.
struct RestartCommand {
  std::uint64_t epoch = 0;
};
using Command = std::variant<RegisterCommand, HeartbeatCommand, RenewCommand, DeregisterCommand,
                             UpdateRegionsCommand, UpdateServicesCommand, SetLinksCommand, PutTokenCommand,
                             RevokeTokenCommand, RotateKeysCommand, TickCommand, RestartCommand>;

// Who has a name that somebody else wants.
struct Holder {
  InstanceId instance;
  std::uint64_t incarnation = 0;
  std::string address;
  Nanos expires_in{};
};

struct ScopedEvent {
  std::string scope;
  Event event;
  std::string token_id = {};  // of who caused it; empty: time did, or nobody needs a token
};

// What a registry consists of, for who keeps it: each record has a key, and can be kept and lost alone.
enum class Table : std::uint8_t {
  kRegistry,  // the counters; one record
  kScope,     // of a scope: its revision
  kPeer,      // of a scope and a name
  kToken,     // the name is its id
  kLinks,     // of a scope and a name: who that peer should be connected to
  kKeys,      // of a scope: what its members have
};
struct RecordKey {
  Table table = Table::kRegistry;
  std::string scope, name;
  auto operator<=>(const RecordKey&) const = default;
};

// A peer as of the moment of a query. The record never changes: an update puts another one into its place, so
// this may be read without the lock that the registry is under.
struct PeerView {
  std::shared_ptr<const PeerInfo> info;  // without what is left of the lease
  Nanos expires_in{};
  std::size_t bytes = 0;  // about what the record takes in memory
};

// A registry without its log of changes. It shares the large records with the registry that it was taken of.
struct RegistryState {
  std::uint64_t epoch = 0;
  std::uint64_t last_incarnation = 0;
  std::uint64_t revision_floor = 0;
  std::map<std::string, std::uint64_t> revisions;  // of the scopes
  std::vector<PeerView> peers = {};
  std::map<std::string, TokenRecord, std::less<>> tokens = {};  // by id
  struct Links {
    std::string scope, name;
    std::shared_ptr<const std::vector<std::string>> targets;
  };
  std::vector<Links> links = {};
  std::map<std::string, ScopeKeys> keys = {};  // of the scopes
};

// Some peers of a scope in the order of names.
struct PeerSlice {
  std::vector<PeerView> peers;
  std::optional<std::string> next;  // the name to go on after; none: these were the last
};
// The same of wanted links.
struct LinkSlice {
  struct Entry {
    std::string name;
    std::shared_ptr<const std::vector<std::string>> targets;
  };
  std::vector<Entry> peers;
  std::optional<std::string> next;
};

// What a scope has. The limits of peers and bytes are in RegistryOptions.
struct ScopeUse {
  std::uint64_t revision = 0;
  std::size_t peers = 0;
  std::size_t services = 0;
  std::size_t regions = 0;
  std::size_t links = 0;         // peers with wanted ones
  std::size_t record_bytes = 0;  // of peers and wanted links, about, in memory
};

// What a command did. A refused one changed nothing but what time alone changed.
struct Outcome {
  Status status;                    // kNotFound, kAborted (old incarnation), kAlreadyExists (see holder), ...
  Lease lease;                      // of a successful RegisterCommand
  std::optional<Holder> holder;     // with kAlreadyExists
  std::vector<ScopedEvent> events;  // in order; they are in the scopes' logs too
  std::vector<RecordKey> touched;   // what is different now, or gone; a key may be there twice
};

// The registry as a pure state machine: no I/O, no clock, no randomness. The same commands at the same times
// give the same state, which is what a replicated log of them relies on. Every command first expires the
// leases that ended by its `now`. Time never goes back: an earlier `now` counts as the latest one seen.
// Thread: one at a time.
class Registry {
 public:
  explicit Registry(RegistryOptions options);
  // As it was, but for the logs: who watches from before lists the peers again. kCorrupt when the parts do
  // not fit together.
  static Result<Registry> restore(RegistryOptions options, RegistryState state, TimePoint now);

  Outcome apply(const Command& command, TimePoint now);
  // Gives every lease a whole TTL from `now`, also one that has ended by it: for time that does not count.
  void renew_all(TimePoint now);

  // What the heartbeat would be answered, as of the last command; renews nothing.
  [[nodiscard]] Outcome check(const HeartbeatCommand& command) const;
  // Queries, as of the last command: apply a TickCommand first.
  [[nodiscard]] std::optional<PeerInfo> find(std::string_view scope, std::string_view name) const;
  // Of find(), without a copy of the rest; 0: there is no such peer.
  [[nodiscard]] std::uint64_t incarnation(std::string_view scope, std::string_view name) const;
  // find() without a copy of the record.
  [[nodiscard]] std::optional<PeerView> view(std::string_view scope, std::string_view name) const;
  // The first `limit` records after the name `after`. Takes time for each of them, however large they are.
  [[nodiscard]] PeerSlice slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // What happened after `since`, at most `limit` events.
  [[nodiscard]] Changes changes(std::string_view scope, std::uint64_t since,
                                std::size_t limit = limits::kEventsPerReply) const;
  [[nodiscard]] std::uint64_t revision(std::string_view scope) const;
  [[nodiscard]] std::map<std::string, std::uint64_t> revisions() const;  // of all scopes
  [[nodiscard]] bool has_peer(std::string_view scope, std::string_view name) const {
    const auto it = scopes_.find(scope);
    return it != scopes_.end() && it->second.peers.contains(name);
  }
  // Of find(), without a copy of the rest.
  [[nodiscard]] std::optional<Owner> owner_of(std::string_view scope, std::string_view name) const;
  [[nodiscard]] bool has_scope(std::string_view scope) const { return scopes_.contains(scope); }

  // Who a peer should be connected to; null: nobody in particular.
  using Targets = std::vector<std::string>;
  [[nodiscard]] std::shared_ptr<const Targets> links(std::string_view scope, std::string_view name) const;
  [[nodiscard]] LinkSlice link_slice(std::string_view scope, std::string_view after, std::size_t limit) const;
  // What the members of a scope have. They go when a token that may join it is revoked: the next ones are
  // made for who stays.
  [[nodiscard]] const ScopeKeys& keys(std::string_view scope) const;
  // By id.
  [[nodiscard]] const std::map<std::string, TokenRecord, std::less<>>& tokens() const { return tokens_; }

  // All of it, or the counters alone.
  [[nodiscard]] RegistryState state() const;
  [[nodiscard]] RegistryState counters() const;

  // When the next lease may end; kNever when there is none.
  [[nodiscard]] TimePoint next_expiry() const;
  [[nodiscard]] std::size_t scope_count() const { return scopes_.size(); }
  [[nodiscard]] std::size_t peer_count() const { return peer_count_; }
  [[nodiscard]] std::size_t peer_count(std::string_view scope) const {
    const auto it = scopes_.find(scope);
    return it == scopes_.end() ? 0 : it->second.peers.size();
  }
  [[nodiscard]] std::size_t record_bytes() const { return record_bytes_; }
  // What each scope has. Takes time for each scope, not for its peers.
  [[nodiscard]] std::map<std::string, ScopeUse> uses() const;
  [[nodiscard]] const RegistryOptions& options() const { return options_; }

 private:
  struct Record {
    std::shared_ptr<const PeerInfo> info;
    TimePoint expires_at;
    TimePoint scheduled_at;  // of its entry in expiries_; never later than expires_at
    std::size_t bytes = 0;
  };
  struct Scope {
    std::uint64_t first_revision = 0;  // the log holds what came after this
    std::uint64_t revision = 0;
    std::deque<Event> log;
    std::map<std::string, Record, std::less<>> peers;
    std::map<std::string, std::shared_ptr<const std::vector<std::string>>, std::less<>> links;  // wanted
    ScopeKeys keys;
    std::size_t services = 0;      // of its peers
    std::size_t regions = 0;       // of its peers
    std::size_t record_bytes = 0;  // of its peers and wanted links
  };
  // One for each record. Heartbeats leave it alone: when it comes up and the lease was renewed meanwhile, it
  // moves on. Leases that end together expire in the order in which they were granted.
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

  void expire(Outcome& out);
  // The record if it is there, of that incarnation, and for `by` to change; else sets out.status.
  Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation, const Proof& by,
                Outcome& out);
  const Record* owned(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                      const Proof& by, Outcome& out) const;
  // The scope, made if needed (an empty one may make room); null when there are too many.
  Scope* scope_for(const std::string& name, Outcome& out);
  Status check_room(const std::string& name, const Scope* scope, bool new_peer, std::size_t old_bytes,
                    std::size_t new_bytes) const;
  // The record is in its scope from now on, or is not any more: for what is counted.
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
  // What wanted links take in memory, about.
  static std::size_t links_size(const Targets& targets);
  // Those that the token's bearer may have been told.
  void drop_keys(const TokenRecord& token, Outcome& out);
  [[nodiscard]] Status check_token_room(const TokenRecord& token) const;
  // A token of all scopes that may make others, besides the one of that id.
  [[nodiscard]] bool has_admin_besides(std::string_view id) const;
  [[nodiscard]] Nanos ttl_of(const Registration& peer) const {
    return peer.ttl > Nanos::zero() ? peer.ttl : options_.ttl;
  }
  [[nodiscard]] Lease lease_of(const Scope& scope, const Record& record) const;

  RegistryOptions options_;
  TimePoint now_{};
  std::uint64_t last_incarnation_;
  std::uint64_t revision_floor_;  // scopes start here, so that a scope made again goes on from its past
  std::size_t peer_count_ = 0;
  std::size_t record_bytes_ = 0;
  Scopes scopes_;
  std::map<ExpiryKey, PeerKey> expiries_;
  std::map<std::string, TokenRecord, std::less<>> tokens_;
};

}  // namespace slime::ctrl
