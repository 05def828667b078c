#include "ctrl/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/str.h"

namespace slime::ctrl {
namespace {

constexpr char kHandshakeRecord = 0x16;

Status file_error(std::string_view what, const std::string& path) {
  return {Code::kInvalidArgument, str(what, " '", path, "': ", take_tls_error())};
}

}  // namespace

std::string take_tls_error() {
  const unsigned long error = ::ERR_get_error();
  ::ERR_clear_error();
  // OpenSSL has no text for system errors, such as a missing file.
  if (ERR_SYSTEM_ERROR(error)) return std::generic_category().message(ERR_GET_REASON(error));
  const char* const text = error == 0 ? nullptr : ::ERR_reason_error_string(error);
  return text == nullptr ? "no reason given" : text;
}

void ask_no_passphrase(ssl_ctx_st* context) {
  ::SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
}

Status TlsFiles::validate() const {
  if (certificate.empty() != key.empty())
    return {Code::kInvalidArgument, certificate.empty() ? "TLS needs a certificate file beside the key file"
                                                        : "TLS needs a key file beside the certificate file"};
  return {};
}

namespace {

Result<std::shared_ptr<SSL_CTX>> make_context(const TlsFiles& files) {
  SLIME_TRY(files.validate());
  ::ERR_clear_error();
  std::shared_ptr<SSL_CTX> out(::SSL_CTX_new(::TLS_server_method()), ::SSL_CTX_free);
  SSL_CTX* const context = out.get();
  if (context == nullptr) return Status(Code::kInternal, str("TLS: ", take_tls_error()));
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ask_no_passphrase(context);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Allows a partial write to continue from a buffer at another address, and frees the buffers of
  // idle connections.
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // clients keep sessions, in
                                                                  // tickets
  if (::SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return file_error("cannot use the certificate file", files.certificate);
  if (::SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return file_error("cannot use the key file", files.key);
  if (::SSL_CTX_check_private_key(context) != 1)
    return Status(Code::kInvalidArgument,
                  str("the key file '", files.key, "' does not belong to the certificate file '",
                      files.certificate, "': ", take_tls_error()));
  return out;
}

}  // namespace

Result<std::unique_ptr<TlsServer>> TlsServer::create(const TlsFiles& files) {
  Result<std::shared_ptr<SSL_CTX>> context = make_context(files);
  if (!context) return context.error();
  return std::unique_ptr<TlsServer>(new TlsServer(files, std::move(*context)));
}

Status TlsServer::reload() {
  Result<std::shared_ptr<SSL_CTX>> context = make_context(files_);
  if (!context) return context.error();
  const MutexLock lock(mutex_);
  context_.swap(*context);
  return {};
}

void FrontSocket::Free::operator()(ssl_st* ssl) const { ::SSL_free(ssl); }

FrontSocket::FrontSocket(UniqueFd fd, const TlsServer* tls) : fd_(std::move(fd)) {
  if (tls == nullptr) return;
  ssl_.reset(::SSL_new(tls->get().get()));
  if (ssl_ == nullptr || ::SSL_set_fd(ssl_.get(), fd_.get()) != 1) {
    ssl_.reset();
    fd_.reset();  // never fall back to plaintext
    return;
  }
  ::SSL_set_accept_state(ssl_.get());
}

Io FrontSocket::result_of(int result) {
  const int error = ::SSL_get_error(ssl_.get(), result);
  ::ERR_clear_error();
  wants_room_ = error == SSL_ERROR_WANT_WRITE;
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? Io::kAgain : Io::kClosed;
}

Io FrontSocket::handshake() {
  if (!fd_.valid()) return Io::kClosed;
  if (ssl_ == nullptr) return Io::kDone;
  if (!looked_) {
    char first = 0;
    const ssize_t n = ::recv(fd_.get(), &first, 1, MSG_PEEK);
    if (n == 0) return Io::kClosed;
    if (n < 0) return errno == EAGAIN || errno == EINTR ? Io::kAgain : Io::kClosed;
    if (first != kHandshakeRecord) {
      ssl_.reset();
      return Io::kNotTls;
    }
    looked_ = true;
  }
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  return result == 1 ? Io::kDone : result_of(result);
}

Io FrontSocket::read(std::span<char> out, std::size_t& size) {
  if (ssl_ == nullptr) return discard(out, size);
  ::ERR_clear_error();
  const int result = ::SSL_read_ex(ssl_.get(), out.data(), out.size(), &size);
  return result == 1 ? Io::kDone : result_of(result);
}

Io FrontSocket::discard(std::span<char> scratch, std::size_t& size) {
  const ssize_t n = ::recv(fd_.get(), scratch.data(), scratch.size(), 0);
  if (n == 0) return Io::kClosed;
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Io::kAgain : Io::kClosed;
  size = static_cast<std::size_t>(n);
  return Io::kDone;
}

Io FrontSocket::write(std::string_view data, std::size_t& size) {
  if (ssl_ != nullptr) {
    ::ERR_clear_error();
    const int result = ::SSL_write_ex(ssl_.get(), data.data(), data.size(), &size);
    return result == 1 ? Io::kDone : result_of(result);
  }
  const ssize_t n = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Io::kAgain : Io::kClosed;
  size = static_cast<std::size_t>(n);
  return Io::kDone;
}

void FrontSocket::shut_down() {
  if (ssl_ != nullptr) {
    ::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
  }
  ::shutdown(fd_.get(), SHUT_WR);
}

}  // namespace slime::ctrl
