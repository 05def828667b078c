#include "rpc/channel/served_table.h"

#include <utility>

#include "base/str.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

constexpr std::uint8_t kFlagsLent = wire::kFlagRendezvous | wire::kFlagAttachments;

std::uint64_t count_of(Nanos span) { return static_cast<std::uint64_t>(span.count()); }

}  // namespace

ServedTable::ServedTable(const Parts& parts, std::shared_ptr<AnswerBox> box, Server* server)
    : connection_(parts.connection),
      names_(parts.names),
      outbox_(parts.outbox),
      lending_(parts.lending),
      puller_(parts.puller),
      streams_(parts.streams),
      box_(std::move(box)),
      server_(server),
      served_(parts.connection.options().max_calls) {}

// ---------------------------------------------------------------------------------------- requests

Status ServedTable::on_request(const wire::Frame& frame, transport::Message&& message) {
  ++requests_;
  Served served;
  served.call = frame.header.id;
  served.one_way = (frame.header.flags & wire::kFlagOneWay) != 0;
  if (served.one_way) served.method = frame.header.method;  // its failed answer names the method
  ServedMethod unnumbered;
  auto method = names_.identify(frame, unnumbered, served.method);
  if (!method) return refuse(frame, served, std::move(method).error());
  if (Status refusal = admission(); !refusal.ok()) return refuse(frame, served, std::move(refusal));
  CallInfo info((*method)->names);
  info.connection = connection_.endpoint().id();
  info.raw = (frame.header.flags & wire::kFlagRaw) != 0;
  info.streams = (frame.header.flags & wire::kFlagStream) != 0;
  const std::uint64_t left = frame.header.value;
  if (left <= static_cast<std::uint64_t>(Nanos::max().count())) {
    info.deadline = deadline_after(connection_.now(), Nanos(static_cast<std::int64_t>(left)));
  }
  served.deadline = info.deadline;
  const Handle handle = add(served);
  if ((frame.header.flags & wire::kFlagMetadata) != 0) [[unlikely]]
    add_extras(info, frame, handle);
  if ((frame.header.flags & wire::kFlagStream) != 0)
    SLIME_TRY(streams_.add_served(handle, served.call, info.deadline));
  if ((frame.header.flags & kFlagsLent) != 0)
    return read(frame, std::move(info), (*method)->found, handle, served.one_way);
  if (connection_.is_long(message.bytes().size())) [[unlikely]] {
    take_long(std::move(message), frame.body, std::move(info), (*method)->found, handle, served.one_way);
    return {};
  }
  serve(std::move(info), (*method)->found, Payload(std::move(message), frame.body), handle, served.one_way);
  return {};
}

Status ServedTable::admission() const {
  if (connection_.closing()) return Status(Code::kUnavailable, "the peer is closing the connection");
  if (served_.size() < connection_.options().max_calls) return {};
  return Status(Code::kResourceExhausted, str(served_.size(), " requests wait for their answers already"));
}

Handle ServedTable::add(const Served& served) {
  const Handle handle = *served_.insert(served);
  const std::size_t index = Handle::unpack(served.call).index;
  if (index < by_call_.size() || make_place(index)) by_call_[index] = handle;
  return handle;
}

// Extends by_call_ to hold `index`. The caller's ids are indexes of its own table, so their indexes
// are small. Returns false for an index above the limit: a cancel does not find that request, which
// then runs to its end.
bool ServedTable::make_place(std::size_t index) {
  if (index >= limits::kMaxCalls) return false;
  by_call_.resize(index + 1);
  return true;
}

void ServedTable::add_extras(CallInfo& info, const wire::Frame& frame, Handle handle) {
  wire::Extras extras = wire::extras_of(frame);
  auto names = std::make_shared<CallNames>(*info.names);
  names->extras = std::make_shared<CallExtras>();
  names->extras->metadata = std::move(extras.metadata);
  names->extras->received = connection_.loop().clock().now();
  if (extras.timed) {
    names->extras->timed = true;
    served_.find(handle)->timed = true;
    timed_.emplace(handle.packed(), names->extras);
  }
  info.rebind_names(std::move(names));
}

