#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/address.h"
#include "ctrl/http/front_loop.h"
#include "ctrl/limits.h"

// The functions of FrontLoop that accept connections and limit their number.
namespace slime::ctrl {
namespace {

constexpr int kAcceptsPerRound = 256;  // most accepts before connections are served again
// Most connections beyond the limit that stay open until they have received a refusal (503).
constexpr std::size_t kExtras = 64;
constexpr Nanos kPause = std::chrono::milliseconds(100);

}  // namespace

void FrontLoop::accept_some() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    if (!accept_one()) return;
  }
}

bool FrontLoop::accept_one() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  UniqueFd fd(
      ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    admit(std::move(fd), SocketAddress(reinterpret_cast<const sockaddr*>(&address), size).to_address().host);
    return true;
  }
  if (errno == EINTR || errno == ECONNABORTED) return true;
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (full && evict_idle()) return true;
  if (full) pause_accepting(true);
  return false;
}

void FrontLoop::admit(UniqueFd fd, std::string client) {
  bool extra = false;
  if (connections_.size() - extras_ >= limits_.connections && !evict_idle()) {
    // Closes the connection without a reply if kExtras connections wait for a refusal already. Also
    // over TLS, where a reply would need a handshake first.
    if (tls_ != nullptr || extras_ >= kExtras) {
      ++gauges_.refused;
      return;
    }
    extra = true;
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const std::uint64_t id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
  Connection& c = connections_.try_emplace(id, id, FrontSocket(std::move(fd), tls_)).first->second;
  gauges_.connections = connections_.size();
  c.client = std::move(client);
  c.tenant = c.client;
  c.idle_at = idle_.insert(idle_.end(), id);
  c.queued_at = queue_.end();
  set_deadline(c, deadline_after(now_, limits_.idle_time));
  if (tls_ != nullptr) enter(c, State::kHandshaking);
  if (!extra) return;
  c.extra = true;
  ++extras_;
  refuse(c, 503, "nanoctrl has as many connections as it may have");
  drive(c);
}

// Stops or resumes polling the listener. Called when no file descriptor is left: the pending
// connections would make the loop spin.
void FrontLoop::pause_accepting(bool pause) {
  epoll_event event{};
  if (!pause) event.events = EPOLLIN;
  event.data.u64 = 0;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accept_again_ = pause ? deadline_after(now_, kPause) : kNever;
}

bool FrontLoop::evict_idle() {
  if (idle_.empty()) return false;
  close(connections_.at(idle_.front()));
  return true;
}

}  // namespace slime::ctrl
