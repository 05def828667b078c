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

// The types of the registry, shared by client and server.
namespace slime::ctrl {

// What peers may do with a region. The numbers are those of the transport's Rights.
enum class RegionRights : std::uint8_t { kLocal = 0, kRead = 1, kWrite = 2, kReadWrite = 3 };

// The name and size of a region. Its keys are requested from the peer and never stored in nanoctrl.
struct RegionInfo {
  std::string name;
  std::uint64_t length_bytes = 0;
  RegionRights rights = RegionRights::kRead;
  bool operator==(const RegionInfo&) const = default;
};

using Labels = std::map<std::string, std::string>;

// Whether a service accepts requests now, as its peer reports.
enum class Health : std::uint8_t {
  kServing = 0,
  kDraining = 1,    // finishes its requests, accepts no new ones
  kNotServing = 2,  // registered, but unusable now
};

struct ServiceInfo {
  std::string name;
  std::string kind;                  // what clients search for: "cache"; may be empty
  std::vector<std::string> methods;  // may be empty: not stated
  Health health = Health::kServing;
  Labels labels = {};  // for filters of lists: "model": "m-7b"
  bool operator==(const ServiceInfo&) const = default;
};

// An agent's complete description of itself: registering again replaces the earlier record,
// services and regions included.
struct Registration {
  std::string name;  // unique in its scope
  std::string scope = "default";
  InstanceId instance;
  std::string address;  // "host:port" or "[v6]:port"; peers connect to it, nanoctrl probes it
  std::string kind;     // "worker", "cache"; may be empty
  std::vector<std::string> providers;
  Labels metadata;  // also for filters of lists
  std::vector<ServiceInfo> services;
  std::vector<RegionInfo> regions;
  Nanos ttl{};  // lifetime without a heartbeat, in whole milliseconds; zero: nanoctrl's default
  bool operator==(const Registration&) const = default;
};

// The owner of a record. Kept with the record, never part of a reply.
struct Owner {
  std::string session_sha256;  // hexadecimal; empty: registered by a route without sessions
  std::string token_id;        // token of the last registration; empty: no token was needed
  bool operator==(const Owner&) const = default;
};

// A registered peer.
struct PeerInfo : Registration {
  // Orders the owners of a name: a later owner has a larger incarnation, also across restarts of
  // nanoctrl. A request with an older incarnation is refused.
  std::uint64_t incarnation = 0;
  std::uint64_t revision = 0;  // of the scope, when this record last changed
  Nanos expires_in{};          // time left of the lease
  Owner owner = {};            // set inside nanoctrl only; no reply contains it
};

// A connection of an agent, as the agent reports it with a heartbeat. Counts are per connection.
struct LinkReport {
  std::string peer;
  std::string provider;
  std::string state;  // "ready", ...
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t direct_bytes = 0;  // copied directly in shared memory, both directions; not in the
                                   // other two
  std::uint64_t calls = 0;         // made by this agent
  bool operator==(const LinkReport&) const = default;
};
// An agent's report about itself, sent now and then. Not stored, and used for display only.
struct Report {
  std::vector<LinkReport> links;
  std::map<std::string, std::uint64_t> counters;  // since the agent started: "requests",
                                                  // "sent_bytes"
  bool operator==(const Report&) const = default;
};

// A secret with which members of a scope prove their membership to each other.
struct ScopeKey {
  std::uint64_t id = 0;  // larger than the id of each earlier key
  Secret secret;
  std::uint64_t made_unix_s = 0;
  bool operator==(const ScopeKey&) const = default;
};
// The previous, the current and the next key, oldest first; a new scope has only the later of
// these. A new key is first the next key, so that all members have received it before any member
// uses it.
using ScopeKeys = std::vector<ScopeKey>;
// The id of the newest key, which identifies the set; 0: no keys.
inline std::uint64_t newest_id(const ScopeKeys& keys) { return keys.empty() ? 0 : keys.back().id; }

// Result of a registration.
struct Lease {
  std::uint64_t incarnation = 0;
  std::uint64_t server_epoch = 0;  // changes when nanoctrl restarts without its state
  std::uint64_t revision = 0;      // of the scope; pass to watch() or heartbeat() to get later changes
  Nanos ttl{};
  Nanos heartbeat_interval{};      // interval between renewals
  std::vector<std::string> links;  // peers to connect to; kLinks events announce changes
  ScopeKeys keys = {};             // empty: nanoctrl requires no tokens, so the scope has no members
  // Set by a registration only: proves that a later request comes from the record's owner. Secret.
  Secret session = {};
};

enum class EventKind : std::uint8_t {
  kRegistered = 0,    // a new owner of the name
  kUpdated = 1,       // same owner; address, kind, services, regions or metadata differ
  kDeregistered = 2,  // the peer deregistered
  kExpired = 3,       // the lease expired, or another instance took the name over
  kLinks = 4,         // the wanted links of the name changed; the peer need not be registered
};

// What a token permits in its scope. Each role includes the earlier roles.
enum class Role : std::uint8_t {
  kRead = 0,   // read lists and records
  kJoin = 1,   // register a peer
  kAdmin = 2,  // manage tokens, make backups
};

// nanoctrl's record of a token. The secret is returned once, by the request that makes the token.
struct TokenRecord {
  std::string id;  // 16 hexadecimal digits
  Role role = Role::kRead;
  std::string scope;          // a scope, or "*" for all scopes
  std::string note;           // free text for people, such as the owner's name
  std::string secret_sha256;  // hexadecimal
  std::uint64_t created_unix_s = 0;
  std::uint64_t expires_unix_s = 0;  // 0: never
  bool operator==(const TokenRecord&) const = default;
};

// One change in a scope. Small on purpose: a reader that needs the record requests it.
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

// What happened in a scope since a revision.
struct Changes {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;  // pass as `since` of the next request
  bool resync = false;         // the log does not reach back to `since`: list the peers again, then go on
  bool more = false;           // more events wait: ask again at once
  std::vector<Event> events;   // in order
  ScopeKeys keys = {};         // set in a heartbeat's reply if the peer's keys are out of date
};

std::string_view rights_name(RegionRights rights);  // "local", "read", "write", "read_write"
std::optional<RegionRights> parse_rights(std::string_view name);
// "registered", "updated", "deregistered", "expired", "links"
std::string_view event_kind_name(EventKind kind);
std::optional<EventKind> parse_event_kind(std::string_view name);
std::string_view role_name(Role role);  // "read", "join", "admin"
std::optional<Role> parse_role(std::string_view name);

// Splits "host:port" or "[v6]:port"; the host has no brackets. Empty for any other text.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
std::optional<HostPort> parse_host_port(std::string_view text);

std::string_view health_name(Health health);  // "serving", "draining", "not_serving"
std::optional<Health> parse_health(std::string_view name);
// Returns whether `labels` contains all of `wanted`.
bool has_labels(const Labels& labels, const Labels& wanted);

// Checks a name of a peer, scope, service, method or region: 1 to 255 of A-Z a-z 0-9 . _ - : / @ +
// = ~ with no empty, "." or ".." part between slashes, so that "ns/model/worker-0" is valid and
// every name survives a URL. The error names `what` and the problem.
Status check_name(std::string_view what, std::string_view name);
// OK for an empty owner, and for one with a valid hash and token id.
Status check_owner(const Owner& owner);
// Checks all limits of a registration; kInvalidArgument with the field at fault.
Status check_registration(const Registration& registration);
Status check_token(const TokenRecord& token);
Status check_keys(const ScopeKeys& keys);
Status check_report(const Report& report);
// Checks the peers that `name` should be connected to.
Status check_links(std::string_view name, const std::vector<std::string>& targets);
Status check_services(const std::vector<ServiceInfo>& services);
Status check_regions(const std::vector<RegionInfo>& regions);

}  // namespace slime::ctrl
