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
  // most connections; lowered if the process may open fewer files
  std::size_t connections = limits::kConnections;
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

// Function that returns whether a request uses much processor time.
using IsScan = bool (*)(std::string_view method, std::string_view target);

// An HTTP/1.1 server in front of a handler. One thread with an event loop holds all connections,
// and passes only complete requests to the threads that run the handler. So idle and slow clients,
// and parked requests, occupy no thread. Thread: start() and stop() from one thread; wake() and
// parked() from any.
class Front {
 public:
  // Listens on the address, but starts no thread and answers no request before start(), so that the
  // program may fork in between. kInvalidArgument for invalid options; kUnavailable when the
  // address is in use. `handler` is called on several threads at once.
  static Result<std::unique_ptr<Front>> bind(FrontOptions options, ApiHandler handler,
                                             IsScan is_scan = nullptr);
  ~Front();  // stop()
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  void start();
  // Answers parked requests with 503, and waits until the requests under way have ended. Sends the
  // last replies for up to a second, then closes all connections. Idempotent.
  void stop();

  // Reads the certificate files again, for use in new connections (TlsServer::reload()).
  // kInvalidArgument without TLS.
  Status reload_tls();

  // Lets the requests parked under `key` be handled again, also a request whose handler is just
  // deciding to park. Never blocks.
  void wake(std::string_view key);
  void wake_all();
  // The number of parked requests.
  [[nodiscard]] std::size_t parked() const;
  [[nodiscard]] std::size_t connections() const;
  // Returns the number of requests and connections that were refused without a call of the handler.
  [[nodiscard]] std::size_t refused() const;
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Impl;
  explicit Front(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
