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

// Gets the events of one watched descriptor, on the loop.
class FdHandler {
 public:
  // `events` are EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP bits. May watch and unwatch any
  // descriptor, also its own.
  virtual void on_fd_events(std::uint32_t events) noexcept = 0;

 protected:
  ~FdHandler() = default;
};

// The descriptors that one loop watches: an epoll, which also contains the loop's wake-up. Level
// triggered. Thread: the driver's.
class WatchedFds {
 public:
  // The events of one wait().
  struct Ready {
    std::array<epoll_event, limits::kLoopEventsPerTurn> events;
    int count;
  };

  static Result<WatchedFds> create(const WakeUp& wake);
  // Each descriptor has one handler, which outlives the watch.
  Status watch(int fd, std::uint32_t events, FdHandler& handler);
  Status change(int fd, std::uint32_t events);  // of a watched descriptor
  void unwatch(int fd);
  // Waits up to `timeout_ms` (0: not at all; -1: without end) for events.
  void wait(Ready& ready, int timeout_ms) const;
  // Calls the handlers of the events, and drains `wake`. Returns whether it called a handler.
  bool dispatch(const Ready& ready, const WakeUp& wake);
  // Returns the epoll, which is readable while a descriptor has events.
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  struct Watch {
    FdHandler* handler;
    std::uint32_t generation;  // differs for each watch of a descriptor number
  };
  explicit WatchedFds(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::unordered_map<int, Watch> watches_;
  std::uint32_t generation_ = 0;
};

}  // namespace slime::transport
