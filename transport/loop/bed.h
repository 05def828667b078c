#pragma once

#include <atomic>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/loop/wake_up.h"
#include "transport/loop/watched_fds.h"

namespace slime::transport {

// Where the thread of a loop sleeps while callers may drive the loop: an epoll of its own. Always
// wakes for wake-ups; wakes once for the loop's descriptors, if told to.
class Bed {
 public:
  static Result<UniqueFd> open(const WakeUp& wake, const WatchedFds& fds);
  // `fd` is from open() with the same `fds`, which must outlive this object.
  Bed(UniqueFd fd, const WatchedFds& fds) : fd_(std::move(fd)), fds_(fds.fd()) {}

  // Chooses whether the first event of the loop's descriptors wakes the sleeper. Thread: the
  // driver's.
  void hear_fds(bool hear);
  // Returns whether an event of the loop's descriptors would wake the sleeper. Thread: any.
  [[nodiscard]] bool hears_fds() const { return hears_fds_.load(std::memory_order_seq_cst); }
  // Notes that the driver has taken the event that would have woken the sleeper. Thread: the
  // driver's.
  void forget_fds() { hears_fds_.store(false, std::memory_order_relaxed); }
  // Sleeps until an event, or for `timeout_ms` (-1: without end). Thread: the loop's.
  void sleep(int timeout_ms);

 private:
  const UniqueFd fd_;
  const int fds_;  // the epoll of the loop's descriptors
  std::atomic<bool> hears_fds_{false};
};

}  // namespace slime::transport
