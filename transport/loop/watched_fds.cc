#include "transport/loop/watched_fds.h"

#include <cerrno>

#include "base/check.h"

namespace slime::transport {
namespace {

constexpr std::uint64_t kWakeToken = ~std::uint64_t{0};

std::uint64_t watch_token(int fd, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<WatchedFds> WatchedFds::create(const WakeUp& wake) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return from_errno("epoll_create1", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.fd(), &event) != 0) return from_errno("epoll_ctl", errno);
  return WatchedFds(std::move(epoll));
}

Status WatchedFds::watch(int fd, std::uint32_t events, FdHandler& handler) {
  const Watch watch{&handler, ++generation_};
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch_token(fd, watch.generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return from_errno("epoll_ctl add", errno);
  watches_[fd] = watch;
  return {};
}

Status WatchedFds::change(int fd, std::uint32_t events) {
  const auto it = watches_.find(fd);
  SLIME_CHECK(it != watches_.end());
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch_token(fd, it->second.generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return from_errno("epoll_ctl mod", errno);
  return {};
}

void WatchedFds::unwatch(int fd) {
  if (watches_.erase(fd) == 0) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void WatchedFds::wait(Ready& ready, int timeout_ms) const {
  ready.count =
      epoll_wait(epoll_.get(), ready.events.data(), static_cast<int>(ready.events.size()), timeout_ms);
}

bool WatchedFds::dispatch(const Ready& ready, const WakeUp& wake) {
  bool ran = false;
  for (int i = 0; i < ready.count; ++i) {
    const epoll_event& event = ready.events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeToken) {
      wake.drain();
      continue;
    }
    const auto it = watches_.find(static_cast<int>(event.data.u64 & 0xffffffffU));
    // Drops an event of an earlier watch: a handler may have closed the descriptor since, and the
    // kernel may have given its number to a new one.
    if (it == watches_.end() || it->second.generation != static_cast<std::uint32_t>(event.data.u64 >> 32))
      continue;
    it->second.handler->on_fd_events(event.events);
    ran = true;
  }
  return ran;
}

}  // namespace slime::transport
