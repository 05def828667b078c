#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

struct ssl_ctx_st;
struct ssl_st;

namespace slime::ctrl {

// Returns the text of this thread's first OpenSSL error, which is the most specific. Clears the
// thread's queue of errors.
std::string take_tls_error();

// Makes loading a key file that has a passphrase fail. Otherwise OpenSSL would ask for the
// passphrase on the terminal.
void ask_no_passphrase(ssl_ctx_st* context);

// Paths of a server's PEM files: its certificate followed by the intermediate certificates, and its
// private key.
struct TlsFiles {
  std::string certificate = {};  // both empty: no TLS
  std::string key = {};
  [[nodiscard]] bool enabled() const { return !certificate.empty() || !key.empty(); }
  // Returns kInvalidArgument when only one of the two paths is set.
  [[nodiscard]] Status validate() const;
};

// The OpenSSL context of a server (its certificate and key) for TLS 1.2 or newer. Thread: any.
class TlsServer {
 public:
  // kInvalidArgument with the file and the problem.
  static Result<std::unique_ptr<TlsServer>> create(const TlsFiles& files);
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // Reads the files again, for new connections; open connections keep their certificate. After an
  // error (see create()), new connections get the earlier certificate too.
  Status reload();
  // Returns the OpenSSL context for a new connection. The connection shares its ownership.
  [[nodiscard]] std::shared_ptr<ssl_ctx_st> get() const {
    const MutexLock lock(mutex_);
    return context_;
  }

 private:
  TlsServer(TlsFiles files, std::shared_ptr<ssl_ctx_st> context)
      : files_(std::move(files)), context_(std::move(context)) {}

  const TlsFiles files_;
  mutable Mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_ SLIME_GUARDED_BY(mutex_);
};

enum class Io {
  kDone,
  // the socket is not ready; wait for its next event
  kAgain,
  kClosed,  // the peer has closed the connection, or the connection is broken
  kNotTls,  // only from handshake(): the peer does not speak TLS
};

// One accepted connection, plain or TLS. No function blocks. Thread: one, with SIGPIPE blocked.
class FrontSocket {
 public:
  // `tls` outlives this; null: plain.
  FrontSocket(UniqueFd fd, const TlsServer* tls);
  FrontSocket(FrontSocket&&) noexcept = default;
  FrontSocket& operator=(FrontSocket&&) noexcept = delete;
  ~FrontSocket() = default;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Continues the TLS handshake; a plain connection returns kDone at once. After kNotTls, the
  // connection is used as a plain connection.
  Io handshake();
  // After handshake() has returned kAgain: returns whether it waits until the socket is writable,
  // and not until it is readable.
  [[nodiscard]] bool wants_room() const { return wants_room_; }
  // Reads at most out.size() bytes. After kDone, `size` is the number of bytes read.
  Io read(std::span<char> out, std::size_t& size);
  Io write(std::string_view data, std::size_t& size);
  // Announces the end of the data sent.
  void shut_down();
  // Reads input into `scratch` and discards it. After kDone, `size` is the number of bytes
  // discarded.
  Io discard(std::span<char> scratch, std::size_t& size);

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  Io result_of(int result);

  UniqueFd fd_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool wants_room_ = false;
  // true: the client's first byte was checked to begin a TLS handshake
  bool looked_ = false;
};

}  // namespace slime::ctrl
