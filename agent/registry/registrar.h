#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "agent/registry/directory.h"
#include "agent/registry/keyring.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/result.h"
#include "base/secret.h"
#include "ctrl/client.h"

namespace slime::agent {

enum class RegistryState : std::uint8_t {
  kRegistered,
  kUnreachable,  // nanoctrl does not answer; connections and calls go on
  kFenced,       // another process has the name
  kClosed,
};
std::string_view registry_state_name(RegistryState state);

struct RegistryView {
  RegistryState state = RegistryState::kRegistered;
  std::string url;
  Status last_error;
  std::uint64_t incarnation = 0;
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  Nanos ttl{};
  std::uint64_t heartbeats = 0;
  std::uint64_t registrations = 0;
  std::uint64_t newest_key = 0;  // id; 0: no keys
};

struct RegistrarOptions {
  ctrl::ClientOptions client;  // the registrar sets its timeouts
  ctrl::Registration self;     // without services and regions
  Nanos heartbeat{};           // interval; zero: as the registry asks
  // Returns the report for the next heartbeat, or nothing. Called on the registrar's thread; must
  // not wait. Empty: no reports.
  std::function<std::optional<ctrl::Report>()> report{};
  // receives the keys of the scope; null: the registrar asks for no keys
  std::shared_ptr<Keyring> keyring = nullptr;
  // Called on the registrar's thread, or from start(), when the keyring has changed.
  std::function<void()> on_keys{};
};

// Talks to nanoctrl for an agent: one thread keeps the lease, announces services and regions, takes
// changes and looks names up. No other part of an agent waits for HTTP, and no established
// connection depends on nanoctrl. Thread: any; functions that wait must not be called on a loop.
class Registrar {
 public:
  // Called on the registrar's thread.
  using EventHandler = std::function<void(const ctrl::Event&)>;
  using LookupHandler = UniqueFunction<void(Result<DirectoryEntry>)>;
  using ServiceHandler = UniqueFunction<void(Result<ctrl::ServiceList>)>;
  // Called on the registrar's thread after an answer of nanoctrl. `complete`: every change up to
  // now was reported as an event, so cached entries are valid; otherwise changes may have been
  // missed.
  using NewsHandler = UniqueFunction<void(bool complete)>;

  // Receives the peers that this agent should be connected to: at each registration, and when the
  // set changes. Called on the registrar's thread.
  using LinksHandler = std::function<void(std::vector<std::string> names)>;

  // Registers the agent, and waits for the answer. Errors: kUnavailable if nanoctrl cannot be
  // reached, kAlreadyExists if the name is taken.
  static Result<std::unique_ptr<Registrar>> start(RegistrarOptions options, EventHandler on_event,
                                                  NewsHandler on_news, LinksHandler on_links);
  ~Registrar();  // like close(), but does not deregister
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  [[nodiscard]] const Directory& directory() const { return directory_; }
  // Asks the registry for the entry of `name`. `handler` runs on the registrar's thread. If too
  // many requests wait, it runs in the caller's thread, with an error.
  void look_up(const std::string& name, LookupHandler handler);
  // Like look_up(), for the servers of a service.
  void look_up_service(const std::string& service, ServiceHandler handler);

  // Asks for newer keys with a heartbeat, unless a heartbeat has begun after this call. `handler`
  // runs as in look_up(), after success and failure.
  void refresh_keys(UniqueFunction<void()> handler);

  // Change what the registry shows of this agent. The change is announced as soon as possible, and
  // again if the registry loses its state. Return the number of the change, for wait_announced().
  std::uint64_t put_service(ctrl::ServiceInfo service);
  std::uint64_t put_region(ctrl::RegionInfo region);
  std::uint64_t drop_regions(const std::vector<std::string>& names);
  // Waits, at most for `bound`, until the registry has the change or an attempt to announce it
  // failed.
  void wait_announced(std::uint64_t change, Nanos bound);

  // Ends the thread, then deregisters; both within `bound`. Idempotent.
  Status close(Nanos bound);
  // Returns true on the thread that calls the handlers.
  [[nodiscard]] bool on_thread() const { return thread_.get_id() == std::this_thread::get_id(); }
  [[nodiscard]] RegistryView view() const;

 private:
  // Asks the registry and passes the answer to a handler. If `refused` is an error, asks nothing
  // and passes that error.
  using Question = UniqueFunction<void(Status refused)>;
  // Changes that are not announced yet, by name; nullopt: the name was removed.
  struct Changes {
    std::map<std::string, std::optional<ctrl::RegionInfo>> regions;
    std::map<std::string, std::optional<ctrl::ServiceInfo>> services;
    [[nodiscard]] bool empty() const { return regions.empty() && services.empty(); }
  };

  Registrar(RegistrarOptions options, std::unique_ptr<ctrl::Client> client, Secret session,
            EventHandler on_event, NewsHandler on_news, LinksHandler on_links);
  // Records that `info` is announced under `info.name` from now on. Returns the number of the
  // change.
  template <class Info>
  std::uint64_t put(std::map<std::string, Info>& announced,
                    std::map<std::string, std::optional<Info>>& changed, Info&& info) SLIME_REQUIRES(mutex_);
  void run();
  void ask(Question question);
  Result<DirectoryEntry> find(const std::string& name);
  Result<ctrl::ServiceList> find_service(const std::string& service);
  void beat();
  std::optional<ctrl::Report> next_report();
  void look_up_links();
  void announce();
  Status send_changes(const Changes& changes);
  Status register_again();
  void took_lease(const ctrl::Lease& lease);
  void apply(const ctrl::Changes& changes);
  void tell_keys(bool changed) const;
  // Handles the failure of a request: sets the state and the time of the next attempt.
  void failed(Status status);
  void enter(RegistryState state, Status reason);
  void stop_thread();
  [[nodiscard]] Nanos jittered(Nanos span);

  const RegistrarOptions options_;
  // sent with all registrations of this agent: proves that they have one owner
  const Secret session_;
  const std::unique_ptr<ctrl::Client> client_;
  const EventHandler on_event_;
  NewsHandler on_news_;
  const LinksHandler on_links_;
  bool links_changed_ = false;  // used by the thread only
  Directory directory_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ SLIME_GUARDED_BY(mutex_) = false;
  std::deque<Question> questions_ SLIME_GUARDED_BY(mutex_);
  std::map<std::string, ctrl::RegionInfo> regions_ SLIME_GUARDED_BY(mutex_);
  std::map<std::string, ctrl::ServiceInfo> services_ SLIME_GUARDED_BY(mutex_);
  Changes changes_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t last_change_ SLIME_GUARDED_BY(mutex_) = 0;
  // the registry has all changes up to this number
  std::uint64_t announced_ SLIME_GUARDED_BY(mutex_) = 0;
  // an attempt to announce has included all changes up to this number
  std::uint64_t tried_ SLIME_GUARDED_BY(mutex_) = 0;
  RegistryView view_ SLIME_GUARDED_BY(mutex_);

  // Used by the thread only.
  ctrl::Lease lease_;
  Nanos interval_{};
  TimePoint next_beat_{};
  TimePoint last_beat_{};  // start of the last heartbeat
  TimePoint next_announcement_{};
  Nanos retry_{};
  std::optional<ctrl::Report> told_;  // the last report that nanoctrl received
  int beats_since_told_ = 0;
  Rng rng_;

  Mutex close_mutex_;
  bool closed_ SLIME_GUARDED_BY(close_mutex_) = false;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace slime::agent
