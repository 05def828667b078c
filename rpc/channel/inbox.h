#pragma once

// Private to rpc: user messages of a channel, by tag.

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/completions.h"
#include "rpc/payload.h"

namespace slime::rpc {

// Keeps user messages in order of arrival for each tag, bounded, out of the receive slots at once, so that
// messages that nobody takes cost memory but no credits. Gives them to receives, both in order. Thread: the
// loop.
class Inbox {
 public:
  // The receives that wait for a message.
  class Receives {
   public:
    // Ends the receive, and returns its handler.
    virtual DeliveryHandler take_receive(Handle receive) = 0;
    // Puts messages that receives did not take back, by put_back().
    virtual void collect_untaken() = 0;

   protected:
    ~Receives() = default;
  };
  struct Bounds {
    std::size_t messages = 0;
    std::size_t bytes = 0;
  };
  // Receives that get a message at the end of the channel are added to `completions`; `source` takes messages
  // back.
  Inbox(Receives& receives, Completions& completions, std::shared_ptr<DeliverySource> source, Bounds bounds)
      : receives_(receives), completions_(completions), source_(std::move(source)), bounds_(bounds) {}

  // ---- messages
  // Whether a receive waits for the next message of this tag.
  [[nodiscard]] bool awaited(std::uint64_t tag) const;
  // kResourceExhausted when there is no room for a message of so many bytes. One that is larger than the
  // whole inbox has room while nothing else is there: else it could never come.
  [[nodiscard]] Status admit(std::uint64_t tag, std::uint64_t bytes) const;
  // A message whose bytes are still to come. Later messages of its tag wait behind it.
  struct Message {
    std::uint64_t tag = 0;
    std::uint64_t number = 0;  // in order of arrival
    std::uint64_t bytes = 0;
    bool complete = false;
    Payload payload;
  };
  using Place = std::list<Message>::iterator;
  Place add(std::uint64_t tag, std::uint64_t bytes);
  void complete(Place message, Payload&& payload);
  void drop(Place message);
  // Puts back a message that a receive did not take, in front of the messages that arrived after it.
  void put_back(std::uint64_t tag, std::uint64_t number, Payload&& payload);

  // ---- receives
  // Whether a further receive of this tag would have to wait for a message that is not here.
  [[nodiscard]] bool would_wait(std::uint64_t tag) const;
  void add_receive(std::uint64_t tag, Handle receive);
  void remove_receive(std::uint64_t tag, Handle receive);
  // Completes the receives whose message has arrived: nothing more comes.
  void finish_receives();

  // Drops messages that have not come whole: the channel is closed.
  void drop_incomplete();
  [[nodiscard]] bool empty() const { return messages_ == 0; }

 private:
  struct Tag {
    std::list<Message> messages;   // in order of arrival
    std::deque<Handle> receivers;  // in order of asking
    [[nodiscard]] bool ready() const {
      return !receivers.empty() && !messages.empty() && messages.front().complete;
    }
  };
  struct Matched {
    Message message;
    Handle receive;
  };
  Matched take_first(Tag& tag);
  void match(std::uint64_t tag);
  void deliver(std::uint64_t tag);
  void forget_if_empty(std::uint64_t tag);
  void count(const Message& message, bool added);

  Receives& receives_;
  Completions& completions_;
  const std::shared_ptr<DeliverySource> source_;
  const Bounds bounds_;
  std::unordered_map<std::uint64_t, Tag> tags_;
  std::size_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t arrived_ = 0;
};

}  // namespace slime::rpc
