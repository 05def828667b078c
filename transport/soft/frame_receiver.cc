#include "transport/soft/frame_receiver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/str.h"

namespace slime::transport::soft {
namespace {

constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

}  // namespace

FrameReceiver::FrameReceiver(Link& link, const Parts& parts)
    : link_(link),
      parts_(parts),
      message_bytes_(std::max(link.port->pool->options().slot_bytes, link.long_bytes)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(limits::kReceiveBufferBytes)) {}

// ---------------------------------------------------------------------------------------- the wire

Status FrameReceiver::receive() {
  std::size_t moved = read_in_place();
  while (link_.working() && moved < link_.port->pace.turn_bytes()) {
    if (moved > 0 && begin_ == end_ && payload_.left() == 0 && link_.wire->shows()) break;
    const std::size_t direct = payload_.direct_room();
    const std::size_t room = direct + buffer_room(direct);
    const Result<std::size_t> got = fill();
    if (!link_.working()) break;
    if (!got) return got.error();
    link_.counters.bytes_received += *got;
    moved += *got;
    if (*got == room) expects_bulk_ = false;  // unless the following frames are large
    Bytes input(buffer_.get() + begin_, end_ - begin_);
    parse(input, kEverything);
    begin_ = end_ - input.size();
    if (*got < room) break;  // the wire is empty, or reports further bytes in the next turn
  }
  return {};
}

// Parses frames in the wire's own memory, without copying them. A frame that is not complete there
// is read into the buffer instead. Stops after kFetchTold bytes of fetches: the peer is told of
// them, and asks for more while this side reads the rest.
std::size_t FrameReceiver::read_in_place() {
  std::size_t moved = 0;
  const std::uint64_t fetched_most = parts_.incoming.fetched() + limits::kFetchTold;
  while (link_.working() && moved < link_.port->pace.turn_bytes() && begin_ == end_ &&
         (!parts_.incoming.awaits() || parts_.incoming.fetched() < fetched_most)) {
    const Bytes there = link_.wire->peek();
    if (there.empty()) break;
    Bytes input = there;
    parse(input, fetched_most);
    const std::size_t used = there.size() - input.size();
    if (used == 0) break;
    link_.wire->skip(used);
    link_.counters.bytes_received += used;
    moved += used;
  }
  return moved;
}

// Returns how many bytes the next read may place into the buffer. `direct`: bytes that it first
// places at the payload's destination.
std::size_t FrameReceiver::buffer_room(std::size_t direct) const {
  const std::size_t room = limits::kReceiveBufferBytes - (end_ - begin_);
  const bool discards = direct == 0 && payload_.left() > 0;
  return expects_bulk_ && !discards ? std::min(room, limits::kReceiveAroundBulk) : room;
}

// Reads from the wire: the rest of the current payload straight to its destination, and later bytes
// into the buffer. While a payload is incomplete, the buffer is empty.
Result<std::size_t> FrameReceiver::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const Pin pin = pin_payload();
  if (!link_.working()) return std::size_t{0};
  std::array<iovec, limits::kListedBlocks + 1> parts;
  const std::size_t direct = payload_.direct_room();
  const std::size_t behind = buffer_room(direct);
  std::size_t count = payload_.places(parts);
  if (behind > 0) parts[count++] = {buffer_.get() + end_, behind};
  Result<std::size_t> got = link_.wire->read(std::span(parts.data(), count));
  if (!got) return got;
  const std::size_t placed = std::min(*got, direct);
  if (placed > 0) {
    if (payload_.kind() == Payload::Kind::kRead) link_.note_progress();
    note_bulk(placed);
    payload_.placed(placed);
  }
  end_ += *got - placed;
  return got;
}

void FrameReceiver::note_bulk(std::size_t bytes) {
  if (payload_.in_region()) link_.port->pace.note_bulk(bytes);
}

// Pins the region that the current payload goes into, while bytes are placed there. If the region
// was closed: the rest of a peer's write is thrown away; a read of this side breaks the connection,
// because its data have no destination.
Pin FrameReceiver::pin_payload() {
  Pin pin = payload_.pin();
  if (pin || !payload_.in_region()) return pin;
  if (payload_.kind() == Payload::Kind::kWrite) {
    parts_.incoming.refuse();
    payload_.discard();
  } else {
    link_.break_now(Status(Code::kUnavailable, "a local region was closed while a read used it"));
  }
  return pin;
}

// ------------------------------------------------------------------------------------------ frames

// Parses frames at the front of `input` and removes them. Stops early once `fetched_most` bytes of
// fetches have been handled in all and further fetches wait.
void FrameReceiver::parse(Bytes& input, std::uint64_t fetched_most) {
  while (link_.working() && (!parts_.incoming.awaits() || parts_.incoming.fetched() < fetched_most)) {
    if (payload_.kind() != Payload::Kind::kNone) {
      if (payload_.left() > 0) {
        if (input.empty()) return;
        take_payload(input);
      }
      if (link_.working() && payload_.left() == 0) end_payload();
      continue;
    }
    if (input.size() < kHeaderBytes) return;
    const Result<FrameHeader> header = decode_header(input.first(kHeaderBytes), message_bytes_);
    if (!header) {
      link_.corrupt(header.error().text());
      return;
    }
    input = input.subspan(kHeaderBytes);
    begin_frame(*header);
  }
}

