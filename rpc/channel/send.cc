#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// What leaves: frames, directly or through the queue, and lent memory.
namespace slime::rpc {

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

}  // namespace slime::rpc
