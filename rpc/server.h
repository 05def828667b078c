#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "rpc/service.h"

namespace slime::rpc {

class Account;

struct ServerOptions {
  // Most threads of the handler pool, at least 1. Threads are started when requests need them.
  std::size_t workers = limits::kServerWorkers;
  // Most requests that wait for a worker. A further request is refused with kResourceExhausted.
  std::size_t queue_limit = limits::kServerQueue;
};

struct ServerCounters {
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;    // full queue, draining
  std::uint64_t expired = 0;    // requests whose deadline passed before a worker was free
  std::uint64_t cancelled = 0;  // cancelled before a worker was free
  std::size_t queued = 0;       // requests that wait for a worker or for memory now
  std::size_t running = 0;
};

// Serves the added services to all channels that were created with this server. Also serves
// slime.Reflection and slime.Health (rpc/reflection.h). Thread: any.
class Server {
 public:
  explicit Server(ServerOptions options = {}, const Clock& clock = steady_clock());
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // stop()

  // Serves the methods of `service`. kAlreadyExists: a service with this name is served already.
  // kInvalidArgument: a bad or reserved name ("slime.*"), or a service without methods.
  Status add(Service& service);
  // Removes a service: new calls are answered with kNotFound; running handlers finish.
  Status remove(std::string_view service);
  // Adds an interceptor (rpc/interceptor.h) after the interceptors that were added earlier. It sees
  // later requests, including those of slime.Reflection and slime.Health.
  void add_interceptor(std::shared_ptr<ServerInterceptor> interceptor);
  // Refuses new requests with kUnavailable, except those of slime.Health, and waits up to `bound`
  // until earlier requests are answered. kDeadlineExceeded if some are not answered by then.
  Status drain(Nanos bound);
  // Refuses the waiting requests, then waits until the running handlers have returned. If called on
  // a thread of the pool, returns at once, and another thread waits. May be called again.
  void stop();
  // Returns true if the calling thread belongs to this server's pool.
  [[nodiscard]] bool on_worker() const;
  [[nodiscard]] ServerCounters counters() const;

  // Returns kUnimplemented if the method is served with a signature (rpc/signature.h) whose hash is
  // not `signature`; otherwise OK.
  [[nodiscard]] Status check_signature(std::string_view service, std::string_view method,
                                       std::uint64_t signature) const;
  [[nodiscard]] bool serves(std::string_view service, std::string_view method) const;

  // Caches the method that was found for the names of a request, for later requests with equal
  // names.
  struct Found {
    std::weak_ptr<Service::Method> method;
    std::uint64_t version = 0;  // of the set of services
  };
  // A large request whose body is still in the caller's memory. A Place first waits in the queue of
  // requests, then holds a worker and memory for the request. The destructor gives up both. Thread:
  // any, one at a time.
  class Place;
  // Used by channels. Asks for a Place with `bytes` of memory from `account`, and with a worker if
  // the method runs on the pool. If Place::state() is kWaiting on return, `granted` is called once,
  // later, on any thread, when the place is granted or refused; but never after the place is
  // destroyed. Thread: the channel's loop.
  std::shared_ptr<Place> reserve(const CallInfo& info, Found& found, std::shared_ptr<Account> account,
                                 std::uint64_t bytes, Task granted);

  // Used by channels. Runs or queues the request, or refuses it with kNotFound (the text says
  // whether the service or the method is unknown), kResourceExhausted or kUnavailable. Thread: the
  // channel's loop.
  void handle(Request&& request, Found& found) noexcept;
  void handle(Request request) noexcept {
    Found nothing;
    handle(std::move(request), nothing);
  }

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace slime::rpc
