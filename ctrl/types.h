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

// The vocabulary of the registry, the same on both sides of HTTP.
namespace slime::ctrl {

// What peers may do with a region. The numbers are those of the transport's Rights.
enum class RegionRights : std::uint8_t { kLocal = 0, kRead = 1, kWrite = 2, kReadWrite = 3 };

// The name and size of a region. Its keys are asked of the peer and never stored here.
struct RegionInfo {
  std::string name;
  std::uint64_t length_bytes = 0;
  RegionRights rights = RegionRights::kRead;
  bool operator==(const RegionInfo&) const = default;
};

using Labels = std::map<std::string, std::string>;

// Whether a service takes requests now, as its peer says.
enum class Health : std::uint8_t {
  kServing = 0,
  kDraining = 1,    // it finishes what it has
  kNotServing = 2,  // there, but of no use now
};

struct ServiceInfo {
  std::string name;
  std::string kind;                  // what clients look for: "cache"; may be empty
  std::vector<std::string> methods;  // may be empty: not stated
  Health health = Health::kServing;
  Labels labels = {};  // what lists are filtered by: "model": "m-7b"
  bool operator==(const ServiceInfo&) const = default;
};

// What an agent says of itself. The whole truth: registering again replaces what was there, services and
// regions included.
struct Registration {
  std::string name;  // unique in its scope
  std::string scope = "default";
  InstanceId instance;
  std::string address;  // "host:port" or "[v6]:port" that others connect to and nanoctrl probes
  std::string kind;     // "worker", "cache"; may be empty
  std::vector<std::string> providers;
  Labels metadata;  // lists are filtered by it, too
  std::vector<ServiceInfo> services;
  std::vector<RegionInfo> regions;
  Nanos ttl{};  // how long it lives without a heartbeat; zero: as nanoctrl says. Whole milliseconds
  bool operator==(const Registration&) const = default;
};

// To whom a record belongs. Kept with the record, and told to nobody.
struct Owner {
  std::string session_sha256;  // hexadecimal; empty: registered by a route that has no sessions
  std::string token_id;        // of the token that registered it last; empty: nobody needed one
  bool operator==(const Owner&) const = default;
};

// A registered peer.
struct PeerInfo : Registration {
  // Orders the owners of a name: a later one is larger, also across restarts of nanoctrl. A request with an
  // older one is refused.
  std::uint64_t incarnation = 0;
  std::uint64_t revision = 0;  // of the scope, when this record last changed
  Nanos expires_in{};          // what is left of the lease
  Owner owner = {};            // in nanoctrl alone: no reply has it
};

// A connection that an agent has, as it says with a heartbeat. Bytes and calls are those of the connection.
struct LinkReport {
  std::string peer;
  std::string provider;
  std::string state;  // "ready", ...
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t direct_bytes = 0;  // that it copied itself in memory of both, either way; in neither of those
  std::uint64_t calls = 0;         // that it made
  bool operator==(const LinkReport&) const = default;
};
// What an agent tells of itself now and then. Nothing of it is kept or decides anything: it is for people.
struct Report {
  std::vector<LinkReport> links;
  std::map<std::string, std::uint64_t> counters;  // since the agent began: "requests", "sent_bytes"
  bool operator==(const Report&) const = default;
};

// What the members of a scope prove to each other that they are members with.
struct ScopeKey {
  std::uint64_t id = 0;  // larger than those of all earlier ones
  Secret secret;
  std::uint64_t made_unix_s = 0;
  bool operator==(const ScopeKey&) const = default;
};
// The previous, the current and the next one, or the later ones of these: in the order in which they were
// made. A new one is next first, so that all have heard of it before somebody uses it.
using ScopeKeys = std::vector<ScopeKey>;
// That of the newest one, which names the set; 0: there is none.
inline std::uint64_t newest_id(const ScopeKeys& keys) { return keys.empty() ? 0 : keys.back().id; }

// What a registration grants.
struct Lease {
  std::uint64_t incarnation = 0;
  std::uint64_t server_epoch = 0;  // changes when nanoctrl restarts without its state
  std::uint64_t revision = 0;      // of the scope; ask for changes since here
  Nanos ttl{};
  Nanos heartbeat_interval{};      // how often to renew
  std::vector<std::string> links;  // who the peer should be connected to; events tell when that changes
  ScopeKeys keys = {};             // none: nanoctrl requires no tokens, so there are no members
  // Of a registration alone: proves that a later request comes from the owner of the record. A secret.
  Secret session = {};
};

enum class EventKind : std::uint8_t {
  kRegistered = 0,    // a new owner of the name
  kUpdated = 1,       // same owner; address, kind, services, regions or metadata differ
  kDeregistered = 2,  // it said goodbye
  kExpired = 3,       // its lease ran out, or somebody took the name over
  kLinks = 4,         // the links that it should have are others now; the peer need not be there
};

// What a token lets its bearer do in its scope; each role may what those before it may.
enum class Role : std::uint8_t {
  kRead = 0,   // look
  kJoin = 1,   // be a peer
  kAdmin = 2,  // tokens, backups
};

// What nanoctrl keeps of a token. The secret itself is told once, to who makes the token.
struct TokenRecord {
  std::string id;  // 16 hexadecimal digits
  Role role = Role::kRead;
  std::string scope;          // one, or "*" for all
  std::string note;           // for people: whose it is
  std::string secret_sha256;  // hexadecimal
  std::uint64_t created_unix_s = 0;
  std::uint64_t expires_unix_s = 0;  // 0: never
  bool operator==(const TokenRecord&) const = default;
};

// One change in a scope. Small on purpose: whoever needs the record asks for it.
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
  std::uint64_t revision = 0;  // ask for changes since here next
  bool resync = false;         // the log does not reach back that far: list the peers again, then go on
  bool more = false;           // not all fitted: ask again at once
  std::vector<Event> events;   // in order
  ScopeKeys keys = {};         // of a heartbeat that told which ones it has: others than those; else none
};