// Moves bytes of the current payload from `input` to their destination.
void FrameReceiver::take_payload(Bytes& input) {
  const Pin pin = pin_payload();
  if (!link_.working()) return;
  const std::size_t bytes = std::min(payload_.left(), input.size());
  if (payload_.kind() == Payload::Kind::kRead) link_.note_progress();
  note_bulk(bytes);
  payload_.take(input.first(bytes));
  input = input.subspan(bytes);
}

void FrameReceiver::begin_frame(const FrameHeader& header) {
  if (header.type != FrameType::kFetch && parts_.incoming.awaits()) {
    parts_.incoming.fetch_awaited();
    if (!link_.working()) return;
  }
  frame_ = header;
  payload_.begin(header.payload_bytes);
  expects_bulk_ |= header.payload_bytes >= limits::kReceiveBulkBytes;
  switch (header.type) {
    case FrameType::kMessage:
      return begin_message(header);
    case FrameType::kWrite:
      return parts_.incoming.begin_bytes(header, payload_);
    case FrameType::kWriteBlocks:
      return parts_.incoming.begin_list(header, payload_);
    case FrameType::kReadData:
      return parts_.requests.begin_data(header, payload_);
    case FrameType::kCredit:
      on_grant(header.value);
      return;
    case FrameType::kCreditReturn:
      return on_credit_return(header);
    case FrameType::kImm:
      return on_imm_frame(header);
    case FrameType::kAck:
      return parts_.writes.on_ack(header);
    case FrameType::kReadRequest:
      return parts_.answers.on_read_request(header);
    case FrameType::kReadDone:
      return parts_.requests.on_read_done(header);
    case FrameType::kGoodbye:
      return link_.break_now(
          Status(Code::kUnavailable, str("closed by peer: ", link_.who.peer_name, " closed the connection")));
    case FrameType::kFetchAdd:
      return parts_.answers.on_atomic_request(header, 0);
    case FrameType::kCompareSwap:
      return payload_.place(Payload::Kind::kExpected, reinterpret_cast<std::byte*>(&expected_));
    case FrameType::kAtomicReply:
      return parts_.requests.on_atomic_reply(header);
    case FrameType::kFetch:
      return parts_.incoming.begin_fetch(header, payload_);
    case FrameType::kFetched:
      parts_.writes.on_fetched(header.value);
      return;
  }
}

void FrameReceiver::end_payload() {
  const Payload::Kind kind = payload_.end();
  if (kind == Payload::Kind::kMessage) {
    ReceiveSlot* slot = take_slot();
    ++link_.counters.messages_received;
    link_.port->pace.note_message();
    parts_.inbox.deliver(Message(Bytes(slot->memory(), frame_.payload_bytes), slot));
    return;
  }
  if (kind == Payload::Kind::kExpected) return parts_.answers.on_atomic_request(frame_, expected_);
  if (frame_.type == FrameType::kReadData) return parts_.requests.end_data(frame_);
  if (kind == Payload::Kind::kTable) {
    expects_bulk_ |= frame_.payload_bytes >= limits::kReceiveBulkBytes;
    return parts_.incoming.end_table(frame_, payload_);
  }
  if (kind == Payload::Kind::kFetch) return parts_.incoming.end_fetch(frame_);
  parts_.incoming.end_bytes(frame_);
}

// ---------------------------------------------------------------- messages, notifications, credits

void FrameReceiver::begin_message(const FrameHeader& header) {
  SoftPool& pool = *link_.port->pool;
  const std::uint32_t slots = slots_of(header.payload_bytes, pool.options().slot_bytes);
  if ((header.value != 0 && !on_grant(header.value)) || !use_credits(header, slots)) return;
  slot_ = slots == 1 ? &pool.take_slot(link_.given.account()) : &pool.take_long(slots, link_.given.account());
  payload_.place(Payload::Kind::kMessage, slot_->memory());
  link_.top_up();
}

void FrameReceiver::on_imm_frame(const FrameHeader& header) {
  const Code code = parts_.incoming.end_with_imm(header);
  if (!link_.working() || !use_credits(header, 1)) return;
  parts_.incoming.queue_ack(header.operation, code);
  if (!link_.working()) return;
  if (code == Code::kOk) {
    ++link_.counters.notifications_received;
    parts_.inbox.deliver(static_cast<std::uint32_t>(header.value));
  } else {
    link_.given.take_back(1);
  }
  link_.top_up();
}

bool FrameReceiver::use_credits(const FrameHeader& header, std::uint32_t count) {
  if (!link_.given.receive(count)) {
    link_.corrupt("it sent more messages than it had credits");
    return false;
  }
  if (header.flags == kFlagStarved) link_.given.grow();
  return true;
}

bool FrameReceiver::on_grant(std::uint64_t limit) {
  if (link_.credits.raise(limit) != SendCredits::Raise::kRaised) {
    link_.corrupt(str("it granted ", limit, " messages after ", link_.credits.limit()));
    return false;
  }
  if (link_.credits.has_spare()) link_.timer.arm(link_.credits.idle_at());
  return true;
}

void FrameReceiver::on_credit_return(const FrameHeader& header) {
  if (header.value == 0 || !link_.given.take_returned(header.value))
    return link_.corrupt(str("it gave back ", header.value, " credits"));
  link_.top_up();
}

}  // namespace slime::transport::soft
