#include "transport/soft/message_sender.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/str.h"

namespace slime::transport::soft {
namespace {

// Appends the bytes of `parts`, without the first `skipped`, to `to`.
void append_from(std::span<const Bytes> parts, std::size_t skipped, ByteVector& to) {
  for (Bytes part : parts) {
    const std::size_t left_out = std::min(skipped, part.size());
    skipped -= left_out;
    part = part.subspan(left_out);
    append_bytes(to, part);
  }
}

}  // namespace

bool MessageSender::send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                             const SendOptions& options) {
  const bool prompt = std::exchange(prompt_, false) || always_prompt_ || link_.is_long(total);
  if (!prompt || options.after_writes) return false;
  return write_now(parts, total, operation, options.late_completion);
}

// Writes a short or a long message straight to the wire, without queue and buffer. Returns false if
// that is not possible now or the wire took nothing.
bool MessageSender::write_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                              bool late_completion) {
  std::array<iovec, limits::kPromptParts + 1> pieces;
  if (frames_.wire_full() || !frames_.empty() || !messages_.empty() || parts.size() > limits::kPromptParts)
    return false;
  const bool gathers = total > limits::kPromptBytes || (link_.in_burst && !always_prompt_);
  if (gathers && !link_.is_long(total)) return false;
  FrameHeader header;
  header.type = FrameType::kMessage;
  header.payload_bytes = total;
  header.flags = link_.starved ? kFlagStarved : 0;
  header.value = link_.given.unannounced() ? link_.given.granted() : 0;
  pieces[0] = {&header, kHeaderBytes};
  for (std::size_t i = 0; i < parts.size(); ++i)
    pieces[i + 1] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  const Result<std::size_t> taken = link_.wire->write(std::span(pieces).first(parts.size() + 1));
  if (!taken) {
    frames_.lost(taken.error());
    return false;
  }
  if (*taken == 0) return false;
  link_.starved = false;
  link_.take_grant();
  operation.mark_posted();
  link_.credits.use(slots_of(total, link_.peer.slot_bytes));
  link_.counters.bytes_sent += *taken;
  if (*taken == kHeaderBytes + total) {
    ++link_.counters.messages_sent;
    link_.port->pace.note_message();
    link_.finish_later(operation);
  } else {
    // The wire took only a part: the rest of the message becomes the first frame of the queue.
    Staged& frame = frames_.push(header);
    frame.sent = *taken;
    frame.skipped = std::max(*taken, kHeaderBytes) - kHeaderBytes;
    frames_.note_long(header, true);
    accept(frame.message, operation, total - frame.skipped);
    append_from(parts, frame.skipped, frame.message.bytes);
    frame.data = frame.message.bytes.data();
    late_completion = false;
  }
  if (!link_.in_burst) link_.schedule_turn(late_completion);
  return true;
}

void MessageSender::queue(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                          const SendOptions& options) {
  operation.mark_posted();
  link_.credits.use(slots_of(total, link_.peer.slot_bytes));
  OutMessage& message = messages_.push_back({});
  message.header.payload_bytes = total;
  message.header.type = FrameType::kMessage;
  frames_.note_long(message.header, true);
  accept(message, operation, total);
  append_from(parts, 0, message.bytes);
  message.barrier = options.after_writes ? link_.operations.barrier() : 0;
  message.header.flags = std::exchange(link_.starved, false) ? kFlagStarved : 0;
  link_.schedule();
}

// Counts a message that the wire has not taken completely. `rest`: its bytes that must be kept.
void MessageSender::accept(OutMessage& message, Operation& operation, std::size_t rest) {
  link_.add_message();
  message.operation = &operation;
  message.deadline = link_.take_deadline(operation);
  message.bytes = frames_.take_buffer(rest);
}

void MessageSender::stage() {
  while (!frames_.small_full() && next_may_go()) {
    OutMessage message = messages_.pop_front();
    message.header.value = link_.take_grant();
    Staged& frame = frames_.push(message.header);
    frame.data = message.bytes.data();
    frame.message = std::move(message);
  }
}

void MessageSender::expire(TimePoint now, TimePoint& next) {
  std::vector<Operation*> expired;
  messages_.erase_if([&](const OutMessage& message) {
    if (message.deadline > now) {
      next = std::min(next, message.deadline);
      return false;
    }
    expired.push_back(message.operation);
    frames_.note_long(message.header, false);
    link_.credits.unuse(slots_of(message.header.payload_bytes, link_.peer.slot_bytes));
    return true;
  });
  frames_.expire(now, next, expired);
  for (Operation* operation : expired) {
    link_.complete_message(
        *operation,
        Status(Code::kDeadlineExceeded, str("a message could not be handed to the wire before its deadline: ",
                                            link_.who.peer_name, " does not read")));
  }
}

void MessageSender::drop(const Status& leftover) {
  while (!messages_.empty()) link_.complete_message(*messages_.pop_front().operation, leftover);
}

}  // namespace slime::transport::soft
