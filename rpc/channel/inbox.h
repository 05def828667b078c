#pragma once

// Private to rpc: received user messages of a channel, by tag.

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

// Keeps a bounded number of user messages, for each tag in order of arrival, and gives them to
// receives in that order. Copies messages out of the receive slots, so that waiting messages cost
// memory but no credits. Thread: the loop.
class Inbox {
 public:
  // The receives that wait for a message.
  class Receives {
   public:
    // Ends the receive and returns its handler.
    virtual DeliveryHandler take_receive(Handle receive) = 0;
    // Calls put_back() for the messages that receives did not take.
    virtual void collect_untaken() = 0;

   protected:
    ~Receives() = default;
  };
  struct Bounds {
    std::size_t messages = 0;
    std::size_t bytes = 0;
  };
  // `completions` gets the handlers of receives that still get a message when the channel ends.
  // `source` gets messages that receives give back.
  Inbox(Receives& receives, Completions& completions, std::shared_ptr<DeliverySource> source, Bounds bounds)
      : receives_(receives), completions_(completions), source_(std::move(source)), bounds_(bounds) {}

  // ---- messages
  // Returns whether a receive already waits for the next message with this tag.
  [[nodiscard]] bool awaited(std::uint64_t tag) const;
  // Returns kResourceExhausted if the inbox has no room for a message of this size. An empty inbox
  // takes a message of any size: otherwise a message larger than the bound could never arrive.
  [[nodiscard]] Status admit(std::uint64_t tag, std::uint64_t bytes) const;
  // A message, from its announcement on. Later messages of the tag wait until its bytes have
  // arrived.
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
  // Puts back a message that a receive did not take, in front of the messages that arrived after
  // it.
  void put_back(std::uint64_t tag, std::uint64_t number, Payload&& payload);

  // ---- receives
  // Returns whether a new receive of this tag would have to wait for a message that has not
  // arrived.
  [[nodiscard]] bool would_wait(std::uint64_t tag) const;
  void add_receive(std::uint64_t tag, Handle receive);
  void remove_receive(std::uint64_t tag, Handle receive);
  // Completes the receives for which messages have arrived. Called when no more messages come.
  void finish_receives();

  // Drops incomplete messages: the channel is closed.
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
