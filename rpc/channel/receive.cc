#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// What comes in. Whatever a peer sends, the worst that it can do is to be reset.
namespace slime::rpc {

using wire::Frame;
using wire::FrameType;

void ChannelImpl::on_message(transport::Message message) noexcept {
  const Scope scope(*this, true);
  if (connection_.over()) return;
  Frame frame;
  Status status = wire::decode_frame(message.bytes(), frame);
  if (status.ok()) status = dispatch(frame, std::move(message));
  if (!status.ok()) connection_.break_by(std::move(status));
}

void ChannelImpl::on_imm(std::uint32_t imm) noexcept {
  const Scope scope(*this, true);
  owner_.on_channel_imm(imm);
}

void ChannelImpl::on_ready() noexcept {
  const Scope scope(*this, true);
  flush();
  puller_.post();
  owner_.on_channel_writable();
}

Status ChannelImpl::dispatch(const Frame& frame, transport::Message&& message) {
  const FrameType type = frame.header.type;
  if ((type == FrameType::kHello) == connection_.ready()) {
    return Status(Code::kCorrupt, connection_.ready() ? "a second hello" : "a frame before the hello");
  }
  if (connection_.peer_closing() &&
      (type == FrameType::kRequest || type == FrameType::kUserMessage || type == FrameType::kRegionLookup ||
       type == FrameType::kPing || type == FrameType::kClosing)) {
    return Status(Code::kCorrupt, "a request after closing");
  }
  switch (type) {
    case FrameType::kHello:
      return on_hello(frame);
    case FrameType::kRequest:
      return on_request(frame, std::move(message));
    case FrameType::kReply:
      return on_reply(frame);
    case FrameType::kUserMessage:
      return on_user_message(frame);
    case FrameType::kUserAck:
      return on_user_ack(frame);
    case FrameType::kRelease:
      // An unknown lease is one that was swept with the call that never left: nothing to do.
      lending_.release(Handle::unpack(frame.header.id));
      return {};
    case FrameType::kRegionLookup:
      return on_region_lookup(frame);
    case FrameType::kRegionReply:
      return on_region_reply(frame);
    case FrameType::kRegionRevoked:
      owner_.on_region_revoked(as_text(frame.text));
      return {};
    case FrameType::kPing:
      outbox_.answer(FrameType::kPong, frame.header.id);
      return {};
    case FrameType::kPong:
      return on_pong(frame);
    case FrameType::kClosing:
      return on_peer_closing();
    case FrameType::kCancel:
      return on_cancel(frame);
    case FrameType::kData:
    case FrameType::kCredit:
    case FrameType::kEnd:
      return on_stream(frame);
    case FrameType::kProof:
      return on_proof(frame);
  }
  return Status(Code::kCorrupt, "an unknown frame");  // the decoder lets none through
}

// ------------------------------------------------------------------------------------------------- requests

Status ChannelImpl::on_request(const Frame& frame, transport::Message&& message) {
  ++counters_.requests;
  Served served;
  served.call = frame.header.id;
  served.one_way = (frame.header.flags & wire::kFlagOneWay) != 0;
  if (served.one_way) served.method = frame.header.method;  // its failed answer names the method
  ServedMethod unnumbered;
  auto method = names_.identify(frame, unnumbered, served.method);
  if (!method) return turn_away(frame, served, std::move(method).error());
  Status refusal;
  if (connection_.closing()) {
    refusal = Status(Code::kUnavailable, "the peer is closing the connection");
  } else if (served_.size() >= connection_.options().max_calls) {
    refusal =
        Status(Code::kResourceExhausted, str(served_.size(), " requests wait for their answers already"));
  }
  if (!refusal.ok()) return turn_away(frame, served, std::move(refusal));
  const bool lent = (frame.header.flags & (wire::kFlagRendezvous | wire::kFlagAttachments)) != 0;
  CallInfo info((*method)->names);
  info.connection = connection_.endpoint().id();
  info.raw = (frame.header.flags & wire::kFlagRaw) != 0;
  info.streams = (frame.header.flags & wire::kFlagStream) != 0;
  const std::uint64_t left = frame.header.value;
  if (left <= static_cast<std::uint64_t>(Nanos::max().count())) {
    info.deadline = deadline_after(connection_.now(), Nanos(static_cast<std::int64_t>(left)));
  }
  served.deadline = info.deadline;
  const Handle handle = *served_.insert(served);
  const std::size_t place = Handle::unpack(served.call).index;
  if (place < served_by_call_.size() || make_place(place)) served_by_call_[place] = handle;
  if ((frame.header.flags & wire::kFlagMetadata) != 0) [[unlikely]]
    extend(info, frame, handle);
  if ((frame.header.flags & wire::kFlagStream) != 0)
    SLIME_TRY(take_stream(handle, served.call, info.deadline));
  if (!lent) {
    serve(std::move(info), (*method)->found, Payload(std::move(message), frame.body), handle, served.one_way);
    return {};
  }
  const CallInfo asked = info;
  return puller_.pull_request(
      frame, asked, (*method)->found, handle,
      [box = box_, ticket = handle.packed()] { box->granted(ticket); },
      [this, handle, one_way = served.one_way, info = std::move(info)](Result<Payload> body) mutable {
        if (!body) {
          send_answer(handle, std::move(body).error());
        } else if (box_->cancelled(handle.packed(), kNever)) {
          send_answer(handle, Status(Code::kCancelled, "cancelled while the request was read"));
        } else {
          Server::Found nothing;
          // The request counts as received when its body has been read.
          if (info.names->extras) info.names->extras->received = connection_.loop().clock().now();
          serve(std::move(info), nothing, std::move(*body), handle, one_way);
        }
      });
}

// A request that does not reach the server, unless it ends the connection.
Status ChannelImpl::turn_away(const Frame& frame, const Served& served, Status refusal) {
  if (refusal.code() == Code::kCorrupt) return refusal;
  if ((frame.header.flags & (wire::kFlagRendezvous | wire::kFlagAttachments)) != 0)
    SLIME_TRY(puller_.give_back(frame));
  refuse_request(frame, served, std::move(refusal));
  return (frame.header.flags & wire::kFlagStream) != 0 ? note_stream(frame.header.id) : Status();
}

// Where a cancel finds it. The caller's ids are places in a table of its own, so that small ones are enough;
// a request with a larger one is not found, and runs to its end.
bool ChannelImpl::make_place(std::size_t index) {
  if (index >= limits::kMaxCalls) return false;
  served_by_call_.resize(index + 1);
  return true;
}

// It may have been answered meanwhile, and the answer may be on its way.
Status ChannelImpl::on_cancel(const Frame& frame) {
  if (streams_ != nullptr) cancel_stream(frame.header.id);
  const std::size_t index = Handle::unpack(frame.header.id).index;
  if (index >= served_by_call_.size()) return {};
  const Handle handle = served_by_call_[index];
  const Served* const served = served_.find(handle);
  if (served == nullptr || served->call != frame.header.id) return {};
  box_->cancel(handle.packed());
  puller_.abort_request(handle);
  return {};
}

void ChannelImpl::serve(CallInfo&& info, Server::Found& found, Payload&& body, Handle handle, bool one_way) {
  const AnswerBox::AtOnce at_once(*box_);
  Request request(std::move(info), std::move(body),
                  one_way ? one_way_responder() : std::shared_ptr<Request::Responder>(box_), handle.packed());
  if (server_ != nullptr) {
    server_->handle(std::move(request), found);
  } else {
    request.refuse(Status(Code::kNotFound, str("no service '", request.info().service, "'")));
  }
}

// -------------------------------------------------------------------------------------------------- answers

// The error in an answer, as the caller gets it.
Status ChannelImpl::peer_error(const Frame& frame) const {
  Status status(error_code_from_wire(frame.header.code), std::string(wire::error_text_of(frame)));
  return std::move(status).with_maybe_executed((frame.header.flags & wire::kFlagMaybeExecuted) != 0);
}

Status ChannelImpl::on_reply(const Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kCall);
  if (!expectation) return std::move(expectation).error();
  CallTable::Pending* pending = *expectation;
  const bool lent = (frame.header.flags & (wire::kFlagRendezvous | wire::kFlagAttachments)) != 0;
  if (pending == nullptr) {
    if ((frame.header.flags & wire::kFlagOneWay) != 0)
      on_one_way_failed(peer_error(frame), names_.numbered(frame.header.method));
    return lent ? puller_.give_back(frame) : Status();
  }
  if ((frame.header.flags & wire::kFlagTiming) != 0) [[unlikely]]
    SLIME_TRY(contexts_.take_times(frame));
  const Handle handle = Handle::unpack(frame.header.id);
  if (pending->method != nullptr && frame.header.method != 0) pending->method->id = frame.header.method;
  if (frame.header.code != 0) {
    if (streams_ != nullptr) note_replied(handle);
    calls_.finish(handle, {peer_error(frame), {}, {}});
    return {};
  }
  if (!lent) {
    // A copy: whoever keeps replies for later must not hold the credits that further replies need.
    finish_call(handle, *pending, Payload(frame.body));
    return {};
  }
  pending->pulling = true;
  return puller_.pull_reply(frame, handle, pending->into, [this, handle](Result<Payload> body) {
    if (calls_.find(handle) == nullptr) {
      calls_.count_stale();
    } else if (body) {
      calls_.finish(handle, {{}, std::move(*body), {}});
    } else {
      calls_.fail(handle, std::move(body).error().with_context("reading the reply"));
    }
  });
}

