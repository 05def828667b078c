#pragma once

#include <cstdint>

#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Finds a peer that falls silent while work waits for it. The keepalive of the side channel finds a
// silent host. Because the side channel may take another path, an empty RDMA write, the probe,
// finds that the device's path is broken. Thread: the loop.
class SilenceWatch {
 public:
  explicit SilenceWatch(Link& link) : link_(link) {}
  SilenceWatch(const SilenceWatch&) = delete;
  SilenceWatch& operator=(const SilenceWatch&) = delete;
  ~SilenceWatch() { link_.loop->cancel_timer(timer_); }

  // Starts the watch; at first the endpoint waits for the peer's hello.
  void start() { link_.side->set_waiting(waiting_ = true); }
  void set_awaiting(bool awaiting) { awaiting_ = awaiting; }
  // Turns the watch on or off, by whether work waits. `in_flight`: operations are in flight.
  void update(bool in_flight);

 private:
  // Returns the number of completions, messages and notifications that have come so far.
  [[nodiscard]] std::uint64_t heard() const {
    return link_.counters.completions + link_.counters.messages_received +
           link_.counters.notifications_received;
  }
  void arm();
  void probe();

  Link& link_;
  bool waiting_ = false;
  bool awaiting_ = false;
  TimerId timer_;
  std::uint64_t heard_before_ = 0;  // heard() when the timer was armed
};

}  // namespace slime::transport::verbs
