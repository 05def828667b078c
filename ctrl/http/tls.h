#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

struct ssl_ctx_st;
struct ssl_st;

namespace slime::ctrl {

// The first of OpenSSL's errors of this thread, whose later ones say the same with less; none are left.
std::string take_tls_error();

// A key file with a passphrase is an error, and nobody is asked for it: the terminal may be somebody else's.
void ask_no_passphrase(ssl_ctx_st* context);

// What a server shows to its clients, in PEM: its certificate, then those of the authorities between it and
// one that clients know; and its private key.
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
  // kInvalidArgument, with the file and what is wrong with it.
  static Result<std::unique_ptr<TlsServer>> create(const TlsFiles& files);
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // Reads the files again: connections from now on are shown what is in them, earlier ones keep what they
  // have. With an error, as of create(), nothing changes.
  Status reload();
  // What a new connection is made of, and keeps alive.
  [[nodiscard]] std::shared_ptr<ssl_ctx_st> get() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }

 private:
  TlsServer(TlsFiles files, std::shared_ptr<ssl_ctx_st> context)
      : files_(std::move(files)), context_(std::move(context)) {}

  const TlsFiles files_;
  mutable std::mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_;
};

enum class Io {
  kDone,
  kAgain,   // nothing now; the next event of the socket may change that
  kClosed,  // the other end has closed, or the connection is broken
  kNotTls,  // of a handshake: the other end does not speak TLS
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
  // kDone at once for a plain one. After kNotTls it is plain.
  Io handshake();
  // Of a handshake that was last kAgain: it has more to send than there was room for.
  [[nodiscard]] bool wants_room() const { return wants_room_; }
  // At most out.size() bytes; kDone with `size` of them.
  Io read(std::span<char> out, std::size_t& size);
  Io write(std::string_view data, std::size_t& size);
  // Says that nothing more will come.
  void shut_down();
  // Reads what still comes and throws it away; kDone with how much.
  Io discard(std::span<char> scratch, std::size_t& size);

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  Io result_of(int result);

  UniqueFd fd_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool wants_room_ = false;
  bool looked_ = false;  // the first byte is that of a handshake
};

}  // namespace slime::ctrl
