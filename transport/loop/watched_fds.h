#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/limits.h"
#include "transport/loop/wake_up.h"

namespace slime::transport {

// Handles the events of one watched descriptor. Called on the loop.
class FdHandler {
 public:
  // `events` are EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP bits. The function may watch and
  // unwatch any descriptor, its own included.
  virtual void on_fd_events(std::uint32_t events) noexcept = 0;

 protected:
  ~FdHandler() = default;
};

// The descriptors that one loop watches, in an epoll that also contains the loop's WakeUp. Level
// triggered. Thread: the one that drives the loop.
class WatchedFds {
 public:
  // The events of one wait().
  struct Ready {
    std::array<epoll_event, limits::kLoopEventsPerTurn> events;
    int count;
  };

  static Result<WatchedFds> create(const WakeUp& wake);
  // Watches `fd`. Each descriptor has one handler, which must outlive the watch.
  Status watch(int fd, std::uint32_t events, FdHandler& handler);
  Status change(int fd, std::uint32_t events);  // of a watched descriptor
  void unwatch(int fd);
  // Waits up to `timeout_ms` (0: not at all; -1: no limit) for events.
  void wait(Ready& ready, int timeout_ms) const;
  // Calls the handlers of the events in `ready`; drains `wake` if it has been signalled. Returns
  // whether it called a handler.
  bool dispatch(const Ready& ready, const WakeUp& wake);
  // Returns the epoll descriptor, which is readable while a watched descriptor has events.
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  struct Watch {
    FdHandler* handler;
    std::uint32_t generation;  // distinguishes successive watches of one descriptor number
  };
  explicit WatchedFds(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::unordered_map<int, Watch> watches_;
  std::uint32_t generation_ = 0;
};

}  // namespace slime::transport
