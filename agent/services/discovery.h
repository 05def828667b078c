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

// A call that waits for an answer of the registry, or for a while.
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
  // Without a registrar, no service has servers. The registrar must outlive all requests to it.
  explicit Discovery(transport::Loop& loop) : loop_(loop) {}
  void use(Registrar& registrar) { registrar_ = &registrar; }
  [[nodiscard]] bool usable() const { return registrar_ != nullptr; }

  // The same for all proxies of a service.
  std::shared_ptr<ServerPool> servers(const std::string& service);
  // Whether the registry, as far as is known, has a peer of that name.
  [[nodiscard]] bool knows(std::string_view name) const;
  // Asks the registry for the servers of now. Returns the number of the answer.
  std::uint64_t ask(const std::shared_ptr<ServerPool>& servers);
  void ask_if_due(const std::shared_ptr<ServerPool>& servers, TimePoint now);

  // Loop. Calls go_on() once: in a later turn, when `until` has come, or that answer (0: none is
  // waited for).
  void wait(std::shared_ptr<Waiting> call, std::shared_ptr<ServerPool> servers, std::uint64_t answer,
            TimePoint until);
  // Loop. Lets it go on now, if it waits.
  void wake(const Waiting& call);
  // Loop. Wakes all, now and from now on.
  void close();

  // The registrar's thread.
  void on_event(const ctrl::Event& event);
  void on_news(bool complete);
  // This agent's own services have changed, of which it gets no event.
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
  // The loop's.
  std::map<const Waiting*, Entry> waiting_;
  bool closed_ = false;
};

}  // namespace slime::agent
