#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ctrl/store/redis_url.h"

struct addrinfo;
struct ssl_ctx_st;
struct ssl_st;

namespace slime::ctrl::redis {

// Ends the waits of a connection from another thread, by breaking the connection. Thread: any.
class Interrupt {
 public:
  // Breaks the current connection. Does nothing if there is none.
  void kick();
  // Breaks the current and each later connection.
  void cancel();

 private:
  friend class Socket;
  void attach(int fd);
  void detach();
  Mutex mutex_;
  int fd_ SLIME_GUARDED_BY(mutex_) = -1;
  bool cancelled_ SLIME_GUARDED_BY(mutex_) = false;
};

// A TCP connection, plain or with TLS 1.2 or newer. Each wait has a timeout. Errors: kUnavailable;
// kInvalidArgument for a certificate or key file that cannot be used. Thread: one at a time, with
// SIGPIPE blocked.
class Socket {
 public:
  // Connects; with TLS, verifies that the server's certificate matches the address. The timeout
  // does not limit the resolution of the host name. `interrupt` outlives this socket.
  static Result<std::unique_ptr<Socket>> open(const Address& address, Nanos timeout, Interrupt& interrupt);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  Status write(std::string_view data);  // writes all of it
  // waits for at least one byte; returns the number of bytes read
  Result<std::size_t> read(std::span<char> out);

 private:
  struct FreeContext {
    void operator()(ssl_ctx_st* context) const;
  };
  struct FreeTls {
    void operator()(ssl_st* tls) const;
  };
  explicit Socket(Interrupt& interrupt) : interrupt_(interrupt) {}
  Status connect(const Address& address, Nanos timeout);
  Status connect_to(const addrinfo& at, Nanos timeout);
  Status wait_at_most(Nanos timeout);
  Status start_tls(const Address& address);
  Status tls_error(int result);
  Status tls_refused(int result);

  Interrupt& interrupt_;
  UniqueFd fd_;
  std::unique_ptr<ssl_ctx_st, FreeContext> context_;
  std::unique_ptr<ssl_st, FreeTls> tls_;
  bool heard_ = false;  // received something after the handshake
};

}  // namespace slime::ctrl::redis
