#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/secret.h"
#include "base/status.h"

// The types of the registry that clients and the server share.
namespace slime::ctrl {

// The rights of other peers on a memory region. The values equal those of the transport's Rights.
enum class RegionRights : std::uint8_t { kLocal = 0, kRead = 1, kWrite = 2, kReadWrite = 3 };

// A memory region as the registry lists it: name, size and rights. The region's keys are not stored
// in nanoctrl; a peer requests them from the region's owner.
struct RegionInfo {
  std::string name;
  std::uint64_t length_bytes = 0;
  RegionRights rights = RegionRights::kRead;
  bool operator==(const RegionInfo&) const = default;
};

using Labels = std::map<std::string, std::string>;

// Tells whether a service accepts requests. Reported by the peer that serves it.
enum class Health : std::uint8_t {
  kServing = 0,
  kDraining = 1,    // finishes its requests, accepts no new ones
  kNotServing = 2,  // registered, but unusable now
};

struct ServiceInfo {
  std::string name;
  // the kind of service that clients search for, such as "cache"; may be empty
  std::string kind;
  std::vector<std::string> methods;  // may be empty: not stated
  Health health = Health::kServing;
  Labels labels = {};  // for filters of lists: "model": "m-7b"
  bool operator==(const ServiceInfo&) const = default;
};

// An agent's complete description of itself. Registering again replaces the whole earlier record,
// with its services and regions.
struct Registration {
  std::string name;  // unique in its scope
  std::string scope = "default";
  InstanceId instance;
  // "host:port" or "[v6]:port"; other peers connect to this address, and nanoctrl probes it
  std::string address;
  std::string kind;  // "worker", "cache"; may be empty
  std::vector<std::string> providers;
  Labels metadata;  // also for filters of lists
  std::vector<ServiceInfo> services;
  std::vector<RegionInfo> regions;
  // time until the lease ends without a heartbeat, in whole milliseconds; zero: nanoctrl's default
  Nanos ttl{};
  bool operator==(const Registration&) const = default;
};

// The owner of a peer's record. Stored with the record, but never sent in a reply.
struct Owner {
  // hash of the session, in hexadecimal; empty: registered through a route without sessions
  std::string session_sha256;
  // id of the token of the last registration; empty: no token was needed
  std::string token_id;
  bool operator==(const Owner&) const = default;
};

// A registered peer.
struct PeerInfo : Registration {
  // Number of this registration of the name. Each later owner of the name has a larger incarnation,
  // also after a restart of nanoctrl. A request with an older incarnation is refused.
  std::uint64_t incarnation = 0;
  // revision of the scope when this record last changed
  std::uint64_t revision = 0;
  Nanos expires_in{};  // time left of the lease
  // used inside nanoctrl only; no reply contains it
  Owner owner = {};
};

// A connection to another peer, as an agent reports it with a heartbeat. The byte and call counts
// are of this connection only.
struct LinkReport {
  std::string peer;
  std::string provider;
  std::string state;  // "ready", ...
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  // bytes copied directly through shared memory, in both directions; not in the two counts above
  std::uint64_t direct_bytes = 0;
  std::uint64_t calls = 0;  // made by this agent
  bool operator==(const LinkReport&) const = default;
};
// An agent's report about itself, which some heartbeats contain. Only for display and metrics;
// never written to the store.
struct Report {
  std::vector<LinkReport> links;
  std::map<std::string, std::uint64_t> counters;  // since the agent started: "requests",
                                                  // "sent_bytes"
  bool operator==(const Report&) const = default;
};

// A secret key with which the members of a scope prove to each other that they are members.
struct ScopeKey {
  std::uint64_t id = 0;  // larger than the ids of all earlier keys
  Secret secret;
  std::uint64_t made_unix_s = 0;
  bool operator==(const ScopeKey&) const = default;
};
// The keys of a scope, oldest first: the previous, the current and the next key; fewer in a new
// scope. A new key begins as the next key, so that all members have received it before any member
// uses it.
using ScopeKeys = std::vector<ScopeKey>;
// Returns the id of the newest key, which identifies the whole set of keys; 0: there are no keys.
inline std::uint64_t newest_id(const ScopeKeys& keys) { return keys.empty() ? 0 : keys.back().id; }

// Result of a registration.
struct Lease {
  std::uint64_t incarnation = 0;
  std::uint64_t server_epoch = 0;  // changes when nanoctrl restarts without its state
  // the scope's revision; pass it to watch() or heartbeat() to get later events
  std::uint64_t revision = 0;
  Nanos ttl{};
  Nanos heartbeat_interval{};  // interval between renewals
  // names of the peers to connect to (wanted links); kLinks events announce changes
  std::vector<std::string> links;
  // the scope's keys; empty: nanoctrl requires no tokens, so the scope has no members
  ScopeKeys keys = {};
  // Secret with which later requests prove that they come from the owner of the record. Set only in
  // the reply to a registration.
  Secret session = {};
};

enum class EventKind : std::uint8_t {
  kRegistered = 0,  // a new owner of the name
  // the owner has changed the record: address, kind, services, regions or metadata
  kUpdated = 1,
  kDeregistered = 2,  // the peer deregistered
  // the lease ended, or another instance has taken the name
  kExpired = 3,
  // the wanted links of the name have changed; the name need not be registered
  kLinks = 4,
};

// The rights of a token's bearer in the token's scope. A role also includes all roles above it in
// this list.
enum class Role : std::uint8_t {
  kRead = 0,   // read lists and records
  kJoin = 1,   // register a peer
  kAdmin = 2,  // manage tokens, make backups
};

// A token as nanoctrl stores it: with the hash of its secret. The secret itself is only in the
// reply to the request that makes the token.
struct TokenRecord {
  std::string id;  // 16 hexadecimal digits
  Role role = Role::kRead;
  std::string scope;  // a scope, or "*" for all scopes
  // a note for people, such as the owner's name; has no effect
  std::string note;
  std::string secret_sha256;  // hexadecimal
  std::uint64_t created_unix_s = 0;
  std::uint64_t expires_unix_s = 0;  // 0: never
  bool operator==(const TokenRecord&) const = default;
};

// One change in a scope. Small: does not contain the changed record, which a reader can request.
struct Event {
  std::uint64_t revision = 0;
  EventKind kind = EventKind::kRegistered;
  std::string name;
  InstanceId instance;
  std::uint64_t incarnation = 0;
  std::string address;
  std::string peer_kind;
  bool operator==(const Event&) const = default;
};

// The events of a scope after a revision.
struct Changes {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;  // pass as `since` of the next request
  // true: the log no longer has all events after `since`; list the peers, then continue from
  // `revision`
  bool resync = false;
  bool more = false;          // more events wait: ask again at once
  std::vector<Event> events;  // in order
  // set only in the reply to a heartbeat, if the peer lacks the newest key
  ScopeKeys keys = {};
};

std::string_view rights_name(RegionRights rights);  // "local", "read", "write", "read_write"
std::optional<RegionRights> parse_rights(std::string_view name);
// "registered", "updated", "deregistered", "expired", "links"
std::string_view event_kind_name(EventKind kind);
std::optional<EventKind> parse_event_kind(std::string_view name);
std::string_view role_name(Role role);  // "read", "join", "admin"
std::optional<Role> parse_role(std::string_view name);

// The parts of "host:port" or "[v6]:port"; `host` has no brackets. parse_host_port() returns
// nullopt for any other text.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
std::optional<HostPort> parse_host_port(std::string_view text);

std::string_view health_name(Health health);  // "serving", "draining", "not_serving"
std::optional<Health> parse_health(std::string_view name);
// Returns whether `labels` contains all of `wanted`.
bool has_labels(const Labels& labels, const Labels& wanted);

// Checks the name of a peer, scope, service, method or region. A name has 1 to 255 of the
// characters A-Z a-z 0-9 . _ - : / @ + = ~ and no empty, "." or ".." part between slashes. So
// "ns/model/worker-0" is valid, and a name stays the same in a URL. The error contains `what` and
// the problem.
Status check_name(std::string_view what, std::string_view name);
// Checks the hash and the token id of an owner. Each may be empty.
Status check_owner(const Owner& owner);
// Checks all fields and limits of a registration. kInvalidArgument names the invalid field.
Status check_registration(const Registration& registration);
Status check_token(const TokenRecord& token);
Status check_keys(const ScopeKeys& keys);
Status check_report(const Report& report);
// Checks `targets`, the names of the peers to which the peer `name` should be connected.
Status check_links(std::string_view name, const std::vector<std::string>& targets);
Status check_services(const std::vector<ServiceInfo>& services);
Status check_regions(const std::vector<RegionInfo>& regions);

}  // namespace slime::ctrl
