#include "ctrl/store/redis_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/address.h"
#include "base/str.h"
#include "ctrl/http/tls.h"

namespace slime::ctrl::redis {
namespace {

Status unavailable(std::string text) { return {Code::kUnavailable, std::move(text)}; }

// Converts an errno value to a Status. All kinds of timeouts get the same text.
Status from_socket(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == ETIMEDOUT) return unavailable("it does not answer");
  return unavailable(std::generic_category().message(error));
}

Status closed() { return unavailable("it has closed the connection"); }

timeval to_timeval(Nanos span) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(span).count();
  return {static_cast<time_t>(micros / 1'000'000), static_cast<suseconds_t>(micros % 1'000'000)};
}

Status unusable(std::string_view what, const std::string& file) {
  return {Code::kInvalidArgument, str("cannot use the ", what, " '", file, "': ", take_tls_error())};
}

}  // namespace

void Interrupt::kick() {
  const MutexLock lock(mutex_);
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::attach(int fd) {
  const MutexLock lock(mutex_);
  fd_ = fd;
  if (cancelled_) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::detach() {
  const MutexLock lock(mutex_);
  fd_ = -1;
}

void Socket::FreeContext::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }
void Socket::FreeTls::operator()(ssl_st* tls) const { ::SSL_free(tls); }

Result<std::unique_ptr<Socket>> Socket::open(const Address& address, Nanos timeout, Interrupt& interrupt) {
  std::unique_ptr<Socket> out(new Socket(interrupt));
  SLIME_TRY(out->connect(address, timeout));
  if (address.tls) SLIME_TRY(out->start_tls(address));
  return out;
}

Socket::~Socket() {
  if (fd_.valid()) interrupt_.detach();  // before the descriptor's number is reused
}

Status Socket::connect(const Address& address, Nanos timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), str(address.port).c_str(), &hints, &found);
  if (error != 0) return unavailable(::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  const TimePoint end = steady_clock().now() + timeout;
  Status status = unavailable("its name has no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    status = connect_to(*at, std::max(end - steady_clock().now(), Nanos::zero()));
    if (status.ok()) return wait_at_most(timeout);
  }
  return status;
}

Status Socket::connect_to(const addrinfo& at, Nanos timeout) {
  if (fd_.valid()) interrupt_.detach();
  fd_ = UniqueFd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_.valid()) return from_socket(errno);
  if (::connect(fd_.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    fd_.reset();
    return from_socket(error);
  }
  interrupt_.attach(fd_.get());
  pollfd wait{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, static_cast<int>(ms));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return from_socket(ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof error;
  if (ready < 0 || ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
    return from_socket(errno);
  return error == 0 ? Status() : from_socket(error);
}

// Makes the socket blocking, with this timeout.
Status Socket::wait_at_most(Nanos timeout) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  const timeval most = to_timeval(timeout);
  const int on = 1;
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) != 0 ||
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0 ||
      ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return from_socket(errno);
  return {};
}

Status Socket::start_tls(const Address& address) {
  take_tls_error();
  context_.reset(::SSL_CTX_new(::TLS_client_method()));
  if (context_ == nullptr) return {Code::kInternal, str("TLS: ", take_tls_error())};
  SSL_CTX* const context = context_.get();
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ask_no_passphrase(context);
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const bool trusts = address.ca_file.empty()
                          ? ::SSL_CTX_set_default_verify_paths(context) == 1
                          : ::SSL_CTX_load_verify_locations(context, address.ca_file.c_str(), nullptr) == 1;
  if (!trusts) return unusable("CA file", address.ca_file);
  if (!address.certificate_file.empty()) {
    if (::SSL_CTX_use_certificate_chain_file(context, address.certificate_file.c_str()) != 1)
      return unusable("certificate file", address.certificate_file);
    if (::SSL_CTX_use_PrivateKey_file(context, address.key_file.c_str(), SSL_FILETYPE_PEM) != 1)
      return unusable("key file", address.key_file);
  }
  tls_.reset(::SSL_new(context));
  if (tls_ == nullptr || ::SSL_set_fd(tls_.get(), fd_.get()) != 1)
    return {Code::kInternal, str("TLS: ", take_tls_error())};
  const bool is_number =
      SocketAddress::numeric({address.host, address.port}).has_value() && address.host != "localhost";
  const int named = is_number
                        ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls_.get()), address.host.c_str())
                        : ::SSL_set1_host(tls_.get(), address.host.c_str());
  if (named != 1 || (!is_number && ::SSL_set_tlsext_host_name(tls_.get(), address.host.c_str()) != 1))
    return {Code::kInvalidArgument, str("TLS: ", take_tls_error())};
  errno = 0;
  const int result = ::SSL_connect(tls_.get());
  if (result == 1) return {};
  const long verified = ::SSL_get_verify_result(tls_.get());
  if (verified == X509_V_OK)
    return unavailable(str("no TLS with it, as with one that does not speak it: ", tls_error(result).text()));
  take_tls_error();
  return unavailable(str("its certificate: ", ::X509_verify_cert_error_string(verified)));
}

// Returns the error of the TLS call that has returned `result`.
Status Socket::tls_error(int result) {
  const int saved = errno;
  const int error = ::SSL_get_error(tls_.get(), result);
  const std::string text = take_tls_error();
  switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return from_socket(EAGAIN);
    case SSL_ERROR_ZERO_RETURN:
      return closed();
    case SSL_ERROR_SYSCALL:
      return saved == 0 ? closed() : from_socket(saved);
    default:
      return unavailable(str("TLS: ", text));
  }
}

// Like tls_error(), but suggests a client certificate if none was sent and the server has not
// answered. A server reports a missing certificate only after the handshake, and its message may be
// lost.
Status Socket::tls_refused(int result) {
  Status status = tls_error(result);
  if (heard_ || ::SSL_get_certificate(tls_.get()) != nullptr) return status;
  return unavailable(str(status.text(), "; it may want a certificate from us: cert=FILE&key=FILE"));
}

Status Socket::write(std::string_view data) {
  while (!data.empty()) {
    errno = 0;
    std::size_t size = 0;
    if (tls_ != nullptr) {
      const int result = ::SSL_write_ex(tls_.get(), data.data(), data.size(), &size);
      if (result != 1) return tls_refused(result);
    } else {
      const ssize_t n = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return from_socket(errno);
      size = static_cast<std::size_t>(n);
    }
    data.remove_prefix(size);
  }
  return {};
}

Result<std::size_t> Socket::read(std::span<char> out) {
  while (true) {
    errno = 0;
    if (tls_ != nullptr) {
      std::size_t size = 0;
      const int result = ::SSL_read_ex(tls_.get(), out.data(), out.size(), &size);
      if (result != 1) return tls_refused(result);
      heard_ = true;
      return size;
    }
    const ssize_t n = ::recv(fd_.get(), out.data(), out.size(), 0);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return closed();
    if (errno != EINTR) return from_socket(errno);
  }
}

}  // namespace slime::ctrl::redis