// Reads the lent body of a request, then serves the request.
Status ServedTable::read(const wire::Frame& frame, CallInfo&& info, Server::Found& found, Handle handle,
                         bool one_way) {
  const CallInfo asked = info;
  return puller_.pull_request(frame, asked, found, handle, when_granted(handle),
                              when_read(std::move(info), handle, one_way));
}

// Serves a request whose body has come in a long message, when the server has a place for it.
void ServedTable::take_long(transport::Message&& message, Bytes body, CallInfo&& info, Server::Found& found,
                            Handle handle, bool one_way) {
  const CallInfo asked = info;
  puller_.take_request(std::move(message), body, asked, found, handle, when_granted(handle),
                       when_read(std::move(info), handle, one_way));
}

Task ServedTable::when_granted(Handle handle) {
  return [box = box_, ticket = handle.packed()] { box->granted(ticket); };
}

Puller::Handler ServedTable::when_read(CallInfo&& info, Handle handle, bool one_way) {
  return [this, handle, one_way, info = std::move(info)](Result<Payload> body) mutable {
    if (!body) {
      send_answer(handle, std::move(body).error());
    } else if (box_->cancelled(handle.packed(), kNever)) {
      send_answer(handle, Status(Code::kCancelled, "cancelled while the request was read"));
    } else {
      Server::Found nothing;
      // A large request counts as received when its body has been read.
      if (info.names->extras) info.names->extras->received = connection_.loop().clock().now();
      serve(std::move(info), nothing, std::move(*body), handle, one_way);
    }
  };
}

void ServedTable::serve(CallInfo&& info, Server::Found& found, Payload&& body, Handle handle, bool one_way) {
  const AnswerBox::AtOnce at_once(*box_);
  Request request(std::move(info), std::move(body),
                  one_way ? one_way_responder() : std::shared_ptr<Request::Responder>(box_), handle.packed());
  if (server_ != nullptr) {
    server_->handle(std::move(request), found);
  } else {
    request.refuse(Status(Code::kNotFound, str("no service '", request.info().service, "'")));
  }
}

const std::shared_ptr<Request::Responder>& ServedTable::one_way_responder() {
  if (one_way_ == nullptr) one_way_ = std::make_shared<OneWayBox>(box_, connection_.loop().clock());
  return one_way_;
}

// Answers a request that does not reach the server with `refusal`, and releases the memory that the
// peer lent for it. If `refusal` is kCorrupt, returns it without an answer: it ends the connection.
Status ServedTable::refuse(const wire::Frame& frame, const Served& served, Status refusal) {
  if (refusal.code() == Code::kCorrupt) return refusal;
  if ((frame.header.flags & kFlagsLent) != 0) SLIME_TRY(puller_.give_back(frame));
  const bool extended = (frame.header.flags & wire::kFlagMetadata) != 0;
  if (extended && wire::extras_of(frame).timed) {
    send_reply(served, std::move(refusal), wire::ServerTimes());  // it took no time
  } else {
    send_reply(served, std::move(refusal));
  }
  return (frame.header.flags & wire::kFlagStream) != 0 ? streams_.note_refused(frame.header.id) : Status();
}

void ServedTable::on_cancel(const wire::Frame& frame) {
  streams_.cancel_served(frame.header.id);
  const std::size_t index = Handle::unpack(frame.header.id).index;
  if (index >= by_call_.size()) return;
  const Handle handle = by_call_[index];
  const Served* const served = served_.find(handle);
  if (served == nullptr || served->call != frame.header.id) return;
  box_->cancel(handle.packed());
  puller_.abort_request(handle);
}

void ServedTable::clear() {
  std::vector<Handle> handles;
  served_.for_each([&](Handle handle, Served&) { handles.push_back(handle); });
  for (const Handle handle : handles) served_.erase(handle);
  timed_.clear();
}

// ----------------------------------------------------------------------------------------- answers

