#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/service_proxy.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/result.h"
#include "ctrl/client.h"

namespace slime::agent {

// A process that serves a service. Its name and instance stay; its ServerPool guards the rest.
struct PooledServer {
  const std::string name;
  const InstanceId instance;
  std::uint64_t incarnation = 0;
  std::string address{};
  std::vector<std::string> methods{};  // sorted; empty: the server does not list its methods
  std::size_t in_flight = 0;           // calls of this agent
  std::uint64_t calls = 0;             // calls of this agent so far
  TimePoint avoided_until{};
  Status failure{};        // why it is avoided
  TimePoint kept_until{};  // time until which an unlisted server is kept
  // Ejections since the last answer. After an ejection one trial call at a time goes to the
  // server, until it answers.
  std::uint32_t ejections = 0;
  TimePoint ejected_at{};
  TimePoint trial_began{};  // begin of the trial call; zero: no trial
  TimePoint answered_at{};  // time of its last answer
};

// The server that a sticky proxy without a key uses.
struct Favorite {
  std::string name;
};

// The servers of one service that this agent knows, and the choice of the next one: the state that
// all proxies of the service share, without I/O, clock or thread. Requests to the registry and
// their answers are numbered, so a call that needs the current servers waits for the number of its
// request. Thread: any.
class ServerPool {
 public:
  using List = std::vector<std::shared_ptr<PooledServer>>;

  ServerPool(std::string service, std::uint64_t seed);

  [[nodiscard]] const std::string& service() const { return service_; }

  // ---- choosing
  struct Wish {
    Balance policy = Balance::kRoundRobin;
    std::string_view key{};
    Favorite* favorite = nullptr;     // of kSticky without a key; guarded by this object
    const List* tried = nullptr;      // not these
    std::string_view must_have = {};  // only servers that list this method; empty: all
  };
  // Picks a server and counts a call that begins now. Null if there is none. Picks an avoided
  // server, or one with a trial call in flight, only if there is no other.
  std::shared_ptr<PooledServer> pick(const Wish& wish, TimePoint now);
  // Ends the call that pick() counted. `answered`: the server answered the call, with any status.
  void release(PooledServer& server, TimePoint began, bool answered, TimePoint now);
  // Ejects a server after a timeout. Does nothing if it answered another call since `began`.
  void eject(PooledServer& server, const Status& failure, TimePoint began, TimePoint now);
  void avoid(PooledServer& server, const Status& failure, TimePoint until);
  enum class Says { kYes, kNo, kNothing };
  // Returns whether the server lists the method.
  [[nodiscard]] Says says(const PooledServer& server, std::string_view method) const;

  // ---- knowing
  struct Question {
    std::uint64_t number = 0;
    bool to_send = false;  // send now; else one is in flight, and the next is sent after its answer
  };
  // Notes that a call needs the current servers. Returns the request for whose answer the call
  // waits.
  Question want();
  // Returns the number of the last request that was answered.
  [[nodiscard]] std::uint64_t answered() const;
  // Takes the answer to the request in flight; an error changes no server. Returns true if another
  // request must be sent now.
  bool answer(Result<ctrl::ServiceList> list, TimePoint now);
  // Returns whether the list may be outdated, so that a request beside the calls is due. Limits how
  // often.
  [[nodiscard]] bool due(TimePoint now) const;
  // Returns whether the list is so old, or missing, that a call waits for an answer.
  [[nodiscard]] bool old(TimePoint now) const;
  // Take news of the registry: a change by another agent; whether all changes up to now were
  // reported (`complete`), which confirms the list; and a change by this agent itself.
  void on_event(const ctrl::Event& event);
  void on_news(bool complete, TimePoint now);
  void note_change();

  // Returns a random span between half of `span` and `span`.
  Nanos jittered(Nanos span);
  // Returns what the registry last said: "lists 2: a, b", "lists none", "did not answer: ...".
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
  bool known_ SLIME_GUARDED_BY(mutex_) = false;  // there was an answer, if only an error
  bool changed_ SLIME_GUARDED_BY(mutex_) = false;
  TimePoint answered_at_ SLIME_GUARDED_BY(mutex_){};
  TimePoint confirmed_at_ SLIME_GUARDED_BY(mutex_){};
  std::uint64_t epoch_ SLIME_GUARDED_BY(mutex_) = 0;
  Status error_ SLIME_GUARDED_BY(mutex_);  // of the last answer
};

}  // namespace slime::agent