// --------------------------------------------------------------------------------------------- user messages

Status ChannelImpl::admit_message(std::uint64_t tag, std::uint64_t bytes) const {
  if (connection_.closing() && !inbox_.awaited(tag))
    return Status(Code::kUnavailable, "the peer is closing the connection");
  return inbox_.admit(tag, bytes);
}

Status ChannelImpl::on_user_message(const Frame& frame) {
  const std::uint64_t tag = frame.header.value;
  const std::uint64_t id = frame.header.id;
  const bool offered = (frame.header.flags & wire::kFlagRendezvous) != 0;
  wire::Offer offer;
  offer.length_bytes = frame.body.size();
  if (offered) {
    auto decoded = wire::decode_offer(frame.body);
    if (!decoded) return std::move(decoded).error();
    offer = *decoded;
  }
  if (const Status refused = admit_message(tag, offer.length_bytes); !refused.ok()) {
    if (offered) outbox_.answer(FrameType::kRelease, offer.lease.packed());
    outbox_.answer(FrameType::kUserAck, id, refused);
    return {};
  }
  const Inbox::Place message = inbox_.add(tag, offer.length_bytes);
  if (!offered) {
    inbox_.complete(message, Payload(frame.body));
    outbox_.answer(FrameType::kUserAck, id);
    return {};
  }
  return puller_.pull(frame, [this, id, message](Result<Payload> body) {
    const Status status = body.status();
    if (body) {
      inbox_.complete(message, std::move(*body));
    } else {
      inbox_.drop(message);
    }
    outbox_.answer(FrameType::kUserAck, id, status);
  });
}

