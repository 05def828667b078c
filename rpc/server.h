#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "rpc/service.h"

namespace slime::rpc {

class Account;

struct ServerOptions {
  // Threads of the handler pool, at least 1, started as requests need them.
  std::size_t workers = limits::kServerWorkers;
  // Requests that wait for a worker; one more: kResourceExhausted.
  std::size_t queue_limit = limits::kServerQueue;
};

struct ServerCounters {
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;    // full queue, draining
  std::uint64_t expired = 0;    // the deadline passed before a worker was free
  std::uint64_t cancelled = 0;  // cancelled before a worker was free
  std::size_t queued = 0;       // requests that wait for a worker or for memory
  std::size_t running = 0;
};

// Serves services to all channels that have this server; adds slime.Reflection and slime.Health
// (rpc/reflection.h). Thread: any.
class Server {
 public:
  explicit Server(ServerOptions options = {}, const Clock& clock = steady_clock());
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // stop()

  // Serves the methods of `service`. kAlreadyExists: a service with this name is served.
  // kInvalidArgument: a bad or reserved name ("slime.*"), or a service without methods.
  Status add(Service& service);
  // Removes a service: new calls answer kNotFound, running handlers finish.
  Status remove(std::string_view service);
  // Adds an interceptor (rpc/interceptor.h) after earlier ones, for later requests, including those
  // of slime.Reflection and slime.Health.
  void add_interceptor(std::shared_ptr<ServerInterceptor> interceptor);
  // Refuses new requests with kUnavailable, except those of slime.Health, and waits up to `bound`
  // for earlier requests. kDeadlineExceeded if some are left.
  Status drain(Nanos bound);
  // Refuses the waiting requests, then waits for the running handlers. On a thread of the pool it
  // returns at once, and another thread waits for the handlers. Idempotent.
  void stop();
  // True on a thread of this server's pool.
  [[nodiscard]] bool on_worker() const;
  [[nodiscard]] ServerCounters counters() const;

  // Returns kUnimplemented if the method is served and the hash of its signature (rpc/signature.h)
  // differs.
  [[nodiscard]] Status check_signature(std::string_view service, std::string_view method,
                                       std::uint64_t signature) const;
  [[nodiscard]] bool serves(std::string_view service, std::string_view method) const;

  // Caches the method of a request's names, for the next request with these names.
  struct Found {
    std::weak_ptr<Service::Method> method;
    std::uint64_t version = 0;  // of the set of services
  };
  // A large request whose body is still with its caller: first its place among the waiting
  // requests, then a worker and memory. The destructor gives these up. Thread: any, one at a time.
  class Place;
  // For channels. Asks for a place with `bytes` of the account, and with a worker if the method
  // runs on the pool. If Place::state() is kWaiting on return, `granted` is called once, later, on
  // any thread, when the place is granted or refused; never after the place is destroyed. Thread:
  // the channel's loop.
  std::shared_ptr<Place> reserve(const CallInfo& info, Found& found, std::shared_ptr<Account> account,
                                 std::uint64_t bytes, Task granted);

  // For channels. Runs or queues the request, or refuses it: kNotFound (the text says whether the
  // service or the method is unknown), kResourceExhausted, kUnavailable. Thread: the channel's
  // loop.
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
