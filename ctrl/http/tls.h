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

// Returns the first OpenSSL error of this thread, which is the most specific, and clears the queue.
std::string take_tls_error();

// Makes a key file with a passphrase an error: OpenSSL would ask on the terminal.
void ask_no_passphrase(ssl_ctx_st* context);

// PEM files of a server: its certificate followed by the intermediate certificates, and its private
// key.
struct TlsFiles {
  std::string certificate = {};  // both empty: no TLS
  std::string key = {};
  [[nodiscard]] bool enabled() const { return !certificate.empty() || !key.empty(); }
  // kInvalidArgument when one of the two is missing.
  [[nodiscard]] Status validate() const;
};

// The server's side of TLS 1.2 and newer. Thread: any.
class TlsServer {
 public:
  // kInvalidArgument with the file and the problem.
  static Result<std::unique_ptr<TlsServer>> create(const TlsFiles& files);
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // Reads the files again: new connections use the new files, existing connections keep theirs. On
  // an error, as of create(), nothing changes.
  Status reload();
  // Returns the context for a new connection, which keeps it alive.
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
  kAgain,   // nothing possible now; wait for the next event of the socket
  kClosed,  // the peer has closed, or the connection is broken
  kNotTls,  // from handshake(): the peer does not speak TLS
};

// One accepted connection, plain or with TLS, that never blocks. Thread: one, with SIGPIPE blocked.
class FrontSocket {
 public:
  // `tls` outlives this; null: plain.
  FrontSocket(UniqueFd fd, const TlsServer* tls);
  FrontSocket(FrontSocket&&) noexcept = default;
  FrontSocket& operator=(FrontSocket&&) noexcept = delete;
  ~FrontSocket() = default;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Returns kDone at once for a plain connection. After kNotTls the connection is plain.
  Io handshake();
  // After kAgain from handshake(): returns whether the handshake waits for room in the socket.
  [[nodiscard]] bool wants_room() const { return wants_room_; }
  // Reads at most out.size() bytes; kDone with `size` set to their number.
  Io read(std::span<char> out, std::size_t& size);
  Io write(std::string_view data, std::size_t& size);
  // Announces the end of the data sent.
  void shut_down();
  // Reads and discards input; kDone with `size` set to the number of bytes.
  Io discard(std::span<char> scratch, std::size_t& size);

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  Io result_of(int result);

  UniqueFd fd_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool wants_room_ = false;
  bool looked_ = false;  // the first byte was checked to be a handshake's
};

}  // namespace slime::ctrl
