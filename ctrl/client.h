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
  // "http://127.0.0.1:4479"; several as "https://a:4479,https://b:4479": when one is unavailable the next is
  // asked, and stays the first one to ask.
  std::string url;
  std::string token =
      {};  // what nanoctrl token create printed; sent with each request, never shown; empty: none
  Nanos connect_timeout = std::chrono::seconds(2);
  Nanos timeout = std::chrono::seconds(5);  // of a request after connecting; a watch adds its wait
  std::string ca_file = {};  // PEM, for https: who vouches for the server; empty: those the system knows
  [[nodiscard]] Status validate() const;
};

// A session for Client::register_peer(): 256 random bits.
Secret new_session();

struct PeerFilter {
  std::string scope = "default";
  std::string kind = {};  // empty: all
  Labels labels = {};     // of its metadata, all of them
};

struct PeerList {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;  // ask for changes since here
  std::vector<PeerInfo> peers;
};

// A service or region with the peer that has it.
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
  std::string kind = {};  // empty: all
  std::string name = {};  // empty: all
  Labels labels = {};     // all of them
  std::optional<Health> health = {};
};

// As of one moment for each page of it.
struct ServiceList {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  std::vector<ServiceEntry> services;
};

// A peer, as its owner speaks of it.
struct PeerRef {
  std::string name;
  std::uint64_t incarnation = 0;
  Secret session = {};
};
struct LostPeer {
  std::string name;
  // Or kAborted: somebody else has the name now. Or kPermissionDenied: the session is not its owner's.
  Code code = Code::kNotFound;
};
// What heartbeats of many peers brought.
struct Heartbeats {
  Changes changes;
  std::vector<LostPeer> lost;  // the others' leases were renewed
};

struct ScopeInfo {
  std::string scope;
  std::uint64_t revision = 0;
  std::uint64_t peers = 0;
  std::uint64_t services = 0;
  std::uint64_t regions = 0;
  std::uint64_t links = 0;         // that are wanted
  std::uint64_t record_bytes = 0;  // about what its peers and wanted links take in nanoctrl's memory
  std::uint64_t peers_max = 0;     // its limits; 0: an older nanoctrl, which does not tell
  std::uint64_t record_bytes_max = 0;
};

// A link that is wanted, or that its agent says it has.
struct LinkInfo {
  std::string from, to;
  bool wanted = false;
  bool both_there = false;           // registered now
  std::optional<LinkReport> report;  // with `from`'s last heartbeat, if it tells that
};

struct TokenRequest {
  Role role = Role::kJoin;
  std::string scope = "default";  // "*": all
  std::string note = {};
  std::uint64_t expires_in_s = 0;  // 0: never
};
// A token as lists show it, and, of a new one only, its text: what its bearer sends.
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

// nanoctrl's HTTP API as blocking calls. One connection is kept open between calls; where it has gone in the
// meantime the request is sent again on a new one, which is fine because they are idempotent; those about
// tokens are not, and have a connection each. Thread: any, several at once; never a loop's thread.
//
// Errors of every call, besides those named: kUnavailable: nobody answers, or nanoctrl is shutting down
// (maybe_executed() tells whether the request may have arrived); kDeadlineExceeded: connected, but no answer
// in time; kUnauthenticated: the server's certificate is not one to trust; kResourceExhausted: a limit of the
// server, the text says which; kCancelled after stop(); kInvalidArgument: the text names the field; kCorrupt:
// the answer is not nanoctrl's.
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();  // stop()
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Registers, or registers again: the same instance with the same session keeps its incarnation and replaces
  // its record. A name of another owner that lives is kAlreadyExists, unless `takeover`: then the holder
  // loses the name. `session`: new_session(), the same in each registration of one owner, so that one whose
  // answer was lost can be repeated; empty: nanoctrl makes one. The lease has it either way.
  Result<Lease> register_peer(const Registration& registration, const Secret& session = {},
                              bool takeover = false);
  // The calls below speak for a peer with the session of its registration; kPermissionDenied when the record
  // has another.
  // Renews the lease. With `keys_have`, the newest_id() of the keys that the peer has, the scope's are
  // returned when they are others. With `since` returns the scope's changes after that revision, else none.
  // kNotFound: not registered (nanoctrl restarted, or the lease ran out): register again. kAborted: somebody
  // else has the name now: do not.
  Result<Changes> heartbeat(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                            const Secret& session, std::optional<std::uint64_t> since = {},
                            const std::optional<Report>& report = {},
                            std::optional<std::uint64_t> keys_have = {});
  // The same for many peers of one scope, 1,000 at most.
  Result<Heartbeats> heartbeats(std::string_view scope, std::span<const PeerRef> peers,
                                std::optional<std::uint64_t> since = {});
  // Removes the record if it is still ours. kNotFound and kAborted as above: either way it is gone.
  // An administrator of the scope needs no session.
  Status deregister(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                    const Secret& session);

  // Adds or replaces, by name, and removes; all or nothing. Removing what is not there is fine. kNotFound and
  // kAborted as in heartbeat().
  Status update_regions(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                        const Secret& session, std::span<const RegionInfo> publish,
                        std::span<const std::string> unpublish = {});
  Status update_services(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                         const Secret& session, std::span<const ServiceInfo> publish,
                         std::span<const std::string> unpublish = {});

  // Who a peer should be connected to; its agent opens those connections and keeps them. The whole set; the
  // peer need not be registered; of one that is, this takes its session, or an administrator of the scope.
  Status set_links(std::string_view scope, std::string_view name, std::span<const std::string> targets,
                   const Secret& session = {});
  Result<std::vector<std::string>> get_links(std::string_view scope, std::string_view name);

  // All that are wanted in a scope, or reported to this nanoctrl.
  Result<std::vector<LinkInfo>> list_links(std::string_view scope);

  // kNotFound when the name is not registered.
  Result<PeerInfo> get_peer(std::string_view scope, std::string_view name);
  Result<PeerList> list_peers(const PeerFilter& filter = {});
  // In the order of the peers' names. One of a name: who serves it.
  Result<ServiceList> list_services(const ServiceFilter& filter = {});
  // `peer` empty: all.
  Result<std::vector<RegionEntry>> list_regions(std::string_view scope, std::string_view peer = {});
  // Waits up to `wait` (at most 30 s) for a change after `since`; no events when there was none.
  // kResourceExhausted when too many watch: poll with heartbeats instead, or come back later.
  Result<Changes> watch(std::string_view scope, std::uint64_t since, Nanos wait);
  Result<ServerStatus> server_status();
  // Whether it answers, which takes no token.
  Status health();
  // Those that the token may see, in the order of their names.
  Result<std::vector<ScopeInfo>> list_scopes();
  // One page of all that nanoctrl keeps, in JSON (store/backup.h): the first, or the one that an earlier page
  // names as its next. All are of one moment. For administrators of all scopes. kUnavailable while another
  // backup is under way; kNotFound when the pages were not asked for in time.
  Result<std::string> backup_page(std::string_view after = {});

  // For administrators of the token's scope. The text of the new token is told here and never again.
  Result<TokenInfo> create_token(const TokenRequest& request);
  Result<std::vector<TokenInfo>> list_tokens();
  // kNotFound when there is no such token.
  Status revoke_token(std::string_view id);

  // Ends the calls under way and refuses later ones (kCancelled). Returns when none is under way. Idempotent.
  void stop();
  [[nodiscard]] const std::string& url() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
