#include "transport/loop/bed.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "base/check.h"

namespace slime::transport {

Result<UniqueFd> Bed::open(const WakeUp& wake, const WatchedFds& fds) {
  UniqueFd bed(epoll_create1(EPOLL_CLOEXEC));
  if (!bed.valid()) return from_errno("epoll_create1", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.fd();
  if (epoll_ctl(bed.get(), EPOLL_CTL_ADD, wake.fd(), &event) != 0) return from_errno("epoll_ctl", errno);
  event.events = 0;
  event.data.fd = fds.fd();
  if (epoll_ctl(bed.get(), EPOLL_CTL_ADD, fds.fd(), &event) != 0) return from_errno("epoll_ctl", errno);
  return bed;
}

void Bed::hear_fds(bool hear) {
  hears_fds_.store(hear, std::memory_order_seq_cst);
  epoll_event event{};
  event.events = hear ? EPOLLIN | EPOLLONESHOT : 0;
  event.data.fd = fds_;
  SLIME_CHECK(epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fds_, &event) == 0);
}

void Bed::sleep(int timeout_ms) {
  std::array<epoll_event, 2> events;
  const int n = epoll_wait(fd_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < n; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd == fds_)
      hears_fds_.store(false, std::memory_order_seq_cst);
  }
}

bool Bed::doze(Nanos time) const { return wait_readable(fd_.get(), time); }

}  // namespace slime::transport
