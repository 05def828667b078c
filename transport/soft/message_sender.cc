#include "transport/soft/message_sender.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/str.h"

namespace slime::transport::soft {

bool MessageSender::send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                             const SendOptions& options) {
  if ((!std::exchange(prompt_, false) && !always_prompt_) || options.after_writes) return false;
  return write_now(parts, total, operation, options.late_completion);
}

// Writes a short message straight to the wire, without queue and buffer. Returns false if that is
// not possible now or the wire took nothing.
bool MessageSender::write_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                              bool late_completion) {
  std::array<iovec, limits::kPromptParts + 1> pieces;
  if (frames_.wire_full() || (link_.in_burst && !always_prompt_) || !frames_.empty() || !messages_.empty() ||
      total > limits::kPromptBytes || parts.size() > limits::kPromptParts)
    return false;
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
  link_.credits.use();
  link_.counters.bytes_sent += *taken;
  if (*taken == kHeaderBytes + total) {
    ++link_.counters.messages_sent;
    link_.finish_later(operation);
  } else {
    // The wire took only a part: the rest of the message becomes the first frame of the queue.
    link_.add_message();
    Staged& frame = frames_.push(header);
    frame.message.bytes = frames_.take_buffer();
    frame.message.bytes.resize(total);
    copy_parts(parts, frame.message.bytes.data());
    frame.data = frame.message.bytes.data();
    frame.message.operation = &operation;
    frame.message.deadline = link_.take_deadline(operation);
    frame.sent = *taken;
    late_completion = false;
  }
  if (!link_.in_burst) link_.schedule_turn(late_completion);
  return true;
}

void MessageSender::queue(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                          const SendOptions& options) {
  operation.mark_posted();
  link_.credits.use();
  link_.add_message();
  OutMessage& message = messages_.push_back({});
  message.operation = &operation;
  message.deadline = link_.take_deadline(operation);
  message.barrier = options.after_writes ? link_.operations.barrier() : 0;
  message.header.type = FrameType::kMessage;
  message.header.payload_bytes = total;
  message.header.flags = std::exchange(link_.starved, false) ? kFlagStarved : 0;
  message.bytes = frames_.take_buffer();
  message.bytes.clear();
  for (const Bytes part : parts) message.bytes.insert(message.bytes.end(), part.begin(), part.end());
  link_.schedule();
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
    link_.credits.unuse();
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
