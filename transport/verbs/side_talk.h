#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "transport/verbs/credit_exchange.h"
#include "transport/verbs/link.h"
#include "transport/verbs/side_channel.h"

namespace slime::transport::verbs {

// Handles the peer's frames on the side channel: READY, credits, and the end. Thread: the loop.
class SideTalk final : public SideChannelHandler {
 public:
  SideTalk(Link& link, CreditExchange& credits) : link_(link), credits_(credits) {}

  // Breaks the link if the peer has closed, or if the side channel was lost. Returns false in the
  // second case: the endpoint then does nothing else in this turn.
  bool look_for_end();
  // After the peer's goodbye, lowers `next` to the latest time at which the link breaks.
  void bound(TimePoint& next) const {
    if (goodbye_) next = std::min(next, goodbye_by_);
  }
  // Returns the error for work requests that were flushed although no error came before, because
  // the device stopped the queue pair. Gives the reason if the peer or the side channel has told
  // one.
  [[nodiscard]] Status flushed() const;

 private:
  struct Goodbye {
    std::uint64_t messages = 0;
    std::uint64_t notifications = 0;
  };

  void on_side_frame(const SideFrame& frame) noexcept override;
  void on_side_broken(Status reason) noexcept override;
  void on_goodbye(const Goodbye& goodbye);

  Link& link_;
  CreditExchange& credits_;
  std::optional<Goodbye> goodbye_;  // the peer closed
  TimePoint goodbye_by_ = kNever;
  Status lost_;  // the side channel broke
  std::uint64_t lost_at_poll_ = 0;
};

}  // namespace slime::transport::verbs
