#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/types.h"

namespace slime::ctrl {

struct ClientOptions {
  // Base URL of one server, "http://127.0.0.1:4479", or of several,
  // "https://a:4479,https://b:4479". When a server is unavailable, the client switches to the next
  // server and stays with that server.
  std::string url;
  // The token, as printed by `nanoctrl token create`; empty: no token. Sent with each request and
  // never logged.
  std::string token = {};
  Nanos connect_timeout = std::chrono::seconds(2);
  // timeout of one request, counted after connecting; watch() adds its `wait`
  Nanos timeout = std::chrono::seconds(5);
  // path of a PEM file with CA certificates, for https; empty: the system's CAs
  std::string ca_file = {};
  [[nodiscard]] Status validate() const;
};

// Returns a new session for Client::register_peer(): 256 random bits.
Secret new_session();

struct PeerFilter {
  std::string scope = "default";
  std::string kind = {};  // empty: any kind
  Labels labels = {};     // selects peers whose metadata has all of these keys and values
};

struct PeerList {
  std::uint64_t server_epoch = 0;
  // the scope's revision; pass it to watch() or heartbeat() to get later events
  std::uint64_t revision = 0;
  std::vector<PeerInfo> peers;
};

// One service or one region in a list, with the peer that has registered it.
struct ServiceEntry {
  std::string peer;
  std::string address;
  InstanceId instance;
  std::uint64_t incarnation = 0;
  ServiceInfo service;
};
struct RegionEntry {
  std::string peer;
  std::string address;
  InstanceId instance;
  std::uint64_t incarnation = 0;
  RegionInfo region;
};

struct ServiceFilter {
  std::string scope = "default";
  std::string kind = {};  // empty: any kind
  std::string name = {};  // empty: any name
  Labels labels = {};     // the service must have all of these
  std::optional<Health> health = {};
};

// Result of list_services(). Each page of the list shows one moment; different pages may show
// different moments.
struct ServiceList {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  std::vector<ServiceEntry> services;
};

// Names one of the caller's own peers in heartbeats(), with the session that proves ownership.
struct PeerRef {
  std::string name;
  std::uint64_t incarnation = 0;
  Secret session = {};
};
struct LostPeer {
  std::string name;
  // Reason why the lease was not renewed. kNotFound: not registered; kAborted: another instance has
  // the name now; kPermissionDenied: wrong session.
  Code code = Code::kNotFound;
};
// Result of heartbeats().
struct Heartbeats {
  Changes changes;
  std::vector<LostPeer> lost;  // all other peers' leases were renewed
};

struct ScopeInfo {
  std::string scope;
  std::uint64_t revision = 0;
  std::uint64_t peers = 0;
  std::uint64_t services = 0;
  std::uint64_t regions = 0;
  std::uint64_t links = 0;  // wanted links
  // approximate bytes of memory that nanoctrl uses for the scope's peers and wanted links
  std::uint64_t record_bytes = 0;
  // the scope's limits (also record_bytes_max); 0: this nanoctrl is too old to report limits
  std::uint64_t peers_max = 0;
  std::uint64_t record_bytes_max = 0;
};

// A link between two peers: wanted by set_links(), reported by the agent `from`, or both.
struct LinkInfo {
  std::string from, to;
  bool wanted = false;
  bool both_there = false;           // both peers are registered now
  std::optional<LinkReport> report;  // from `from`'s last heartbeat, if reported
};

struct TokenRequest {
  Role role = Role::kJoin;
  std::string scope = "default";  // "*": all scopes
  std::string note = {};
  std::uint64_t expires_in_s = 0;  // 0: never
};
// A token in a list, without its secret. `token` is the text that a client sends; set only by
// create_token().
struct TokenInfo {
  std::string id;
  Role role = Role::kRead;
  std::string scope;
  std::string note;
  std::uint64_t created_unix_s = 0;
  std::uint64_t expires_unix_s = 0;
  std::string token = {};
};

struct ServerStatus {
  std::string version;
  std::uint64_t server_epoch = 0;
  Nanos uptime{};
  Nanos ttl{};
  std::uint64_t scopes = 0;
  std::uint64_t peers = 0;
  std::uint64_t watchers = 0;
};

// nanoctrl's HTTP API as blocking calls. Keeps one connection open between calls. If the server has
// closed that connection, the client sends the request again on a new connection, which is safe
// because requests are idempotent. Requests that make or revoke a token are not idempotent: the
// client sends each once, on a new connection. Thread: any, several calls at once; never a loop's
// thread.
//
// Errors of every call, in addition to those documented at the call:
// - kUnavailable: no connection, or nanoctrl is shutting down (maybe_executed() tells whether the
//   request may have arrived);
// - kDeadlineExceeded: connected, but no reply in time;
// - kUnauthenticated: the server's certificate is not trusted, or the server refuses the token;
// - kResourceExhausted: a limit of the server is reached; the text names the limit;
// - kCancelled: stop() was called;
// - kInvalidArgument: an argument is invalid; the text names the field;
// - kCorrupt: the reply does not come from nanoctrl.
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();  // stop()
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Registers a peer. The same instance may register again with the same session: it keeps its
  // incarnation, and the new record replaces the old one. kAlreadyExists when another live instance
  // has the name; with `takeover`, that instance loses the name instead.
  //
  // `session` comes from new_session(). Use one session for all registrations of an agent, so that
  // a registration whose reply was lost can be repeated. If `session` is empty, nanoctrl makes a
  // session. The returned lease contains the session in both cases.
  Result<Lease> register_peer(const Registration& registration, const Secret& session = {},
                              bool takeover = false);
  // The functions below with a `session` prove with it that the caller owns the peer's record.
  // kPermissionDenied: the record has another session.
  //
  // Renews the lease. With `since`, also returns the scope's events after that revision. With
  // `keys_have`, the newest_id() of the caller's keys, also returns the scope's keys if their
  // newest key differs. kNotFound: the peer is not registered (nanoctrl restarted, or the lease
  // expired); register again. kAborted: another instance has the name now; do not register again.
  Result<Changes> heartbeat(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                            const Secret& session, std::optional<std::uint64_t> since = {},
                            const std::optional<Report>& report = {},
                            std::optional<std::uint64_t> keys_have = {});
  // Renews the leases of up to 1,000 peers in one scope with one request.
  Result<Heartbeats> heartbeats(std::string_view scope, std::span<const PeerRef> peers,
                                std::optional<std::uint64_t> since = {});
  // Removes the peer's record if it still has this incarnation. kNotFound: there is no record;
  // kAborted: another instance has the name. An administrator of the scope may pass an empty
  // session.
  Status deregister(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                    const Secret& session);

