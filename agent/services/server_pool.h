#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/connecting/named_peer.h"
#include "agent/service_proxy.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/result.h"
#include "ctrl/client.h"

namespace slime::agent {

// A process that serves a service. `name` and `instance` never change; the ServerPool's mutex
// guards the other members.
struct PooledServer {
  const std::string name;
  const InstanceId instance;
  const std::shared_ptr<NamedPeer> peer = std::make_shared<NamedPeer>(name);
  std::uint64_t incarnation = 0;
  std::string address{};
  std::vector<std::string> methods{};  // sorted; empty: the server does not list its methods
  std::size_t in_flight = 0;           // calls of this agent
  std::uint64_t calls = 0;             // calls of this agent so far
  TimePoint avoided_until{};
  Status failure{};        // why it is avoided
  TimePoint kept_until{};  // time until which an unlisted server is kept
  // Ejections since the server's last answer. After an ejection, calls are tried one at a time
  // until the server answers one.
  std::uint32_t ejections = 0;
  TimePoint ejected_at{};
  TimePoint trial_began{};  // start of the trial call; zero: no trial
  TimePoint answered_at{};  // time of its last answer
};

// The server that a sticky proxy without a key uses.
struct Favorite {
  std::string name;
};

// The servers of one service that this agent knows, and the choice of the server for a call. All
// proxies of the service share one pool. No I/O, clock or thread of its own. Requests to the
// registry and their answers are numbered: a call that needs the current servers waits for the
// answer with the number of its request. Thread: any.
class ServerPool {
 public:
  using List = std::vector<std::shared_ptr<PooledServer>>;

  ServerPool(std::string service, std::uint64_t seed);

  [[nodiscard]] const std::string& service() const { return service_; }

  // ---- choosing
  struct Wish {
    Balance policy = Balance::kRoundRobin;
    std::string_view key{};
    Favorite* favorite = nullptr;     // for kSticky without a key; guarded by this pool
    const List* tried = nullptr;      // not these
    std::string_view must_have = {};  // not empty: only servers that list this method
  };
  // Picks a server and counts a call that begins now. Returns null if there is no server. Picks an
  // avoided server, or a server with a trial call in flight, only if there is no other.
  std::shared_ptr<PooledServer> pick(const Wish& wish, TimePoint now);
  // Ends the call that pick() counted. `answered`: the server answered the call, with any status.
  void release(PooledServer& server, TimePoint began, bool answered, TimePoint now);
  // Ejects a server after a timeout. Does nothing if the server answered another call since
  // `began`.
  void eject(PooledServer& server, const Status& failure, TimePoint began, TimePoint now);
  void avoid(PooledServer& server, const Status& failure, TimePoint until);
  enum class Says { kYes, kNo, kNothing };
  // Returns whether the server lists the method.
  [[nodiscard]] Says says(const PooledServer& server, std::string_view method) const;

  // ---- knowing
  struct Question {
    std::uint64_t number = 0;
    // send it now; else a request is in flight, and this one is sent after the answer
    bool to_send = false;
  };
  // Notes that a call needs the current servers. Returns the request for whose answer the call
  // waits.
  Question want();
  // Returns the number of the last request that was answered.
  [[nodiscard]] std::uint64_t answered() const;
  // Takes the answer to the request in flight. After an error the known servers stay. Returns true
  // if the caller must send another request now.
  bool answer(Result<ctrl::ServiceList> list, TimePoint now);
  // Returns whether to request the list while calls go on: the list may be outdated, no request is
  // in flight, and the last answer is not too recent.
  [[nodiscard]] bool due(TimePoint now) const;
  // Returns whether the list is missing or so old that a call must wait for a new one.
  [[nodiscard]] bool old(TimePoint now) const;
  // Take news of the registry. on_event(): another agent changed. on_news(): `complete` says that
  // all changes up to now were reported, which confirms the list. note_change(): this agent itself
  // changed.
  void on_event(const ctrl::Event& event);
  void on_news(bool complete, TimePoint now);
  void note_change();

  // Returns a random time from half of `span` to all of it.
  Nanos jittered(Nanos span);
  // Returns what the registry last said: "lists 2: a, b", "lists none", or "does not answer (...);
  // ...".
  [[nodiscard]] std::string knowledge() const;
  [[nodiscard]] std::vector<PooledServer> view() const;

 private:
  template <class Admit>
  std::shared_ptr<PooledServer> choose(const Wish& wish, const Admit& admit) SLIME_REQUIRES(mutex_);
  template <class Admit>
  std::shared_ptr<PooledServer> by_key(std::string_view key, const Admit& admit) const SLIME_REQUIRES(mutex_);
  void replace(const ctrl::ServiceList& list, TimePoint now) SLIME_REQUIRES(mutex_);
  [[nodiscard]] TimePoint known_at() const SLIME_REQUIRES(mutex_) {
    return std::max(confirmed_at_, answered_at_);
  }

  const std::string service_;
  mutable Mutex mutex_;
  Rng rng_ SLIME_GUARDED_BY(mutex_);
  List list_ SLIME_GUARDED_BY(mutex_);  // by name
  std::size_t next_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t asked_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t sent_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t answered_ SLIME_GUARDED_BY(mutex_) = 0;
  bool known_ SLIME_GUARDED_BY(mutex_) = false;  // an answer has come, perhaps an error
  bool changed_ SLIME_GUARDED_BY(mutex_) = false;
  TimePoint answered_at_ SLIME_GUARDED_BY(mutex_){};
  TimePoint confirmed_at_ SLIME_GUARDED_BY(mutex_){};
  std::uint64_t epoch_ SLIME_GUARDED_BY(mutex_) = 0;
  Status error_ SLIME_GUARDED_BY(mutex_);  // of the last answer
};

}  // namespace slime::agent
