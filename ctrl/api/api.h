#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/backup_pages.h"
#include "ctrl/api/metrics.h"
#include "ctrl/api/prober.h"
#include "ctrl/api/reports.h"
#include "ctrl/api/scan.h"
#include "ctrl/audit.h"
#include "ctrl/http/http.h"
#include "ctrl/http/rates.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/engine.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {

std::uint64_t unix_time_s();

struct ApiOptions {
  // Nobody gets in without a token. Else that is so once there are tokens.
  bool require_token = false;
  // One that is not of the registry, of all scopes and rights.
  std::optional<TokenRecord> admin_token = {};
  std::function<std::uint64_t()> unix_time_s = ctrl::unix_time_s;  // when tokens expire, and keys are due
  // How often scopes with peers get a new key, but not more than once in the registry's TTL, so that all
  // who beat as often as it wants have heard of each before it is used; zero: never.
  Nanos key_rotation = limits::kKeyRotation;
  std::size_t probes_max = limits::kProbes;
  double requests_per_second_of_token = limits::kTokenRequestsPerSecond;  // 0: any number
  // As long as nobody needs a token, only under names of this machine: else a web page that somebody here
  // looks at could ask by a name of its own that leads here, and be answered.
  bool only_loopback_names = false;
  Nanos watch_wait_max = limits::kWatchWaitMax;
  // For logs, and to wake the watches of the event's scope; called under the engine's lock, may be empty.
  std::function<void(const ScopedEvent&)> on_event = {};
  std::function<void()> on_reset = {};            // the logs of changes begin anew: watches look again
  std::function<std::size_t()> connections = {};  // how many there are; as above
  std::function<std::size_t()> refused = {};      // how many were, before they came here
  std::function<std::size_t()> parked = {};       // how many watches wait now; never blocks, may be empty
};

// nanoctrl's routes over one Registry. A watch without news is parked with its scope as the key. Thread: any,
// many at once; a registration blocks its thread for a probe.
class Api {
 public:
  // `clock` outlives this.
  Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  ApiReply handle(const ApiRequest& request);
  // A method and a path, in which a part in braces stands for any name: "/v1/peers/{name}".
  struct RouteName {
    std::string_view method;
    std::string_view path;
  };
  // All that there are. What has GET has HEAD too.
  static std::vector<RouteName> routes();
  // Whether it reads much: a list, a backup. Such a request may take milliseconds of a processor.
  static bool is_scan(std::string_view method, std::string_view target);
  // The answer for what goes wrong before a request reaches handle().
  static ApiReply error(int status, Code code, std::string message, std::string hint);

  // The token of ApiOptions::admin_token is this one from now on. Only where there was one.
  void set_admin_token(TokenRecord token);

  // Expires what is due, and rotates the keys that are. Returns how long until something may be due again.
  Nanos tick();
  [[nodiscard]] std::uint64_t epoch() const { return engine_->epoch(); }
  // Refuses requests from now on (503). Idempotent.
  void stop();

 private:
  class Query;   // api_query.h
  struct Call;   // api_query.h
  struct Route;  // api_query.h
  struct Match;  // api_query.h
  class Compat;  // compat_routes.cc
  using Lock = std::unique_lock<std::mutex>;
  using EncodePeer = std::function<void(const PeerView& peer, std::vector<std::string>& out)>;

  // `open`: of a route that needs no token.
  [[nodiscard]] Status check_names(const ApiRequest& request, bool open) const;
  [[nodiscard]] bool requires_token(const Registry& registry) const;
  [[nodiscard]] std::shared_ptr<const Tokens> admin() const {
    const std::lock_guard lock(admin_mutex_);
    return admin_;
  }
  Result<Principal> identify(const ApiRequest& request) const;
  Status take_turn(const Principal& principal);
  void note_refusal(const Call& call, const ApiReply& reply);
  static const std::vector<Route>& table();
  static std::vector<Route> compat_routes();  // those of DLSlime's NanoCtrl
  static Match match(std::string_view method, const std::vector<std::string>& path);
  ApiReply answer(const ApiRequest& request, const std::optional<Target>& target, const Match& match);
  ApiReply respond(const ApiRequest& request, const Target& target, const Match& match);
  ApiReply route(const Call& call, const Match& match);

