#pragma once

// Private to rpc: user messages of a channel, in both directions.

#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/channel.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/inbox.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/lent_messages.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/codec/frame.h"

namespace slime::rpc {

// Sends user messages, and adds receives. Puts the peer's messages into the inbox, and acknowledges
// a message once all its bytes are there. Thread: the loop, in a turn.
class UserMessages {
 public:
  struct Parts {
    Connection& connection;
    CallTable& calls;
    Outbox& outbox;
    Lending& lending;
    Puller& puller;
    Inbox& inbox;
    AttachmentRoom& room;
    LentMessages& lent;
  };
  explicit UserMessages(const Parts& parts) : parts_(parts) {}
  UserMessages(const UserMessages&) = delete;
  UserMessages& operator=(const UserMessages&) = delete;

  Ticket send(std::uint64_t tag, ByteVector&& body, TimePoint deadline, DoneHandler&& handler);
  // Lends the ranges to the peer until a receive has read them. To a peer that knows no such
  // messages it sends a copy.
  Ticket send(std::uint64_t tag, Attachments&& ranges, TimePoint deadline, DoneHandler&& handler);
  Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler&& handler) {
    return recv(tag, deadline, std::move(handler), 0);
  }
  Ticket recv_into(std::uint64_t tag, Destinations&& into, TimePoint deadline, LengthHandler&& handler);
  // Sends copies instead of the ranges of queued messages: the peer's hello has come, and the peer
  // knows no such messages.
  void copy_queued_ranges();
  // on_message() handles a kUserMessage frame, on_ack() a kUserAck frame. Both return an error if
  // the peer broke the protocol.
  Status on_message(const wire::Frame& frame);
  Status on_ack(const wire::Frame& frame);

 private:
  // `into`: the number of the receive's destinations; 0: none.
  Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler&& handler, std::uint64_t into);
  [[nodiscard]] Status admit(std::uint64_t tag, std::uint64_t bytes) const;

  const Parts parts_;
};

}  // namespace slime::rpc