void ServedTable::send_answer(Handle handle, Result<ByteVector>&& answer) {
  const Served* found = served_.find(handle);
  if (found == nullptr) return;
  const Served served = *found;
  if (streams_.serves_any() && streams_.hold_answer(handle, served.call, answer, held_)) return;
  served_.erase(handle);
  if (box_->has_notes()) return send_with_notes(handle, served, std::move(answer));
  if (served.timed) return send_timed(handle, served, std::move(answer));
  send_reply(served, std::move(answer));
}

void ServedTable::send_answers(std::vector<AnswerBox::Answer>&& answers) {
  for (AnswerBox::Answer& answer : answers) {
    if (answer.refused_bytes != 0)
      answer.reply =
          lending_.over_budget(answer.refused_bytes).with_context("the reply").with_maybe_executed(true);
    send_held_answer(answer.served, std::move(answer.reply), std::move(answer.held));
  }
}

void ServedTable::send_held_answer(Handle served, Result<ByteVector>&& answer, Account::Held&& held) {
  held_ = std::move(held);
  send_answer(served, std::move(answer));
  held_.give_back();  // of an answer without lent memory
}

// Sends the answer of a request while box_ has notes of any request. The notes of this request may
// say that it was cancelled, or may have attachments for its answer.
void ServedTable::send_with_notes(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  AnswerBox::Notes noted = box_->take_notes(handle.packed());
  if (noted.cancelled)
    reply = Status(Code::kCancelled, "its caller does not wait any more").with_maybe_executed(true);
  if (!reply || noted.attachments.empty()) {
    if (served.timed) return send_timed(handle, served, std::move(reply));
    return send_reply(served, std::move(reply));
  }
  OutFrame frame;
  wire::ServerTimes times;
  if (served.timed) {
    times = take_times(handle);
    frame.header.flags = wire::kFlagTiming;
    ByteWriter(frame.text).write(times);
  }
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  Handle lent;
  AttachedBody body{.body = std::move(*reply), .attachments = std::move(noted.attachments)};
  Status status = lending_.put_body(frame, std::move(body), lent);
  if (status.ok() && lent.generation != 0)
    status = lending_.admit_answer(frame, lent, served.deadline, held_);
  if (!status.ok()) {
    status = std::move(status).with_context("the reply").with_maybe_executed(true);
    if (served.timed) return send_reply(served, std::move(status), times);
    return send_reply(served, std::move(status));
  }
  outbox_.submit(frame);
}

// Completes the frame of a reply, whose text may already have the times, and sends it.
[[gnu::always_inline]] inline void ServedTable::finish_reply(OutFrame&& frame, const Served& served,
                                                             Result<ByteVector>&& reply) {
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  if (served.one_way) {
    // Drops the error of a one-way request if the peer takes no answers: otherwise such errors
    // would reset the connection.
    if (reply || outbox_.queued_answers() >= connection_.options().max_calls) return;
    frame.header.flags |= wire::kFlagOneWay;
  }
  if (reply) {
    Handle lent;
    Status status = lending_.put_body(frame, std::move(*reply), lent, outbox_.empty());
    if (status.ok() && lent.generation != 0)
      status = lending_.admit_answer(frame, lent, served.deadline, held_);
    if (!status.ok())
      outbox_.put_status(frame, std::move(status).with_context("the reply").with_maybe_executed(true));
  } else {
    outbox_.put_status(frame, reply.error());
  }
  outbox_.submit(frame);
}

void ServedTable::send_reply(const Served& served, Result<ByteVector>&& reply) {
  finish_reply({}, served, std::move(reply));
}

void ServedTable::send_reply(const Served& served, Result<ByteVector>&& reply,
                             const wire::ServerTimes& times) {
  OutFrame frame;
  frame.header.flags = wire::kFlagTiming;
  ByteWriter(frame.text).write(times);
  finish_reply(std::move(frame), served, std::move(reply));
}

void ServedTable::send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  send_reply(served, std::move(reply), take_times(handle));
}

wire::ServerTimes ServedTable::take_times(Handle handle) {
  const auto extras = timed_.extract(handle.packed());
  const CallTiming times = extras.mapped()->times(connection_.loop().clock().now());
  return {count_of(times.queue), count_of(times.handler)};
}

}  // namespace slime::rpc
