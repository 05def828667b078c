#pragma once

// Private to rpc: received user messages of a channel, by tag.

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
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
  // A message in the peer's memory, which the receive that gets it reads; small ranges have come
  // with the frame.
  struct Lent {
    std::uint64_t id = 0;  // of the peer's request
    Handle lease;          // generation 0: nothing is lent
    std::uint64_t length_bytes = 0;
    // As it has come, since it takes more memory decoded; valid. See wire::decode_attachments().
    ByteVector table;
  };
  // A message, from its announcement on. Later messages of the tag wait until its bytes have
  // arrived.
  struct Message {
    std::uint64_t tag = 0;
    std::uint64_t number = 0;  // in order of arrival
    std::uint64_t bytes = 0;   // that the inbox holds
    bool complete = false;
    Payload payload;
    std::unique_ptr<Lent> lent;  // null: a message that the inbox holds
  };
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
  // Reads lent messages.
  class Reader {
   public:
    // Reads a lent message for the receive, which has not ended yet.
    virtual void read(Handle receive, Message&& message) = 0;

   protected:
    ~Reader() = default;
  };
  struct Bounds {
    std::size_t messages = 0;
    std::size_t bytes = 0;
  };
  // `completions` gets the handlers of receives that still get a message when the channel ends.
  // `source` gets messages that receives give back.
  Inbox(Receives& receives, Reader& reader, Completions& completions, std::shared_ptr<DeliverySource> source,
        Bounds bounds)
      : receives_(receives),
        reader_(reader),
        completions_(completions),
        source_(std::move(source)),
        bounds_(bounds) {}

  // ---- messages
  // Returns whether a receive already waits for the next message with this tag.
  [[nodiscard]] bool awaited(std::uint64_t tag) const;
  // Returns kResourceExhausted if the inbox has no room for a message of this size. An empty inbox
  // takes a message of any size: otherwise a message larger than the bound could never arrive.
  [[nodiscard]] Status admit(std::uint64_t tag, std::uint64_t bytes) const;
  using Place = std::list<Message>::iterator;
  Place add(std::uint64_t tag, std::uint64_t bytes);
  void complete(Place message, Payload&& payload);
  void drop(Place message);
  // Adds a message in the peer's memory. `bytes`: that have come with the frame.
  void add_lent(std::uint64_t tag, std::uint64_t bytes, std::unique_ptr<Lent> lent);
  // Removes a lent message that no receive reads; null: there is none with this id.
  std::unique_ptr<Lent> take_lent(std::uint64_t id);
  // Removes all of them.
  std::vector<std::unique_ptr<Lent>> take_all_lent();
  // Puts back a message that a receive did not take, in front of the messages that arrived after
  // it.
  void put_back(std::uint64_t tag, std::uint64_t number, Payload&& payload);
  void put_back(Message&& lent);

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
      return !receivers.empty() && !messages.empty() &&
             (messages.front().complete || messages.front().lent != nullptr);
    }
  };
  struct Matched {
    Message message;
    Handle receive;
  };
  Matched take_first(Tag& tag);
  // Inserts an empty message in front of those with a higher number.
  Place insert(std::uint64_t tag, std::uint64_t number);
  void match(std::uint64_t tag);
  void deliver(std::uint64_t tag);
  void forget_if_empty(std::uint64_t tag);
  void count(const Message& message, bool added);

  Receives& receives_;
  Reader& reader_;
  Completions& completions_;
  const std::shared_ptr<DeliverySource> source_;
  const Bounds bounds_;
  std::unordered_map<std::uint64_t, Tag> tags_;
  std::size_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t arrived_ = 0;
};

}  // namespace slime::rpc
