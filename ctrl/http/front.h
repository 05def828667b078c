#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/http/codec.h"
#include "ctrl/http/tls.h"
#include "ctrl/limits.h"

namespace slime::ctrl {

// What the connections of one server may take.
struct FrontLimits {
  std::size_t connections = limits::kConnections;  // fewer where the process may not open as many files
  std::size_t buffered_bytes = limits::kBufferedBytes;
  std::size_t parked = limits::kParked;
  std::size_t parked_per_client = limits::kParkedPerClient;
  double requests_per_second = limits::kRequestsPerSecond;  // of one client address; 0: any number
  Nanos idle_time = limits::kIdleTime;
  Nanos request_time = limits::kRequestTime;
  Nanos reply_time = limits::kReplyTime;
  [[nodiscard]] Status validate() const;
};

struct FrontOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  std::size_t threads = limits::kThreads;
  TlsFiles tls = {};
  FrontLimits limits = {};
  [[nodiscard]] Status validate() const;
};

// Whether a request takes long, and much of a processor.
using IsScan = bool (*)(std::string_view method, std::string_view target);

// HTTP/1.1 before a handler. One thread with an event loop holds all connections; whole requests only go to
// the threads that run the handler, so neither idle nor slow clients hold one. A request that the handler
// parks waits without a thread either. Thread: start() and stop() from one; wake() and parked() from any.
class Front {
 public:
  // Listens, but does not answer yet and has no thread yet, so that a program may still fork.
  // kInvalidArgument, or kUnavailable when the address is in use. `handler` runs on several threads at once.
  static Result<std::unique_ptr<Front>> bind(FrontOptions options, ApiHandler handler,
                                             IsScan is_scan = nullptr);
  ~Front();  // stop()
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  void start();
  // Answers what is parked (503), finishes the requests under way, sends the replies for up to a second,
  // closes. Idempotent.
  void stop();

  // Reads the files of its certificate again, for new connections (TlsServer::reload()). Only with TLS.
  Status reload_tls();

  // Has the parked requests with this key handled again, and those that are about to be parked with it.
  // Never waits.
  void wake(std::string_view key);
  void wake_all();
  // How many requests are parked.
  [[nodiscard]] std::size_t parked() const;
  [[nodiscard]] std::size_t connections() const;
  // How many requests and connections were refused that no handler saw.
  [[nodiscard]] std::size_t refused() const;
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Impl;
  explicit Front(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl
