#include "rpc/channel/user_messages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/copy.h"
#include "base/str.h"
#include "rpc/codec/attachments.h"

namespace slime::rpc {

using Kind = CallTable::Kind;

namespace {

ByteVector gathered(const Attachments& ranges) {
  ByteVector out;
  for (const Attachment& each : ranges) append_bytes(out, each.bytes());
  return out;
}

// Returns the bytes of a message of ranges. `lent`: the loan with those ranges that are not in the
// table; null: all are.
ByteVector gathered(const wire::AttachmentTable& table, const Lent* lent) {
  ByteVector out;
  std::size_t next = 0;  // of the loan
  for (const wire::AttachmentEntry& entry : table.entries)
    append_bytes(out, entry.lent ? lent->attachments[next++].bytes() : entry.bytes);
  return out;
}

// Copies a message to the targets. kInvalidArgument if it is longer; then nothing was copied.
Status scatter(Bytes message, const Destinations& targets) {
  std::uint64_t room = 0;
  for (const Destination& each : targets) room += each.bytes().size();
  if (message.size() > room) return message_too_long(message.size(), room);
  for (const Destination& each : targets) {
    const std::size_t length = std::min(message.size(), each.bytes().size());
    if (length != 0) copy_bytes(each.bytes().data(), message.data(), length);
    message = message.subspan(length);
  }
  return {};
}

}  // namespace

// ------------------------------------------------------------------------------------------ asking

Ticket UserMessages::send(std::uint64_t tag, ByteVector&& body, TimePoint deadline, DoneHandler&& handler) {
  CallTable& calls = parts_.calls;
  Status status = calls.admission(Kind::kSend);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  frame.header.value = tag;
  Handle lent;
  if (status.ok()) status = parts_.lending.put_body(frame, std::move(body), lent);
  if (!status.ok()) return calls.refuse(Kind::kSend, std::move(handler), std::move(status));
  const auto [handle, pending] = calls.add(Kind::kSend, std::move(handler), deadline);
  pending->lent = lent;
  return calls.ask(handle, deadline, frame);
}

Ticket UserMessages::send(std::uint64_t tag, Attachments&& ranges, TimePoint deadline,
                          DoneHandler&& handler) {
  if (ranges.empty() || !parts_.connection.peer_has(wire::kFeatureLentMessages))
    return send(tag, gathered(ranges), deadline, std::move(handler));
  CallTable& calls = parts_.calls;
  Status status = calls.admission(Kind::kSend);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  frame.header.value = tag;
  Handle lent;
  const std::size_t count = ranges.size();
  if (status.ok()) status = parts_.lending.put_body(frame, AttachedBody{{}, std::move(ranges)}, lent);
  if (status.ok() && (frame.header.flags & wire::kFlagRendezvous) != 0) {
    parts_.lending.release(lent);
    status =
        Status(Code::kInvalidArgument, str("the list of ", count, " ranges does not fit into a message of ",
                                           parts_.connection.message_bytes(), " bytes"));
  }
  if (!status.ok()) return calls.refuse(Kind::kSend, std::move(handler), std::move(status));
  const auto [handle, pending] = calls.add(Kind::kSend, std::move(handler), deadline);
  pending->lent = lent;
  pending->parks = true;
  return calls.ask(handle, deadline, frame);
}

void UserMessages::copy_queued_ranges() {
  std::vector<std::pair<Handle, Status>> failed;
  parts_.outbox.edit([&](OutFrame& frame) {
    if (frame.header.type != wire::FrameType::kUserMessage ||
        (frame.header.flags & wire::kFlagAttachments) == 0)
      return;
    CallTable::Pending& pending = *parts_.calls.find(frame.pending);
    const auto table = wire::decode_attachments(frame.body);
    SLIME_CHECK(table.has_value());  // this side has encoded it
    ByteVector body = gathered(*table, parts_.lending.find(pending.lent));
    parts_.lending.release(std::exchange(pending.lent, {}));
    pending.parks = false;
    frame.header.flags = 0;
    frame.body.clear();
    Status status = parts_.lending.put_body(frame, std::move(body), pending.lent);
    if (!status.ok()) failed.emplace_back(frame.pending, std::move(status));
  });
  for (auto& [handle, status] : failed) parts_.calls.fail(handle, std::move(status));
}

Ticket UserMessages::recv_into(std::uint64_t tag, Destinations&& into, TimePoint deadline,
                               LengthHandler&& handler) {
  const std::uint64_t number = parts_.room.keep(std::move(into));
  return recv(
      tag, deadline,
      [this, number, handler = std::move(handler)](Result<Delivery> delivery) mutable {
        const Destinations targets = parts_.room.take(number);
        if (!delivery) return handler(std::move(delivery).error());
        if (const auto read = parts_.lent.length_read(number)) {
          static_cast<void>(delivery->take());
          return handler(*read);
        }
        const Status status = scatter(delivery->bytes(), targets);
        if (!status.ok()) return handler(status);  // the message goes back to its tag
        handler(std::uint64_t{delivery->take().bytes().size()});
      },
      number);
}

Ticket UserMessages::recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler&& handler,
                          std::uint64_t into) {
  CallTable& calls = parts_.calls;
  // A message that has already arrived can be received even while the channel closes.
  Status status = parts_.inbox.would_wait(tag) ? calls.admission(Kind::kRecv) : Status();
  if (status.ok() && calls.receives() >= parts_.connection.options().max_calls)
    status = Status(Code::kResourceExhausted, str(calls.receives(), " receives wait already"));
  if (!status.ok()) return calls.refuse(Kind::kRecv, std::move(handler), std::move(status));
  const auto [handle, pending] = calls.add(Kind::kRecv, std::move(handler), deadline);
  pending->tag = tag;
  pending->into = into;
  calls.watch(deadline);
  parts_.inbox.add_receive(tag, handle);
  return Ticket{calls.find(handle) != nullptr ? handle.packed() : 0};
}

// --------------------------------------------------------------------------------------- receiving

Status UserMessages::admit(std::uint64_t tag, std::uint64_t bytes) const {
  if (parts_.connection.closing() && !parts_.inbox.awaited(tag))
    return Status(Code::kUnavailable, "the peer is closing the connection");
  return parts_.inbox.admit(tag, bytes);
}

Status UserMessages::on_message(const wire::Frame& frame) {
  const std::uint64_t tag = frame.header.value;
  const std::uint64_t id = frame.header.id;
  if ((frame.header.flags & wire::kFlagAttachments) != 0)
    return parts_.lent.on_message(frame, admit(tag, frame.body.size()));
  const bool offered = (frame.header.flags & wire::kFlagRendezvous) != 0;
  Inbox& inbox = parts_.inbox;
  Outbox& outbox = parts_.outbox;
  wire::Offer offer;
  offer.length_bytes = frame.body.size();
  if (offered) {
    auto decoded = wire::decode_offer(frame.body);
    if (!decoded) return std::move(decoded).error();
    offer = *decoded;
  }
  if (const Status refused = admit(tag, offer.length_bytes); !refused.ok()) {
    if (offered) outbox.answer(wire::FrameType::kRelease, offer.lease.packed());
    outbox.answer(wire::FrameType::kUserAck, id, refused);
    return {};
  }
  const Inbox::Place message = inbox.add(tag, offer.length_bytes);
  if (!offered) {
    inbox.complete(message, Payload(frame.body));
    outbox.answer(wire::FrameType::kUserAck, id);
    return {};
  }
  return parts_.puller.pull(frame, [&inbox, &outbox, id, message](Result<Payload> body) {
    const Status status = body.status();
    if (body) {
      inbox.complete(message, std::move(*body));
    } else {
      inbox.drop(message);
    }
    outbox.answer(wire::FrameType::kUserAck, id, status);
  });
}

Status UserMessages::on_ack(const wire::Frame& frame) {
  auto expected = parts_.calls.expected(frame.header, Kind::kSend);
  if (!expected) return std::move(expected).error();
  const Status status = frame.header.code != 0 ? wire::error_of(frame) : Status();
  parts_.calls.finish(Handle::unpack(frame.header.id), {status, {}, {}});
  return {};
}

}  // namespace slime::rpc
