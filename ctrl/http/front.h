#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/http/answer.h"
#include "ctrl/http/tls.h"
#include "ctrl/limits.h"

namespace slime::ctrl {

// Limits of the connections of one server.
struct FrontLimits {
  std::size_t connections = limits::kConnections;  // lowered to the process' limit of open files
  std::size_t buffered_bytes = limits::kBufferedBytes;
  std::size_t parked = limits::kParked;
  std::size_t parked_per_client = limits::kParkedPerClient;
  double requests_per_second = limits::kRequestsPerSecond;  // per client address; 0: no limit
  Nanos idle_time = limits::kIdleTime;
  Nanos request_time = limits::kRequestTime;
  Nanos reply_time = limits::kReplyTime;
  [[nodiscard]] Status validate() const;
};

struct FrontOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  std::size_t threads = limits::kThreads;
  TlsFiles tls = {};
  FrontLimits limits = {};
  [[nodiscard]] Status validate() const;
};

// Returns whether a request uses much processor time.
using IsScan = bool (*)(std::string_view method, std::string_view target);

// HTTP/1.1 in front of a handler. One thread with an event loop holds all connections; only
// complete requests go to the threads that run the handler, so neither idle nor slow clients occupy
// a thread. A parked request occupies none either. Thread: start() and stop() from one thread;
// wake() and parked() from any.
class Front {
 public:
  // Listens, but does not answer and starts no thread yet, so that the program may still fork.
  // kInvalidArgument; kUnavailable when the address is in use. `handler` runs on several threads at
  // once.
  static Result<std::unique_ptr<Front>> bind(FrontOptions options, ApiHandler handler,
                                             IsScan is_scan = nullptr);
  ~Front();  // stop()
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  void start();
  // Answers parked requests with 503, finishes the requests under way, sends the replies for up to
  // a second, closes. Idempotent.
  void stop();

  // Reads the certificate files again, for new connections (TlsServer::reload()). Only with TLS.
  Status reload_tls();

  // Handles the requests parked under this key again, and those that are just being parked under
  // it. Never blocks.
  void wake(std::string_view key);
  void wake_all();
  // The number of parked requests.
  [[nodiscard]] std::size_t parked() const;
  [[nodiscard]] std::size_t connections() const;
  // The number of requests and connections refused before the handler.
  [[nodiscard]] std::size_t refused() const;
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Impl;
  explicit Front(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
