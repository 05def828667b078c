#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/queue.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Messages of this side: those that wait for the device, and those that the device has taken and
// whose operations are not completed yet. Thread: the loop.
class MessageSender {
 public:
  explicit MessageSender(Link& link) : link_(link) {}

  // Messages that wait for the device.
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }

  // Posts a short message at once and inline. This is possible only if no other message waits, the
  // message needs no completion of its own, and its MessageNote carries nothing but the grant.
  // Returns false if the message was not posted.
  bool send_now(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation);
  // Queues a message for which a credit is free. Returns kResourceExhausted if no send buffer is
  // free.
  Status queue(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation, SendOptions options);
  // Posts as much as the device takes.
  void run();
  // Completes the operations of messages that the device has taken or refused. Do not call it
  // inside of a post, because completions call the code that posts.
  void complete_sent();
  // Ends the queued messages that are past their deadline. Lowers `next` to the earliest deadline
  // that is left.
  void expire(TimePoint now, TimePoint& next);
  // Completes the messages that still wait, with the status EndpointLife::leftover().
  void end();

 private:
  struct Waiting {
    Operation* operation = nullptr;
    TimePoint deadline = kNever;
    std::uint64_t barrier = 0;  // sent after the one-sided operations before it
    std::uint32_t buffer = 0;
    std::uint32_t bytes = 0;
  };
  struct Sent {
    Operation* operation = nullptr;
    bool accepted = false;
  };
  [[nodiscard]] bool front_may_go() { return link_.operations.barrier_passed(messages_.front().barrier); }
  void add_to(Chain& chain, const Waiting& message);

  Link& link_;
  Queue<Waiting> messages_;
  std::vector<Sent> sent_;
  std::vector<Sent> completing_;
};

}  // namespace slime::transport::verbs