std::string_view rights_name(RegionRights rights);  // "local", "read", "write", "read_write"
std::optional<RegionRights> parse_rights(std::string_view name);
std::string_view event_kind_name(
    EventKind kind);  // "registered", "updated", "deregistered", "expired", "links"
std::optional<EventKind> parse_event_kind(std::string_view name);
std::string_view role_name(Role role);  // "read", "join", "admin"
std::optional<Role> parse_role(std::string_view name);

// "host:port" or "[v6]:port" in two halves, brackets off; nothing for anything else.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
std::optional<HostPort> parse_host_port(std::string_view text);

std::string_view health_name(Health health);  // "serving", "draining", "not_serving"
std::optional<Health> parse_health(std::string_view name);
// Whether it has all of those labels.
bool has_labels(const Labels& labels, const Labels& wanted);

// Names of peers, scopes, services, methods and regions: 1 to 255 of A-Z a-z 0-9 . _ - : / @ + = ~ with no
// empty, "." or ".." part between slashes, so that "ns/model/worker-0" is fine and every name survives a URL.
// The error names `what` and says what is wrong with it.
Status check_name(std::string_view what, std::string_view name);
// Empty, or what an owner consists of.
Status check_owner(const Owner& owner);
// All limits of a registration; kInvalidArgument with the field at fault.
Status check_registration(const Registration& registration);
Status check_token(const TokenRecord& token);
Status check_keys(const ScopeKeys& keys);
Status check_report(const Report& report);
// The peers that a peer should be connected to.
Status check_links(std::string_view name, const std::vector<std::string>& targets);
Status check_services(const std::vector<ServiceInfo>& services);
Status check_regions(const std::vector<RegionInfo>& regions);

}  // namespace slime::ctrl
