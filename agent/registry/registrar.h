#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "agent/registry/directory.h"
#include "agent/registry/keyring.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/random.h"
#include "base/result.h"
#include "base/secret.h"
#include "ctrl/client.h"

namespace slime::agent {

enum class RegistryState : std::uint8_t {
  kRegistered,
  kUnreachable,  // nanoctrl does not answer; connections and calls go on
  kFenced,       // another process has the name now
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
  std::uint64_t newest_key = 0;  // its id; 0: there are none
};

struct RegistrarOptions {
  ctrl::ClientOptions client;  // its timeouts are the registrar's
  ctrl::Registration self;     // without services and regions
  Nanos heartbeat{};           // zero: as the registry asks
  // What to tell with the next heartbeat, if there is something; asked on the registrar's thread, and not to
  // wait there. Empty: nothing is told.
  std::function<std::optional<ctrl::Report>()> report{};
  // What the keys of the scope are put into; null: they are not wanted.
  std::shared_ptr<Keyring> keyring = nullptr;
  // Called on the registrar's thread, or from start(), when the keyring has other keys than before.
  std::function<void()> on_keys{};
};

// An agent's dealings with nanoctrl: one thread that keeps the lease, announces services and regions, hears
// of changes and looks names up. Nothing else in an agent waits for HTTP, and no established connection waits
// for this. Thread: any; not from a loop's callback where it says that it waits.
class Registrar {
 public:
  // Called on the registrar's thread.
  using EventHandler = std::function<void(const ctrl::Event&)>;
  using LookupHandler = UniqueFunction<void(Result<DirectoryEntry>)>;
  using ServiceHandler = UniqueFunction<void(Result<ctrl::ServiceList>)>;
  // What this agent may still believe, called on the registrar's thread: `complete`: every change up to now
  // has been told as an event; else some may have been missed.
  using NewsHandler = UniqueFunction<void(bool complete)>;

  // Who this agent should be connected to: at each registration, and when that changes. On the registrar's
  // thread.
  using LinksHandler = std::function<void(std::vector<std::string> names)>;

  // Registers, and waits for it: kUnavailable when nanoctrl cannot be reached, kAlreadyExists when the name
  // is taken.
  static Result<std::unique_ptr<Registrar>> start(RegistrarOptions options, EventHandler on_event,
                                                  NewsHandler on_news, LinksHandler on_links);
  ~Registrar();  // close() without the goodbye
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  [[nodiscard]] const Directory& directory() const { return directory_; }
  // Asks the registry; `handler` runs on the registrar's thread, or here when there are too many.
  void look_up(const std::string& name, LookupHandler handler);
  // The same for who serves a service.
  void look_up_service(const std::string& service, ServiceHandler handler);

  // A heartbeat, unless one has begun since: it may bring newer keys. `handler` as above, whatever came of
  // it.
  void refresh_keys(UniqueFunction<void()> handler);

  // What the registry is to show; announced as soon as it can be, and again whenever it forgot. The returned
  // number is for wait_announced().
  std::uint64_t put_service(ctrl::ServiceInfo service);
  std::uint64_t put_region(ctrl::RegionInfo region);
  std::uint64_t drop_regions(const std::vector<std::string>& names);
  // Waits until the registry knows, or an attempt to tell it has failed.
  void wait_announced(std::uint64_t change, Nanos bound);

  // Ends the thread, then says goodbye to the registry; both within `bound`. Idempotent.
  Status close(Nanos bound);
  // True on the thread that calls the handlers.
  [[nodiscard]] bool on_thread() const { return thread_.get_id() == std::this_thread::get_id(); }
  [[nodiscard]] RegistryView view() const;

 private:
  // Asks the registry and tells who wants to know; with an error it only tells that.
  using Question = UniqueFunction<void(Status refused)>;
  // What was changed and not announced: by name, what it is now; nothing: it is gone.
  struct Changes {
    std::map<std::string, std::optional<ctrl::RegionInfo>> regions;
    std::map<std::string, std::optional<ctrl::ServiceInfo>> services;
    [[nodiscard]] bool empty() const { return regions.empty() && services.empty(); }
  };

  Registrar(RegistrarOptions options, std::unique_ptr<ctrl::Client> client, Secret session,
            EventHandler on_event, NewsHandler on_news, LinksHandler on_links);
  // Notes what is announced under `info.name` from now on. Returns the number of the change.
  template <class Info>
  std::uint64_t put(std::map<std::string, Info>& announced,
                    std::map<std::string, std::optional<Info>>& changed, Info&& info);
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
  // Sorts out why a request failed, and when to go on.
  void failed(Status status);
  void enter(RegistryState state, Status reason);
  void stop_thread();
  [[nodiscard]] Nanos jittered(Nanos span);

  const RegistrarOptions options_;
  const Secret session_;  // of all registrations of this agent: proves that they are of one owner
  const std::unique_ptr<ctrl::Client> client_;
  const EventHandler on_event_;
  NewsHandler on_news_;
  const LinksHandler on_links_;
  bool links_changed_ = false;  // the thread's
  Directory directory_;

  mutable std::mutex mutex_;  // guards what follows, up to the thread's own
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<Question> questions_;
  std::map<std::string, ctrl::RegionInfo> regions_;
  std::map<std::string, ctrl::ServiceInfo> services_;
  Changes changes_;
  std::uint64_t last_change_ = 0;
  std::uint64_t announced_ = 0;  // changes up to here are known to the registry
  std::uint64_t tried_ = 0;      // changes up to here have been in an attempt
  RegistryView view_;

  // The thread's own.
  ctrl::Lease lease_;
  Nanos interval_{};
  TimePoint next_beat_{};
  TimePoint last_beat_{};  // when the last one began
  TimePoint next_announcement_{};
  Nanos retry_{};
  std::optional<ctrl::Report> told_;  // what nanoctrl has heard last
  int beats_since_told_ = 0;
  Rng rng_;

  std::mutex close_mutex_;
  bool closed_ = false;
  std::thread thread_;  // last: it touches everything above
};

}  // namespace slime::agent
