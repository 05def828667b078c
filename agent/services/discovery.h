#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/registry/registrar.h"
#include "agent/services/server_pool.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/loop.h"

namespace slime::agent {

// A call that waits for an answer of the registry, or for the end of a pause.
class Waiting {
 public:
  // Called on the loop when the awaited answer has come, or the waiting time is over.
  virtual void go_on() noexcept = 0;

 protected:
  ~Waiting() = default;
};

// Keeps the ServerPool of each service that the agent calls, and the calls that wait for news from
// the registry. Asks the registry on the registrar's thread, and resumes calls on the loop. Thread:
// any, unless a function says otherwise.
class Discovery : public std::enable_shared_from_this<Discovery> {
 public:
  // Before use(), no service has servers. The registrar must outlive all requests to it.
  explicit Discovery(transport::Loop& loop) : loop_(loop) {}
  void use(Registrar& registrar) { registrar_ = &registrar; }
  [[nodiscard]] bool usable() const { return registrar_ != nullptr; }

  // Returns the pool of a service, which all proxies of the service share.
  std::shared_ptr<ServerPool> servers(const std::string& service);
  // Returns whether the directory has an entry for a peer of this name.
  [[nodiscard]] bool knows(std::string_view name) const;
  // Asks the registry for the current servers of a service. Returns the number of the answer, for
  // wait().
  std::uint64_t ask(const std::shared_ptr<ServerPool>& servers);
  void ask_if_due(const std::shared_ptr<ServerPool>& servers, TimePoint now);

  // Calls call->go_on() once: at `until`, or as soon as the answer with the number `answer` has
  // come. 0: waits for no answer. Thread: the loop.
  void wait(std::shared_ptr<Waiting> call, std::shared_ptr<ServerPool> servers, std::uint64_t answer,
            TimePoint until);
  // Ends the wait of `call`, if it waits: calls its go_on() now. Thread: the loop.
  void wake(const Waiting& call);
  // Wakes all waiting calls; a later wait() ends at once. Thread: the loop.
  void close();

  // Thread: the registrar's.
  void on_event(const ctrl::Event& event);
  void on_news(bool complete);
  // Notes that this agent's own services changed: the registry sends an agent no events about
  // itself.
  void note_change();

 private:
  struct Entry {
    std::shared_ptr<Waiting> call;
    std::shared_ptr<ServerPool> servers;
    std::uint64_t answer = 0;
    transport::TimerId timer;
  };
  void send(const std::shared_ptr<ServerPool>& servers);
  void answered(const ServerPool& servers);
  [[nodiscard]] std::vector<std::shared_ptr<ServerPool>> all() const;

  transport::Loop& loop_;
  Registrar* registrar_ = nullptr;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<ServerPool>, std::less<>> services_ SLIME_GUARDED_BY(mutex_);
  // Used on the loop only.
  std::map<const Waiting*, Entry> waiting_;
  bool closed_ = false;
};

}  // namespace slime::agent
