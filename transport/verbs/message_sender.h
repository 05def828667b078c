#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/queue.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// The messages of this side that wait for the device, and those that the device has taken and that
// are to be completed. Thread: the loop.
class MessageSender {
 public:
  explicit MessageSender(Link& link) : link_(link) {}

  // Messages that wait for the device.
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }

  // Posts a message in the shortest way, if it needs no place in the queue, no buffer, no
  // completion, and only the usual note on credits. Returns false if it has not left.
  bool send_now(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation);
  // Queues a message that has a credit. Returns kResourceExhausted if no send buffer is free.
  Status queue(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation, SendOptions options);
  // Posts as much as the device takes.
  void run();
  // Completes messages that the device has taken or refused. Call outside of every post:
  // completions call the code that posted.
  void complete_sent();
  // Ends messages that are past their deadline; `next` becomes the time of the next one if that is
  // earlier.
  void expire(TimePoint now, TimePoint& next);
  // Completes the waiting messages with the link's leftover status.
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