// ----------------------------------------------------------------------------------- what answers no request

void ChannelImpl::on_granted(Handle served) {
  const Scope scope(*this, true);
  puller_.on_granted(served);
}

Status ChannelImpl::on_user_ack(const Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kSend);
  if (!expectation) return std::move(expectation).error();
  const Handle handle = Handle::unpack(frame.header.id);
  calls_.finish(handle, {frame.header.code != 0 ? peer_error(frame) : Status(), {}, {}});
  return {};
}

Status ChannelImpl::on_pong(const Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kPing);
  if (!expectation) return std::move(expectation).error();
  calls_.finish(Handle::unpack(frame.header.id), {});
  return {};
}

Status ChannelImpl::on_region_lookup(const Frame& frame) {
  auto descriptor = owner_.on_region_lookup(as_text(frame.text));
  ByteVector body;
  if (descriptor) {
    ByteWriter out(body);
    descriptor->encode(out);
  }
  outbox_.answer(FrameType::kRegionReply, frame.header.id, descriptor.status(), std::move(body));
  return {};
}

Status ChannelImpl::on_region_reply(const Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kLookup);
  if (!expectation) return std::move(expectation).error();
  const Handle handle = Handle::unpack(frame.header.id);
  if (frame.header.code != 0) {
    calls_.finish(handle, {peer_error(frame), {}, {}});
    return {};
  }
  auto descriptor = wire::decode_region(frame.body);
  if (!descriptor) return std::move(descriptor).error();
  auto region = connection_.endpoint().import_region(*descriptor);
  if (!region) return std::move(region).error();
  calls_.finish(handle, {{}, {}, std::make_unique<transport::RemoteRegion>(*region)});
  return {};
}

Status ChannelImpl::on_peer_closing() {
  connection_.peer_stopped_asking();
  if (connection_.closing()) return {};
  connection_.mark_closed_by_peer();
  // The peer closes once both are drained; if it never does, we do.
  begin_close(2 * limits::kCloseBound);
  return {};
}

}  // namespace slime::rpc
