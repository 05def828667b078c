#pragma once

#include <atomic>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/loop/wake_up.h"
#include "transport/loop/watched_fds.h"

namespace slime::transport {

// Epoll in which the thread of a loop sleeps while callers may drive the loop. A signal of the
// loop's WakeUp always ends the sleep. An event of the loop's descriptors ends it once, if
// hear_fds(true) was called.
class Bed {
 public:
  static Result<UniqueFd> open(const WakeUp& wake, const WatchedFds& fds);
  // `fd` is the result of open() with the same `fds`. `fds` must outlive this object.
  Bed(UniqueFd fd, const WatchedFds& fds) : fd_(std::move(fd)), fds_(fds.fd()) {}

  // Sets whether the next event of the loop's descriptors wakes the sleeping thread. Thread: the
  // one that drives the loop.
  void hear_fds(bool hear);
  // Returns whether an event of the loop's descriptors would wake the sleeping thread. Thread: any.
  [[nodiscard]] bool hears_fds() const { return hears_fds_.load(std::memory_order_seq_cst); }
  // Notes that the driving thread has taken the event that was to wake the sleeping thread. Thread:
  // the one that drives the loop.
  void forget_fds() { hears_fds_.store(false, std::memory_order_relaxed); }
  // Sleeps until an event, or for `timeout_ms`. Thread: the loop's own.
  void sleep(int timeout_ms);
  // Waits until there is an event for sleep(), or for `time`. Returns whether there is one. Thread:
  // the loop's own.
  [[nodiscard]] bool doze(Nanos time) const;

 private:
  const UniqueFd fd_;
  const int fds_;  // the epoll of the loop's descriptors
  std::atomic<bool> hears_fds_{false};
};

}  // namespace slime::transport
