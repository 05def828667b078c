#pragma once

#include <cstdint>

#include "transport/endpoint/inbox.h"
#include "transport/verbs/credit_exchange.h"
#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Takes what the peer's messages and notifications bring: the hello, credits, and bytes for the
// receiver. Thread: the loop.
class Arrivals {
 public:
  Arrivals(Link& link, Inbox& inbox, CreditExchange& credits)
      : link_(link), inbox_(inbox), credits_(credits) {}

  // Takes a filled or flushed slot. Returns false if it brought nothing.
  bool take(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot);

 private:
  void on_message(const ibv_wc& completion, ReceiveSlot& slot);
  void on_notification(const ibv_wc& completion, ReceiveSlot& slot);
  void on_failed(const ibv_wc& completion);

  Link& link_;
  Inbox& inbox_;
  CreditExchange& credits_;
};

}  // namespace slime::transport::verbs
