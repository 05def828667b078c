#pragma once

#include <cstdint>

#include "transport/endpoint/inbox.h"
#include "transport/verbs/credit_exchange.h"
#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Handles the receives that the peer's messages and notifications have filled: the hello, credits,
// and bytes for the Receiver. Thread: the loop.
class Arrivals {
 public:
  Arrivals(Link& link, Inbox& inbox, CreditExchange& credits)
      : link_(link), inbox_(inbox), credits_(credits) {}

  // Handles the completion of one receive, which fills or flushes `slot`. Returns false if the
  // receive was flushed or failed, or the endpoint has ended.
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
