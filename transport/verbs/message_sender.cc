#include "transport/verbs/message_sender.h"

#include <algorithm>
#include <array>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {

bool MessageSender::send_now(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation) {
  CreditBook& credits = link_.credits;
  const QueuePair& pair = link_.queues.pair(0);
  if (link_.in_burst || !link_.opening.got_hello || link_.opening.hello_due || !messages_.empty() ||
      credits.peer_starved() || credits.ours.free() == 1 || credits.given.low() ||
      bytes > std::min(pair.max_inline(), limits::kPromptBytes) ||
      pair.unsignaled() + 1 >= limits::kMessageSignalInterval)
    return false;
  std::array<std::byte, limits::kPromptBytes> copy;  // the device takes them during the post
  copy_parts(parts, copy.data());
  ibv_sge source{address_of(copy.data()), bytes, 0};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_INLINE;
  request.sg_list = &source;
  request.num_sge = bytes > 0 ? 1 : 0;
  request.imm_data = htobe32(credits.plain_note().encode());
  if (!link_.post_message(request, false)) return false;
  operation.mark_posted();
  credits.given.announce();
  credits.ours.use();
  ++link_.counters.messages_sent;
  link_.counters.bytes_sent += bytes;
  credits.ours.note_send(link_.loop->now());
  sent_.push_back({&operation, true});
  link_.schedule_housekeeping();
  return true;
}

Status MessageSender::queue(std::span<const Bytes> parts, std::uint32_t bytes, Operation& operation,
                            SendOptions options) {
  const Result<StagingPool::Buffer> buffer = link_.port->staging().take();
  if (!buffer) return buffer.status();
  copy_parts(parts, buffer->data);
  operation.mark_posted();
  link_.credits.ours.use();
  ++link_.counters.messages_sent;
  Waiting message;
  message.operation = &operation;
  message.deadline = link_.take_deadline(operation);
  message.barrier = options.after_writes ? link_.operations.barrier() : 0;
  message.buffer = buffer->index;
  message.bytes = bytes;
  messages_.push_back(message);
  return {};
}

void MessageSender::run() {
  while (!messages_.empty() && link_.working() && front_may_go()) {
    const auto queued =
        static_cast<std::uint32_t>(std::min<std::size_t>(messages_.size(), limits::kChainRequests));
    const std::uint32_t most = link_.queues.room(0, queued);
    if (most == 0) return;
    Chain& chain = link_.port->empty_chain();
    while (chain.count < most && front_may_go()) {
      const Waiting message = messages_.pop_front();
      chain.senders[chain.count] = {message.operation, message.buffer};
      add_to(chain, message);
    }
    link_.credits.given.announce();
    std::uint32_t accepted = 0;
    const Status posted = link_.queues.post_chain(0, chain, accepted);
    if (!posted.ok()) link_.break_fabric(link_.path.unavailable(posted));
    for (std::uint32_t i = 0; i < chain.count; ++i) {
      const Chain::Sender& sender = chain.senders[i];
      // Frees the buffer now if the message was sent inline, because the device has copied it, or
      // if the device refused the message, because no completion will free its buffer.
      if (i >= accepted || chain.owners[i].buffer == QueuePair::Owner::kNone)
        link_.port->give_buffer(sender.buffer);
      sent_.push_back({sender.operation, i < accepted});
    }
  }
}

void MessageSender::add_to(Chain& chain, const Waiting& message) {
  const std::uint32_t place = chain.count;
  const QueuePair& pair = link_.queues.pair(0);
  const StagingPool::Buffer buffer = link_.port->staging().buffer(message.buffer);
  ibv_send_wr& request = chain.add(IBV_WR_SEND_WITH_IMM);
  request.sg_list[0] = {address_of(buffer.data), message.bytes, buffer.lkey};
  request.num_sge = message.bytes > 0 ? 1 : 0;
  request.imm_data = htobe32(link_.credits.next_note(messages_.empty()).encode());
  link_.counters.bytes_sent += message.bytes;
  const bool fits = message.bytes <= pair.max_inline();
  if (fits) request.send_flags = IBV_SEND_INLINE;
  // A message in a buffer asks for a completion, which frees the buffer. Of the inline messages,
  // only one in limits::kMessageSignalInterval asks for a completion.
  if (!fits || pair.unsignaled() + chain.count >= limits::kMessageSignalInterval)
    request.send_flags |= IBV_SEND_SIGNALED;
  chain.owners[place] = {Handle{}, 1, fits ? QueuePair::Owner::kNone : message.buffer};
  chain.owner_count = chain.count;
}

void MessageSender::complete_sent() {
  completing_.swap(sent_);
  for (const Sent& sent : completing_)
    link_.complete(*sent.operation, sent.accepted ? Status() : link_.life.leftover());
  completing_.clear();
}

void MessageSender::expire(TimePoint now, TimePoint& next) {
  std::vector<Operation*> expired;
  messages_.erase_if([&](const Waiting& message) {
    if (message.deadline > now) {
      next = std::min(next, message.deadline);
      return false;
    }
    expired.push_back(message.operation);
    link_.port->give_buffer(message.buffer);
    link_.credits.ours.unuse();
    --link_.counters.messages_sent;
    return true;
  });
  for (Operation* operation : expired) {
    link_.complete(*operation, Status(Code::kDeadlineExceeded,
                                      str("a message to ", link_.path.peer_name(),
                                          " could not be handed to the device before its deadline")));
  }
}

void MessageSender::end() {
  while (!messages_.empty()) {
    const Waiting message = messages_.pop_front();
    link_.port->give_buffer(message.buffer);
    link_.complete(*message.operation, link_.life.leftover());
  }
}

}  // namespace slime::transport::verbs
