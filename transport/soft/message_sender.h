#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/soft/frame_queue.h"

namespace slime::transport::soft {

// The messages of this side that are not staged yet; short messages may be sent at once instead.
// Thread: the loop.
class MessageSender {
 public:
  MessageSender(Link& link, FrameQueue& frames)
      : link_(link), frames_(frames), always_prompt_(link.wire->cheap_writes()) {}

  // Lets the next message be sent at once. Call when data has arrived, because the peer may be
  // waiting for an answer. Messages after that one are written together in the next turn, unless
  // the wire has cheap_writes().
  void be_prompt() { prompt_ = true; }
  // Sends a message at once if nothing is in front of it, and it is long, or is short and
  // be_prompt() or cheap_writes() allows it. Returns false if nothing was sent; the link may be
  // broken then.
  bool send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                const SendOptions& options);
  void queue(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
             const SendOptions& options);

  // Returns whether a message waits that may be staged now.
  bool next_may_go() {
    return !messages_.empty() && link_.operations.barrier_passed(messages_.front().barrier);
  }
  void stage();
  // Ends with kDeadlineExceeded the messages that are past their deadline. The bytes of messages
  // that are staged already are still sent. Lowers `next` to the next deadline.
  void expire(TimePoint now, TimePoint& next);
  // Completes the operations of all messages.
  void drop(const Status& leftover);

 private:
  bool write_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                 bool late_completion);
  void accept(OutMessage& message, Operation& operation, std::size_t rest);

  Link& link_;
  FrameQueue& frames_;
  const bool always_prompt_;
  bool prompt_ = true;
  Queue<OutMessage> messages_;
};

}  // namespace slime::transport::soft
