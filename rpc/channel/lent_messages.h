#pragma once

// Private to rpc: user messages that lie in the peer's memory.

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/inbox.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/frame.h"

namespace slime::rpc {

// Returns the error of a receive whose message is longer than its destinations.
Status message_too_long(std::uint64_t length, std::uint64_t room);

// Keeps messages of ranges of the peer's memory in the inbox until a receive gets them, reads each
// straight into the receive's destinations, or into memory of its own, and then acknowledges it. A
// message that its receive gave up waits for the next receive; one that its sender took back is
// gone. Thread: the loop, in a turn, except read().
class LentMessages final : public Inbox::Reader {
 public:
  struct Parts {
    Connection& connection;
    CallTable& calls;
    Outbox& outbox;
    Puller& puller;
    Inbox& inbox;
    AttachmentRoom& room;
    TurnHost& turns;
  };
  explicit LentMessages(const Parts& parts) : parts_(parts) {}
  LentMessages(const LentMessages&) = delete;
  LentMessages& operator=(const LentMessages&) = delete;

  // Handles a kUserMessage frame with kFlagAttachments. `refusal`: if not OK, the reason why no
  // message is taken. Returns an error if the peer broke the protocol.
  Status on_message(const wire::Frame& frame, const Status& refusal);
  void read(Handle receive, Inbox::Message&& message) override;
  // Returns the length of the message that was read into the destinations with this number, once;
  // nullopt: none was.
  std::optional<std::uint64_t> length_read(std::uint64_t into);
  // The sender takes a message back. Returns false if this is no message that waits or is read.
  bool on_cancel(std::uint64_t id);
  // Called before the receive ends while its message is read.
  void on_given_up(Handle receive);
  // Refuses the messages that wait: the channel closes.
  void refuse_waiting();
  // Forgets the messages that are read: the channel is closed.
  void clear() { readings_.clear(); }

 private:
  struct Reading {
    Handle receive;
    Inbox::Message message;
    bool given_up = false;    // by the receive
    bool taken_back = false;  // by the sender
  };

  Result<Puller::Reads> prepare(const Inbox::Lent& lent, std::uint64_t into);
  void on_read(std::uint64_t id, Result<Payload> body);
  // Gives the peer its memory back, and the outcome.
  void answer(const Inbox::Lent& lent, const Status& outcome);
  void put_back(Inbox::Message&& message);

  const Parts parts_;
  std::unordered_map<std::uint64_t, Reading> readings_;  // by the id of the message
  // Lengths of messages that were read, by the number of the destinations, until length_read().
  std::unordered_map<std::uint64_t, std::uint64_t> read_;
};

}  // namespace slime::rpc