  // Changes the peer's list of regions or services: adds or replaces the entries `publish`, and
  // removes the entries with the names `unpublish`. Makes all changes or none. Removing an absent
  // name is not an error. kNotFound and kAborted as for heartbeat().
  Status update_regions(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                        const Secret& session, std::span<const RegionInfo> publish,
                        std::span<const std::string> unpublish = {});
  Status update_services(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                         const Secret& session, std::span<const ServiceInfo> publish,
                         std::span<const std::string> unpublish = {});

  // Replaces the set of wanted links of the peer `name`: the peers to which its agent connects and
  // stays connected. `name` need not be registered. If it is registered, the caller needs the
  // peer's session or must be an administrator of the scope.
  Status set_links(std::string_view scope, std::string_view name, std::span<const std::string> targets,
                   const Secret& session = {});
  Result<std::vector<std::string>> get_links(std::string_view scope, std::string_view name);

  // Returns all links of a scope: the wanted links, and the connections that agents report to this
  // nanoctrl.
  Result<std::vector<LinkInfo>> list_links(std::string_view scope);

  // kNotFound when the name is not registered.
  Result<PeerInfo> get_peer(std::string_view scope, std::string_view name);
  Result<PeerList> list_peers(const PeerFilter& filter = {});
  // Returns services, ordered by the names of their peers. A non-empty `filter.name` selects the
  // peers that serve this service.
  Result<ServiceList> list_services(const ServiceFilter& filter = {});
  // `peer` empty: all peers.
  Result<std::vector<RegionEntry>> list_regions(std::string_view scope, std::string_view peer = {});
  // Waits up to `wait` (at most 30 s) for events after the revision `since`. Returns no events if
  // nothing changed in that time. kResourceExhausted: too many watches; poll with heartbeat()
  // instead, or try again later.
  Result<Changes> watch(std::string_view scope, std::uint64_t since, Nanos wait);
  Result<ServerStatus> server_status();
  // OK if nanoctrl answers. Needs no token.
  Status health();
  // Returns the scopes that the client's token may read, ordered by name.
  Result<std::vector<ScopeInfo>> list_scopes();
  // Returns one page of a backup, in JSON (store/backup.h). `after` is the `next` of the page
  // before; empty: the first page. All pages show the registry at one moment. Needs an
  // administrator of all scopes. kUnavailable: another backup is under way. kNotFound: the page was
  // requested too late.
  Result<std::string> backup_page(std::string_view after = {});

  // Makes a token and returns its text, which cannot be read again later. Needs an administrator of
  // the new token's scope.
  Result<TokenInfo> create_token(const TokenRequest& request);
  Result<std::vector<TokenInfo>> list_tokens();
  // kNotFound when there is no such token.
  Status revoke_token(std::string_view id);

  // Cancels the calls under way and waits until they have returned. Later calls return kCancelled.
  // Idempotent.
  void stop();
  [[nodiscard]] const std::string& url() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
