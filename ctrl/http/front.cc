#include "ctrl/http/front.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/address.h"
#include "base/log.h"
#include "base/scheduling.h"
#include "base/str.h"
#include "base/thread.h"
#include "ctrl/http/front_loop.h"
#include "ctrl/http/front_mailbox.h"

namespace slime::ctrl {
namespace {

// Raises the process' limit of open files if necessary. Returns how many of the `wanted`
// connections the limit allows.
std::size_t fit_connections(std::size_t wanted) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t needed = wanted + limits::kReservedFds;
  if (files.rlim_cur < needed) {
    const rlimit more{std::min(needed, files.rlim_max), files.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &more) == 0) files = more;
  }
  if (files.rlim_cur >= needed) return wanted;
  const rlim_t half = files.rlim_cur / 2;
  const rlim_t fit = files.rlim_cur > 2 * limits::kReservedFds ? files.rlim_cur - limits::kReservedFds : half;
  SLIME_LOG(LogLevel::kWarning, "nanoctrl", "at most ", fit, " connections instead of ", wanted,
            ": the process may open ", files.rlim_cur, " files (ulimit -n)");
  return static_cast<std::size_t>(std::max<rlim_t>(1, fit));
}

Status listen_error(const Address& at, int error) {
  return {Code::kUnavailable,
          str("cannot listen on ", at.to_string(), ": ", std::strerror(error),
              error == EADDRINUSE ? "; another program has the port: choose another with --port" : "")};
}

// Opens a listening socket without SO_REUSEPORT, which would let a second server share the port:
// each server would then know only some of the peers.
int listen_on(const addrinfo& at, UniqueFd& out) {
  UniqueFd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd.get(), limits::kListenBacklog) != 0)
    return errno;
  out = std::move(fd);
  return 0;
}

Result<UniqueFd> listen_on(const Address& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (problem != 0)
    return Status(Code::kUnavailable,
                  str("cannot listen on ", at.to_string(), ": ", ::gai_strerror(problem)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  UniqueFd fd;
  int error = 0;
  for (const addrinfo* one = found; one != nullptr && !fd.valid(); one = one->ai_next)
    error = listen_on(*one, fd);
  if (!fd.valid()) return listen_error(at, error);
  return fd;
}

}  // namespace

Status FrontLimits::validate() const {
  if (connections == 0 || buffered_bytes == 0)
    return {Code::kInvalidArgument, "the limits of connections and of buffered bytes must be positive"};
  if (idle_time <= Nanos::zero() || request_time <= Nanos::zero() || reply_time <= Nanos::zero())
    return {Code::kInvalidArgument, "the times of a connection must be positive"};
  if (!(requests_per_second >= 0)) return {Code::kInvalidArgument, "requests_per_second is negative"};
  return {};
}

Status FrontOptions::validate() const {
  if (host.empty()) return {Code::kInvalidArgument, "host is empty"};
  if (threads == 0) return {Code::kInvalidArgument, "threads must be at least 1"};
  SLIME_TRY(tls.validate());
  return limits.validate();
}

// Descriptors that the loop polls.
struct Descriptors {
  UniqueFd listener;
  UniqueFd epoll;
  UniqueFd mail;
};

class Front::Impl {
 public:
  Impl(FrontOptions options, Descriptors descriptors, std::unique_ptr<TlsServer> tls, ApiHandler handler,
       IsScan is_scan)
      : options_(std::move(options)),
        listener_(std::move(descriptors.listener)),
        epoll_(std::move(descriptors.epoll)),
        tls_(std::move(tls)),
        mailbox_(std::move(descriptors.mail)),
        is_scan_(is_scan),
        workers_(options_.threads, std::move(handler), mailbox_) {}
  ~Impl() { stop(); }

  void start() {
    workers_.start();
    loop_ = std::make_unique<FrontLoop>(options_.limits, std::move(epoll_), std::move(listener_), tls_.get(),
                                        is_scan_, mailbox_, workers_, gauges_);
    thread_ = make_thread([this] {
      run_in_short_slices();
      loop_->run();
    });
  }

  void stop() {
    mailbox_.stop();
    if (thread_.joinable()) thread_.join();
    loop_.reset();
    listener_.reset();
    workers_.stop();
  }

  Status reload_tls() {
    if (tls_ == nullptr) return {Code::kInvalidArgument, "there is no TLS"};
    return tls_->reload();
  }

  void wake(std::string_view key) { mailbox_.wake(key); }
  void wake_all() { mailbox_.wake_all(); }
  const FrontGauges& gauges() const { return gauges_; }
  std::uint16_t port() const { return options_.port; }

 private:
  const FrontOptions options_;
  UniqueFd listener_;  // start() moves listener_ and epoll_ to the loop
  UniqueFd epoll_;
  const std::unique_ptr<TlsServer> tls_;
  FrontGauges gauges_;
  FrontMailbox mailbox_;
  const IsScan is_scan_;
  FrontWorkers workers_;
  std::unique_ptr<FrontLoop> loop_;
  std::thread thread_;
};

Result<std::unique_ptr<Front>> Front::bind(FrontOptions options, ApiHandler handler, IsScan is_scan) {
  SLIME_TRY(options.validate());
  std::unique_ptr<TlsServer> tls;
  if (options.tls.enabled()) {
    Result<std::unique_ptr<TlsServer>> made = TlsServer::create(options.tls);
    if (!made) return std::move(made).error();
    tls = std::move(*made);
  }
  Result<UniqueFd> listener = listen_on(Address{options.host, options.port});
  if (!listener) return std::move(listener).error();
  Descriptors descriptors{std::move(*listener), UniqueFd(::epoll_create1(EPOLL_CLOEXEC)), {}};
  if (!descriptors.epoll.valid()) return from_errno("epoll_create1", errno);
  descriptors.mail = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!descriptors.mail.valid()) return from_errno("eventfd", errno);
  const Result<SocketAddress> at = SocketAddress::of_socket(descriptors.listener.get());
  if (!at) return at.error();
  options.port = at->to_address().port;
  options.limits.connections = fit_connections(options.limits.connections);
  return std::unique_ptr<Front>(new Front(std::make_unique<Impl>(
      std::move(options), std::move(descriptors), std::move(tls), std::move(handler), is_scan)));
}

Front::Front(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Front::~Front() { stop(); }
void Front::start() { impl_->start(); }
void Front::stop() { impl_->stop(); }
Status Front::reload_tls() { return impl_->reload_tls(); }
void Front::wake(std::string_view key) { impl_->wake(key); }
void Front::wake_all() { impl_->wake_all(); }
std::size_t Front::parked() const { return impl_->gauges().parked; }
std::size_t Front::connections() const { return impl_->gauges().connections; }
std::size_t Front::refused() const { return impl_->gauges().refused; }
std::uint16_t Front::port() const { return impl_->port(); }

}  // namespace slime::ctrl
