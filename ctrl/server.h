#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/api/api.h"
#include "ctrl/http/front.h"
#include "ctrl/limits.h"

namespace slime::ctrl {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = limits::kDefaultPort;  // 0: any free port
  bool insecure = false;                      // allows a non-loopback address without tokens
  bool insecure_plaintext = false;            // allows a non-loopback address with tokens but no TLS
  RegistryOptions registry = {};              // epoch: the time of this start
  std::string store = "memory";               // or "sqlite:PATH": see open_engine()
  ApiOptions api = {};
  std::size_t threads = limits::kThreads;  // for requests under way; independent of connections
  TlsFiles tls = {};
  FrontLimits limits = {};
  [[nodiscard]] Status validate() const;
};

// nanoctrl: the API behind HTTP. Thread: start() and stop() from one thread; the other functions
// from any thread, between start() and stop().
class Server {
 public:
  // Listens, but does not answer and starts no thread yet, so that the program may still fork.
  // `clock` outlives the server. kInvalidArgument; kUnavailable when the address is in use.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options, const Clock& clock = steady_clock());
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Opens the store and begins to answer. Errors: the store's.
  Status start();
  // Ends the watches, finishes the requests under way, closes. Takes up to a second when a client
  // does not take its reply. Idempotent.
  void stop();

  // Reads the certificate files again: new connections get the new certificate, open connections
  // stay. On an error, which names the file, nothing changes. For a started server with TLS.
  Status reload_tls();
  // Replaces the administrator's token of ServerOptions::api. For a started server that has one.
  void set_admin_token(TokenRecord token);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const std::string& store() const;
  [[nodiscard]] std::string url() const;  // "http://127.0.0.1:4479"; https with TLS
  // The routes without HTTP. Tests with a manual clock expire leases through it. For a started
  // server.
  [[nodiscard]] Api& api();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Microseconds since 1970: a RegistryOptions::epoch that grows from one start to the next.
std::uint64_t wall_clock_epoch();

}  // namespace slime::ctrl
