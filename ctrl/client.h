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
  // One server, "http://127.0.0.1:4479", or several, "https://a:4479,https://b:4479". When a server
  // is unavailable, the client asks the next server and stays with it.
  std::string url;
  // The token as printed by `nanoctrl token create`; empty: no token. Sent with each request, never
  // logged.
  std::string token = {};
  Nanos connect_timeout = std::chrono::seconds(2);
  Nanos timeout = std::chrono::seconds(5);  // of a request, after connecting; a watch adds its wait
  std::string ca_file = {};                 // PEM file of CA certificates for https; empty: the system's CAs
  [[nodiscard]] Status validate() const;
};

// Returns a new session for Client::register_peer(): 256 random bits.
Secret new_session();

struct PeerFilter {
  std::string scope = "default";
  std::string kind = {};  // empty: any kind
  Labels labels = {};     // the peer's metadata must contain all of these
};

struct PeerList {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;  // pass to watch() or heartbeat() to get later changes
  std::vector<PeerInfo> peers;
};

// A service or region, with the peer that offers it.
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

// The services of one page are of one moment; different pages may be of different moments.
struct ServiceList {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  std::vector<ServiceEntry> services;
};

// A peer, as its owner names it in heartbeats().
struct PeerRef {
  std::string name;
  std::uint64_t incarnation = 0;
  Secret session = {};
};
struct LostPeer {
  std::string name;
  // kNotFound; kAborted: another instance owns the name now; kPermissionDenied: wrong session.
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
  std::uint64_t links = 0;         // wanted links
  std::uint64_t record_bytes = 0;  // approximate memory of its peers and wanted links in nanoctrl
  std::uint64_t peers_max = 0;     // the scope's limits; 0: an older nanoctrl does not report them
  std::uint64_t record_bytes_max = 0;
};

// A link that is wanted, or that its agent reports.
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
// A token as lists show it. `token`, the text that a client sends, is set for a new token only.
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

// nanoctrl's HTTP API as blocking calls. Keeps one connection open between calls. When that
// connection was closed meanwhile, sends the request again on a new connection; all requests allow
// this, because they are idempotent, except those about tokens, which use a new connection each.
// Thread: any, several calls at once; never a loop's thread.
//
// Errors of every call, in addition to those documented at the call:
// - kUnavailable: no connection, or nanoctrl is shutting down (maybe_executed() tells whether the
//   request may have arrived);
// - kDeadlineExceeded: connected, but no reply in time;
// - kUnauthenticated: the server's certificate is not trusted;
// - kResourceExhausted: a limit of the server; the text says which limit;
// - kCancelled: after stop();
// - kInvalidArgument: the text names the field;
// - kCorrupt: the reply is not nanoctrl's.
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();  // stop()
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Registers a peer, or registers it again: the same instance with the same session keeps its
  // incarnation and replaces its record. kAlreadyExists when another live instance has the name,
  // unless `takeover`: then that instance loses the name. `session`: new_session(), the same in
  // each registration by one owner, so that a registration whose reply was lost can be repeated;
  // empty:
  // nanoctrl makes a session. The returned lease holds the session in both cases.
  Result<Lease> register_peer(const Registration& registration, const Secret& session = {},
                              bool takeover = false);
  // The calls below prove with the session of the registration that they come from the peer's
  // owner; kPermissionDenied when the record has another session.
  //
  // Renews the lease. With `keys_have` (newest_id() of the keys that the peer has), also returns
  // the scope's keys if they differ. With `since`, also returns the scope's changes after that
  // revision. kNotFound: not registered (nanoctrl restarted, or the lease expired); register again.
  // kAborted:
  // another instance owns the name now; do not register again.
  Result<Changes> heartbeat(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                            const Secret& session, std::optional<std::uint64_t> since = {},
                            const std::optional<Report>& report = {},
                            std::optional<std::uint64_t> keys_have = {});
  // Renews the leases of up to 1,000 peers of one scope.
  Result<Heartbeats> heartbeats(std::string_view scope, std::span<const PeerRef> peers,
                                std::optional<std::uint64_t> since = {});
  // Removes the record if this incarnation still owns it. kNotFound and kAborted as in heartbeat():
  // the caller's record is gone in both cases. An administrator of the scope needs no session.
  Status deregister(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                    const Secret& session);

  // Adds or replaces entries by name, and removes others; all or nothing. Removing an absent entry
  // is not an error. kNotFound and kAborted as in heartbeat().
  Status update_regions(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                        const Secret& session, std::span<const RegionInfo> publish,
                        std::span<const std::string> unpublish = {});
  Status update_services(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                         const Secret& session, std::span<const ServiceInfo> publish,
                         std::span<const std::string> unpublish = {});

  // Sets the peers that `name` should be connected to, replacing the earlier set; the agent `name`
  // opens those connections and keeps them. `name` need not be registered; if it is, this needs its
  // session or an administrator of the scope.
  Status set_links(std::string_view scope, std::string_view name, std::span<const std::string> targets,
                   const Secret& session = {});
  Result<std::vector<std::string>> get_links(std::string_view scope, std::string_view name);

  // Returns all links of a scope: those that are wanted, and those that agents report to this
  // nanoctrl.
  Result<std::vector<LinkInfo>> list_links(std::string_view scope);

  // kNotFound when the name is not registered.
  Result<PeerInfo> get_peer(std::string_view scope, std::string_view name);
  Result<PeerList> list_peers(const PeerFilter& filter = {});
  // Returns services in the order of their peers' names. `filter.name` selects one service's peers.
  Result<ServiceList> list_services(const ServiceFilter& filter = {});
  // `peer` empty: all peers.
  Result<std::vector<RegionEntry>> list_regions(std::string_view scope, std::string_view peer = {});
  // Waits up to `wait` (at most 30 s) for a change after `since`; returns no events when nothing
  // changed. kResourceExhausted with too many watches: poll with heartbeats instead, or try again
  // later.
  Result<Changes> watch(std::string_view scope, std::uint64_t since, Nanos wait);
  Result<ServerStatus> server_status();
  // OK if nanoctrl answers. Needs no token.
  Status health();
  // Returns the scopes that the token may read, in the order of their names.
  Result<std::vector<ScopeInfo>> list_scopes();
  // Returns one page of a backup, in JSON (store/backup.h): the first page, or the page that an
  // earlier page names in `next`. All pages are of one moment. For administrators of all scopes.
  // kUnavailable while another backup is under way; kNotFound when the next page was not requested
  // in time.
  Result<std::string> backup_page(std::string_view after = {});

  // For administrators of the token's scope. Returns the new token's text, which is never shown
  // again.
  Result<TokenInfo> create_token(const TokenRequest& request);
  Result<std::vector<TokenInfo>> list_tokens();
  // kNotFound when there is no such token.
  Status revoke_token(std::string_view id);

  // Cancels the calls under way and refuses later calls (kCancelled). Returns when no call is under
  // way. Idempotent.
  void stop();
  [[nodiscard]] const std::string& url() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
