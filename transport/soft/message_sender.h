#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/soft/frame_queue.h"

namespace slime::transport::soft {

// The messages of this side that are not staged yet, and a shorter way past their queue. Thread:
// the loop.
class MessageSender {
 public:
  MessageSender(Link& link, FrameQueue& frames)
      : link_(link), frames_(frames), always_prompt_(link.wire->cheap_writes()) {}

  // Lets the next message be sent at once. Call when something came, because the peer may wait for
  // that message. Later messages share a write in the next turn, unless writes are cheap.
  void be_prompt() { prompt_ = true; }
  // Sends a message at once if it is short, nothing is in front of it, and be_prompt() allows it.
  // Returns false if the message has not left; the link may be broken then.
  bool send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                const SendOptions& options);
  void queue(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
             const SendOptions& options);

  // Returns whether a message would be staged next.
  bool next_may_go() {
    return !messages_.empty() && link_.operations.barrier_passed(messages_.front().barrier);
  }
  void stage();
  // Takes out messages that are past their deadline. A message that is half sent completes, but its
  // bytes must still be sent.
  void expire(TimePoint now, TimePoint& next);
  // Completes the operations of all messages.
  void drop(const Status& leftover);

 private:
  bool write_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                 bool late_completion);

  Link& link_;
  FrameQueue& frames_;
  const bool always_prompt_;
  bool prompt_ = true;
  Queue<OutMessage> messages_;
};

}  // namespace slime::transport::soft