  ApiReply health(Query& query);
  ApiReply readiness(Query& query);
  static ApiReply openapi(Query& query);
  static ApiReply page(const Call& call);
  ApiReply server_status(Query& query);
  ApiReply metrics(Query& query);
  ApiReply list_links(Query& query);
  class LinkList;  // api_links.cc
  // What the agents of a scope report that are there, after that name, without a lock, until the visitor
  // returns false. Returns the name to go on after when the budget is used up before the end.
  using ReportVisitor = std::function<bool(const Reports::View& agent)>;
  std::optional<std::string> visit_reports(const std::string& scope, std::string after,
                                           const ReportVisitor& visitor,
                                           std::size_t budget = std::numeric_limits<std::size_t>::max());
  ApiReply list_scopes(Query& query);
  ApiReply backup(Query& query);
  ApiReply heartbeats(Query& query, std::string_view body);
  ApiReply create_token(Query& query, std::string_view body);
  ApiReply list_tokens(Query& query);
  ApiReply revoke_token(Query& query, const std::string& id);
  ApiReply register_peer(Query& query, std::string_view body);
  ApiReply list_peers(Query& query);
  ApiReply list_services(Query& query);
  ApiReply list_regions(Query& query);
  ApiReply watch(Query& query, bool answer_now);
  ApiReply get_peer(Query& query, const std::string& name);
  ApiReply deregister(Query& query, const std::string& name, std::string_view session);
  ApiReply heartbeat(Query& query, const std::string& name, std::string_view body);
  ApiReply update_regions(Query& query, const std::string& name, std::string_view body, bool replace);
  ApiReply update_services(Query& query, const std::string& name, std::string_view body, bool replace);

  // api_keys.cc. The newest keys of scopes that a clock ahead of ours made, as of two looks at them all.
  class KeysAhead {
   public:
    void begin() { before_ = std::exchange(seen_, {}); }
    bool for_long(const std::string& scope, std::uint64_t id, TimePoint now, Nanos period);

   private:
    struct Seen {
      std::uint64_t id;
      TimePoint since;
    };
    std::map<std::string, Seen> before_, seen_;
  };
  Result<ScopeKeys> keys_for(const Principal& who, const std::string& scope, std::uint64_t have);
  [[nodiscard]] Status still_holds(const Registry& registry, const std::string& token,
                                   const ScopeKeys& keys) const;
  void rotate_keys();
  [[nodiscard]] Nanos key_period(const Registry& registry) const;
  [[nodiscard]] std::vector<RotateKeysCommand> due_rotations(const Registry& registry, std::uint64_t now);
  [[nodiscard]] RotateKeysCommand new_key(std::string scope, std::uint64_t replaces, bool alone) const;

  ApiReply get_links(Query& query, const std::string& name);
  ApiReply set_links(Query& query, const std::string& name, std::string_view body);
  ApiReply apply_update(const Command& command);
  // What the engine makes of a command that changes something, counted.
  Outcome submit(const Command& command);
  // One page of the peers in the query's scope; `encode` appends what each contributes, without a lock. It
  // may be empty and have a `next`, where many peers contribute nothing.
  // `only`: of that peer alone; empty: of all.
  ApiReply page(Query& query, std::string_view list, const EncodePeer& encode, const std::string& only = {});
  ProbeResult probe(const Holder& holder);
  // What is said of a name that another owner has now.
  void note_takeover(const RegisterCommand& command, const Lease& lease, const Holder& holder,
                     ProbeResult probed);

  const ApiOptions options_;
  const Clock& clock_;
  const Prober prober_;
  const TimePoint started_at_;
  mutable std::mutex admin_mutex_;
  std::shared_ptr<const Tokens> admin_;        // of the command line: one, or none
  std::array<std::mutex, 16> compat_mutexes_;  // by name; each record's changes one after another
  Metrics metrics_;
  Audit refusals_{Audit::kRefusals};
  Audit token_changes_{Audit::kChanges};
  Audit takeovers_{Audit::kChanges};
  Reports reports_{limits::kReportBytesTotal, limits::kReportBytesPerScope};
  BackupPages backups_;
  std::atomic<std::uint64_t> rotated_at_s_{0};  // when keys that are due were looked for
  std::mutex ahead_mutex_;                      // taken with the engine's
  KeysAhead ahead_;
  std::mutex rates_mutex_;
  Rates rates_;  // of the tokens
  std::mutex mutex_;
  std::size_t probes_ = 0;
  std::atomic<std::size_t> submitted_{0};  // and without an outcome
  bool stopped_ = false;
  const std::unique_ptr<Engine> engine_;  // behind what its threads tell of changes
  Scans scans_{*engine_};
};

}  // namespace slime::ctrl
