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
  // allows a non-loopback address with tokens and without TLS
  bool insecure_plaintext = false;
  RegistryOptions registry = {};  // epoch: the time of this start
  std::string store = "memory";   // or "sqlite:PATH": see open_engine()
  ApiOptions api = {};
  std::size_t threads = limits::kThreads;  // for requests under way; independent of connections
  TlsFiles tls = {};
  FrontLimits limits = {};
  [[nodiscard]] Status validate() const;
};

// nanoctrl: class Api behind an HTTP server. Thread: start() and stop() from one thread; the other
// functions from any thread, between start() and stop().
class Server {
 public:
  // Listens on the address, but starts no thread and answers no request before start(), so that the
  // program may fork in between. `clock` outlives the server. kInvalidArgument for invalid options;
  // kUnavailable when the address is in use.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options, const Clock& clock = steady_clock());
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Opens the store, then begins to answer requests. Returns the store's error if it cannot be
  // opened.
  Status start();
  // Answers the waiting watches, waits until the requests under way have ended, and closes all
  // connections. Waits up to a second for clients to read their last replies. Idempotent.
  void stop();

  // Reads the certificate files again. New connections get the new certificate; open connections
  // keep theirs. After an error, which names the file, the earlier certificate stays in use. Only
  // for a started server with TLS.
  Status reload_tls();
  // Replaces the administrator's token that ServerOptions::api contained. Only for a started server
  // whose options contained a token.
  void set_admin_token(TokenRecord token);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const std::string& store() const;
  [[nodiscard]] std::string url() const;  // "http://127.0.0.1:4479"; https with TLS
  // Returns the routes, which handle requests without HTTP. Tests with a manual clock call
  // Api::tick() to expire leases. Only for a started server.
  [[nodiscard]] Api& api();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns microseconds since 1970: an epoch for RegistryOptions that is larger at each start.
std::uint64_t wall_clock_epoch();

}  // namespace slime::ctrl
