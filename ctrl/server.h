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
  std::uint16_t port = limits::kDefaultPort;  // 0: any free one
  bool insecure = false;                      // listen where others can reach it, without tokens
  bool insecure_plaintext = false;            // the same with tokens, but without TLS
  RegistryOptions registry = {};              // epoch: the time of this start
  std::string store = "memory";               // or "sqlite:PATH": see open_engine()
  ApiOptions api = {};
  std::size_t threads = limits::kThreads;  // for requests under way, however many connections there are
  TlsFiles tls = {};
  FrontLimits limits = {};
  [[nodiscard]] Status validate() const;
};

// nanoctrl: the API behind HTTP. Thread: start() and stop() from one; the rest from any, but after start()
// and before stop().
class Server {
 public:
  // Listens, but does not answer yet and has no thread yet, so that a program may still fork. `clock`
  // outlives the server. kInvalidArgument, or kUnavailable when the address is in use.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options, const Clock& clock = steady_clock());
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Opens the store, and answers from now on. Errors: the store's.
  Status start();
  // Ends the watches, finishes the requests under way, closes. Takes up to a second when somebody does not
  // take a reply. Idempotent.
  void stop();

  // Reads the files of its certificate again: new connections are shown what is in them, and no connection is
  // closed. With an error, which names the file, everything stays as it is. Of a started server with TLS.
  Status reload_tls();
  // Takes the place of the administrator's token that the options had. Of a started server that has one.
  void set_admin_token(TokenRecord token);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const std::string& store() const;
  [[nodiscard]] std::string url() const;  // "http://127.0.0.1:4479"; https with TLS
  // The routes without HTTP; expiry by hand for tests with a manual clock. Of a started server.
  [[nodiscard]] Api& api();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Microseconds since 1970: a RegistryOptions::epoch that a later start exceeds.
std::uint64_t wall_clock_epoch();

}  // namespace slime::ctrl
