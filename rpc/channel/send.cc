#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec/body_pool.h"

// What leaves: frames, directly or through the queue, and lent memory.
namespace slime::rpc {
namespace {

// At most `limit` bytes, not cut inside a UTF-8 sequence.
std::string_view cut_text(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

bool ChannelImpl::fits(std::size_t text, std::size_t body) const {
  const std::size_t slot = message_bytes_;
  return text <= slot && body <= slot && sizeof(wire::FrameHeader) + text + body <= slot;
}

// The body goes into the frame if it fits, else it is lent to the peer and the frame offers it.
Status ChannelImpl::put_body(OutFrame& frame, ByteVector&& body, Handle& lent) {
  if (!fits(frame.text.size(), body.size())) return lend(frame, std::move(body), lent);
  frame.body = std::move(body);
  return {};
}

// Under the lease that the frame has, or under a new one.
Status ChannelImpl::lend(OutFrame& frame, ByteVector&& body, Handle& lent) {
  if (!fits(frame.text.size(), wire::Offer::kMaxEncodedBytes)) {
    return Status(Code::kInvalidArgument,
                  str("the names of the method and the metadata do not fit into a message of ",
                      endpoint_->max_message_bytes(), " bytes"));
  }
  const std::uint64_t limit = ready_ ? peer_.max_payload_bytes : options_.max_payload_bytes;
  if (body.size() > limit) {
    return Status(Code::kInvalidArgument, str("a payload of ", body.size(), " bytes: ", options_.peer_name,
                                              " takes at most ", limit));
  }
  const auto use = body.size() < limits::kLendLastingBytes ? transport::Use::kOnce : transport::Use::kLasting;
  auto region = device_.register_memory(body.data(), body.size(), transport::Rights::kRemoteRead,
                                        transport::MemoryKind::kHost, use);
  if (!region) return std::move(region).error().with_context("lending a payload");
  if (lent.generation == 0) {
    const auto handle = lent_.insert(Lent());
    if (!handle) return Status(Code::kResourceExhausted, "too many payloads are lent to the peer");
    lent = *handle;
  }
  Lent& record = *lent_.find(lent);
  record.bytes = std::move(body);
  record.region = std::move(*region);
  wire::Offer offer;
  offer.lease = lent;
  offer.length_bytes = record.bytes.size();
  offer.region = record.region.describe();
  frame.header.flags |= wire::kFlagRendezvous;
  frame.body = offer.encode();
  ++counters_.rendezvous;
  return {};
}

void ChannelImpl::SendOperation::complete(Status status) noexcept {
  channel.free_operations_.push_back(this);
  if (!status.ok()) channel.on_send_failed(std::move(status));
}

// A broken endpoint ends everything in on_closed, which follows. A healthy one gave up on a frame that the
// peer did not take for too long; frames depend on each other, so that is the end, too.
void ChannelImpl::on_send_failed(Status status) {
  const Scope scope(*this, true);
  if (closed_ || endpoint_closing_ || !endpoint_->error().ok()) return;
  closing_ = true;
  endpoint_closing_ = true;
  endpoint_->reset(std::move(status));
}

// False, and nothing happened, when the endpoint refuses: it wants credits, or it is broken and on_closed
// follows.
bool ChannelImpl::try_send(OutFrame& frame) {
  if (endpoint_closing_ || closed_) return false;
  if (frame.header.type == wire::FrameType::kRequest) {
    frame.header.value =
        frame.deadline == kNever
            ? wire::kNoDeadline
            : static_cast<std::uint64_t>(std::max<std::int64_t>((frame.deadline - loop_.now()).count(), 0));
  }
  if (frame.one_way) mark_one_way(frame);
  frame.header.text_bytes = static_cast<std::uint32_t>(frame.text.size());
  frame.header.body_bytes = static_cast<std::uint32_t>(frame.body.size());
  if (free_operations_.empty()) {
    operations_.push_back(std::make_unique<SendOperation>(*this));
    free_operations_.push_back(operations_.back().get());
  }
  SendOperation* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->deadline = kNever;
  const std::array<Bytes, 3> parts = {std::as_bytes(std::span(&frame.header, 1)), Bytes(frame.text),
                                      Bytes(frame.body)};
  // The peer may close once it has our kClosing, so that one follows the one-sided operations of our owner.
  const transport::SendOptions options{.after_writes = frame.header.type == wire::FrameType::kClosing,
                                       .late_completion = frame.header.type == wire::FrameType::kRequest};
  if (!endpoint_->send(parts, *operation, options).ok()) {
    free_operations_.push_back(operation);
    return false;
  }
  if (Pending* pending = pending_.find(frame.pending)) {
    pending->sent = true;
    pending->queued.reset();
    if (frame.one_way) one_way_left(frame);
  }
  return true;
}

// Counts one more answer in the queue. False: the peer lets us answer and takes no answers, so it is broken,
// or wants our memory, and was reset.
bool ChannelImpl::admit_queued_answer() {
  if (queued_answers_ >= limits::kAnswersPerRequest * options_.max_calls + stream_answers()) {
    endpoint_closing_ = true;
    endpoint_->reset(Status(Code::kResourceExhausted, str(options_.peer_name, " takes no answers")));
    return false;
  }
  ++queued_answers_;
  return true;
}

bool ChannelImpl::submit(OutFrame&& frame) {
  if (closed_) return false;
  const bool may_leave = ready_ || frame.header.type == wire::FrameType::kHello;
  if (queue_.empty() && may_leave && try_send(frame)) {
    give_body(std::move(frame.body));
    return true;
  }
  if (frame.answer()) {
    if (!admit_queued_answer()) return false;
    queue_.push_back(std::move(frame));
    return true;
  }
  if (queued_bytes_ + frame.size() > options_.queue_bytes) return false;
  queued_bytes_ += frame.size();
  const Handle handle = frame.pending;
  queue_.push_back(std::move(frame));
  pending_.find(handle)->queued = std::prev(queue_.end());
  return true;
}

void ChannelImpl::flush() {
  while (!queue_.empty()) {
    const auto first = queue_.begin();
    if (!ready_ && first->header.type != wire::FrameType::kHello) return;
    if (!try_send(*first)) return;
    unqueue(first);
  }
  if (streams_ != nullptr) pump_stalled();
}

void ChannelImpl::unqueue(Queue::iterator frame) {
  if (frame->answer()) {
    --queued_answers_;
  } else {
    queued_bytes_ -= frame->size();
  }
  give_body(std::move(frame->body));
  queue_.erase(frame);
}

void ChannelImpl::put_status(OutFrame& frame, const Status& status) const {
  frame.header.code = static_cast<std::uint8_t>(status.code());
  if (status.maybe_executed()) frame.header.flags |= wire::kFlagMaybeExecuted;
  const std::size_t room = endpoint_->max_message_bytes() - sizeof frame.header - frame.text.size();
  const auto text = cut_text(status.text(), std::min(limits::kErrorTextBytes, room));
  ByteWriter(frame.text).append(as_bytes(text));
}

// A frame that answers, of any type but a reply.
void ChannelImpl::answer(wire::FrameType type, std::uint64_t id, const Status& status, ByteVector body) {
  OutFrame frame;
  frame.header.type = type;
  frame.header.id = id;
  if (status.ok()) {
    frame.body = std::move(body);
  } else {
    put_status(frame, status);
  }
  submit(std::move(frame));
}

// The rest of a reply, whose text may have begun.
[[gnu::always_inline]] inline void ChannelImpl::finish_reply(OutFrame&& frame, const Served& served,
                                                             Result<ByteVector>&& reply) {
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  if (served.one_way) {
    // Whoever takes no answers gets fewer reports, instead of a reset.
    if (reply || queued_answers_ >= options_.max_calls) return;
    frame.header.flags |= wire::kFlagOneWay;
  }
  if (reply) {
    Handle lent;
    Status status = put_body(frame, std::move(*reply), lent);
    if (status.ok() && lent.generation != 0) status = admit_answer(frame, lent, served.deadline);
    if (!status.ok())
      put_status(frame, std::move(status).with_context("the reply").with_maybe_executed(true));
  } else {
    put_status(frame, reply.error());
  }
  submit(std::move(frame));
}

void ChannelImpl::send_reply(const Served& served, Result<ByteVector>&& reply) {
  finish_reply({}, served, std::move(reply));
}

void ChannelImpl::send_reply(const Served& served, Result<ByteVector>&& reply,
                             const wire::ServerTimes& times) {
  OutFrame frame;
  frame.header.flags = wire::kFlagTiming;
  ByteWriter(frame.text).write(times);
  finish_reply(std::move(frame), served, std::move(reply));
}

// --------------------------------------------------------------------------------------- answers of handlers

void ChannelImpl::take_answers() {
  const Scope scope(*this, true);
  AnswerBox::Waiting waiting = box_->take();
  for (AnswerBox::GivenBack& message : waiting.messages) take_back(std::move(message));
  for (const std::uint64_t key : waiting.streams) attend_user(key);
  for (AnswerBox::Answer& answer : waiting.answers) {
    if (answer.refused_bytes != 0)
      answer.reply = over_budget(answer.refused_bytes).with_context("the reply").with_maybe_executed(true);
    answer_held_ = std::move(answer.held);
    send_answer(answer.served, std::move(answer.reply));
    answer_held_.give_back();  // of one that lends nothing
  }
}

void ChannelImpl::send_answer(Handle handle, Result<ByteVector>&& reply) {
  const Served* found = served_.find(handle);
  if (found == nullptr) return;
  const Served served = *found;
  if (streams_ != nullptr && hold_answer(handle, served, reply)) return;
  served_.erase(handle);
  if (box_->any_fates()) return send_known_answer(handle, served, std::move(reply));
  if (served.timed) return send_timed(handle, served, std::move(reply));
  send_reply(served, std::move(reply));
}

}  // namespace slime::rpc
