#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec.h"

// Answers to the peer: of handlers, in time or late, and refusals.
namespace slime::rpc {
namespace {

std::uint64_t count_of(Nanos span) { return static_cast<std::uint64_t>(span.count()); }

}  // namespace

void ChannelImpl::flush() {
  outbox_.flush();
  if (streams_ != nullptr && outbox_.empty()) pump_stalled();
}

// The rest of a reply, whose text may have begun.
[[gnu::always_inline]] inline void ChannelImpl::finish_reply(OutFrame&& frame, const Served& served,
                                                             Result<ByteVector>&& reply) {
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  if (served.one_way) {
    // Whoever takes no answers gets fewer reports, instead of a reset.
    if (reply || outbox_.queued_answers() >= connection_.options().max_calls) return;
    frame.header.flags |= wire::kFlagOneWay;
  }
  if (reply) {
    Handle lent;
    Status status = lending_.put_body(frame, std::move(*reply), lent);
    if (status.ok() && lent.generation != 0)
      status = lending_.admit_answer(frame, lent, served.deadline, answer_held_);
    if (!status.ok())
      outbox_.put_status(frame, std::move(status).with_context("the reply").with_maybe_executed(true));
  } else {
    outbox_.put_status(frame, reply.error());
  }
  outbox_.submit(frame);
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
  for (AnswerBox::GivenBack& given : waiting.messages)
    inbox_.put_back(given.tag, given.number, std::move(given.message));
  for (const std::uint64_t key : waiting.streams) attend_user(key);
  for (AnswerBox::Answer& answer : waiting.answers) {
    if (answer.refused_bytes != 0)
      answer.reply =
          lending_.over_budget(answer.refused_bytes).with_context("the reply").with_maybe_executed(true);
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

// The answer to a request that was cancelled meanwhile, or has attachments.
void ChannelImpl::send_known_answer(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  AnswerBox::Fate fate = box_->forget(handle.packed());
  if (fate.cancelled)
    reply = Status(Code::kCancelled, "its caller does not wait any more").with_maybe_executed(true);
  if (!reply || fate.attachments.empty()) {
    if (served.timed) return send_timed(handle, served, std::move(reply));
    return send_reply(served, std::move(reply));
  }
  OutFrame frame;
  wire::ServerTimes times;
  if (served.timed) {
    times = take_timed(handle);
    frame.header.flags = wire::kFlagTiming;
    ByteWriter(frame.text).write(times);
  }
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  Handle lent;
  AttachedBody body{.body = std::move(*reply), .attachments = std::move(fate.attachments)};
  Status status = lending_.put_body(frame, std::move(body), lent);
  if (status.ok() && lent.generation != 0)
    status = lending_.admit_answer(frame, lent, served.deadline, answer_held_);
  if (!status.ok()) {
    status = std::move(status).with_context("the reply").with_maybe_executed(true);
    if (served.timed) return send_reply(served, std::move(status), times);
    return send_reply(served, std::move(status));
  }
  outbox_.submit(frame);
}

// ------------------------------------------------------------------------------------- times and metadata

void ChannelImpl::extend(CallInfo& info, const wire::Frame& frame, Handle served) {
  wire::Extras extras = wire::extras_of(frame);
  auto names = std::make_shared<CallNames>(*info.names);
  names->extras = std::make_shared<CallExtras>();
  names->extras->metadata = std::move(extras.metadata);
  names->extras->received = connection_.loop().clock().now();
  if (extras.timed) {
    names->extras->timed = true;
    served_.find(served)->timed = true;
    timed_.emplace(served.packed(), names->extras);
  }
  info.lie_in(std::move(names));
}

// Of a request that does not reach the server: it took no time.
void ChannelImpl::refuse_request(const wire::Frame& frame, const Served& served, Status refusal) {
  const bool extended = (frame.header.flags & wire::kFlagMetadata) != 0;
  if (extended && wire::extras_of(frame).timed)
    return send_reply(served, std::move(refusal), wire::ServerTimes());
  send_reply(served, std::move(refusal));
}

wire::ServerTimes ChannelImpl::take_timed(Handle served) {
  const auto extras = timed_.extract(served.packed());
  const CallTiming times = extras.mapped()->times(connection_.loop().clock().now());
  return {count_of(times.queue), count_of(times.handler)};
}

void ChannelImpl::send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  send_reply(served, std::move(reply), take_timed(handle));
}

// ------------------------------------------------------------------------------------------------- one-way

// `method`: null if unknown (older peers do not send its number).
void ChannelImpl::on_one_way_failed(Status status, const PeerMethod* method) {
  ++counters_.one_way_failed;
  if (method != nullptr)
    status = std::move(status).with_context(method_label(method->service, method->method));
  if (!connection_.destroying()) owner_.on_one_way_failed(status);
}

const std::shared_ptr<Request::Responder>& ChannelImpl::one_way_responder() {
  if (one_way_ == nullptr) one_way_ = std::make_shared<OneWayBox>(box_, connection_.loop().clock());
  return one_way_;
}

}  // namespace slime::rpc
