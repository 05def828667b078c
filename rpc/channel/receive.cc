#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// Handling of incoming frames. Bytes that violate the protocol reset the channel, and do no other
// harm.
namespace slime::rpc {

using wire::Frame;
using wire::FrameType;

namespace {

// Returns whether frames of this type wait while the channel is held.
bool waits_for_resume(FrameType type) {
  return type != FrameType::kHello && type != FrameType::kPing && type != FrameType::kPong &&
         type != FrameType::kProof;
}

// Returns kCorrupt if this frame may not come in a long message.
Status check_long(const Frame& frame) {
  const bool may = frame.header.type == FrameType::kRequest || frame.header.type == FrameType::kReply;
  const bool lends = (frame.header.flags & (wire::kFlagRendezvous | wire::kFlagAttachments)) != 0;
  return may && !lends ? Status() : Status(Code::kCorrupt, "a long message that may not be one");
}

// Shortens the time that the caller leaves for a request by the time that the request waited here.
void count_wait(wire::FrameHeader& header, Nanos waited) {
  if (header.type != FrameType::kRequest || header.value == wire::kNoDeadline) return;
  header.value -= std::min(header.value, static_cast<std::uint64_t>(waited.count()));
}

}  // namespace

void ChannelImpl::on_message(transport::Message message) noexcept {
  take_frame(std::move(message), Nanos::zero());
}

void ChannelImpl::take_frame(transport::Message&& message, Nanos waited) {
  const Scope scope(*this, true);
  if (connection_.over()) return;
  Frame frame;
  Status status = wire::decode_frame(message.bytes(), frame);
  if (holding_ && status.ok() && connection_.ready() && waits_for_resume(frame.header.type)) [[unlikely]] {
    held_.push_back({std::move(message), connection_.now()});
    return;
  }
  if (waited > Nanos::zero()) [[unlikely]]
    count_wait(frame.header, waited);
  if (status.ok() && connection_.is_long(message.bytes().size())) [[unlikely]]
    status = check_long(frame);
  if (status.ok()) status = dispatch(frame, std::move(message));
  if (!status.ok()) connection_.break_by(std::move(status));
}

void ChannelImpl::resume() {
  if (held_.empty()) {
    holding_ = false;
    return;
  }
  // In a later turn: the frames run handlers, which may not run inside a public function. Frames
  // that arrive before that turn wait, too.
  connection_.loop().post([this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    holding_ = false;
    for (HeldFrame& frame : std::exchange(held_, {}))
      take_frame(std::move(frame.message), connection_.now() - frame.came);
  });
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

void ChannelImpl::flush() {
  outbox_.flush();
  if (outbox_.empty()) streams_.pump_stalled();
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
      return served_.on_request(frame, std::move(message));
    case FrameType::kReply:
      return on_reply(frame, std::move(message));
    case FrameType::kUserMessage:
      return messages_.on_message(frame);
    case FrameType::kUserAck:
      return messages_.on_ack(frame);
    case FrameType::kRelease:
      // Does nothing for an unknown loan: its memory was released already.
      lending_.release(Handle::unpack(frame.header.id));
      return {};
    case FrameType::kRegionLookup:
      return on_region_lookup(frame);
    case FrameType::kRegionReply:
      return requests_.on_region_reply(frame);
    case FrameType::kRegionRevoked:
      owner_.on_region_revoked(as_text(frame.text));
      return {};
    case FrameType::kPing:
      outbox_.answer(FrameType::kPong, frame.header.id);
      return {};
    case FrameType::kPong:
      return requests_.on_pong(frame);
    case FrameType::kClosing:
      return on_peer_closing();
    case FrameType::kCancel:
      if (!lent_messages_.on_cancel(frame.header.id)) served_.on_cancel(frame);
      return {};
    case FrameType::kData:
    case FrameType::kCredit:
    case FrameType::kEnd:
      return streams_.on_frame(frame);
    case FrameType::kProof:
      return on_proof(frame);
  }
  return Status(Code::kCorrupt, "an unknown frame");  // decode_frame() has refused it
}

Status ChannelImpl::on_hello(const wire::Frame& frame) {
  auto hello = wire::decode_hello(frame.body);
  if (!hello) return std::move(hello).error();
  if (hello->major != wire::kProtocolMajor) {
    return Status(Code::kUnimplemented, str("it speaks version ", hello->major, " of the rpc protocol, we ",
                                            wire::kProtocolMajor, ": upgrade the older side"));
  }
  const std::uint64_t known = wire::kRequiredFeatures | wire::kOptionalFeatures;
  if ((hello->required_features & ~known) != 0) {
    return Status(Code::kUnimplemented, str("it needs rpc features that this build has not (bits ",
                                            hello->required_features & ~known, "): upgrade this side"));
  }
  connection_.greet(*hello);
  requests_.withdraw_extras();
  if (!connection_.peer_has(wire::kFeatureStreams)) streams_.refuse_opened();
  requests_.refuse_unknown_kinds();
  if (!connection_.peer_has(wire::kFeatureLentMessages)) messages_.copy_queued_ranges();
  flush();
  return {};
}

// ----------------------------------------------------------------------------------------- answers

Status ChannelImpl::on_reply(const Frame& frame, transport::Message&& message) {
  auto expectation = calls_.expected(frame.header, Kind::kCall);
  if (!expectation) return std::move(expectation).error();
  CallTable::Pending* pending = *expectation;
  const bool lent = (frame.header.flags & (wire::kFlagRendezvous | wire::kFlagAttachments)) != 0;
  if (pending == nullptr) {
    if ((frame.header.flags & wire::kFlagOneWay) != 0)
      on_one_way_failed(wire::error_of(frame), names_.numbered(frame.header.method));
    return lent ? puller_.give_back(frame) : Status();
  }
  if ((frame.header.flags & wire::kFlagTiming) != 0) [[unlikely]]
    SLIME_TRY(contexts_.take_times(frame));
  const Handle handle = Handle::unpack(frame.header.id);
  if (pending->method != nullptr && frame.header.method != 0) pending->method->id = frame.header.method;
  if (frame.header.code != 0) {
    streams_.note_error_reply(handle);
    calls_.finish(handle, {wire::error_of(frame), {}, {}});
    return {};
  }
  if (connection_.is_long(message.bytes().size())) [[unlikely]] {
    Result<Payload> body = puller_.take_body(std::move(message), frame.body);
    calls_.finish(handle, body ? CallTable::Outcome{{}, std::move(*body), {}}
                               : CallTable::Outcome{std::move(body).error(), {}, {}});
    return {};
  }
  if (!lent) {
    // Copies the reply out of the receive slot: a reply that its user keeps must not hold a credit
    // that other replies need.
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

Status ChannelImpl::on_region_lookup(const Frame& frame) {
  auto descriptor = owner_.on_region_lookup(as_text(frame.text));
  if (descriptor && !connection_.fits(0, descriptor->encoded_bytes()))
    descriptor = Status(Code::kResourceExhausted, "the key of the region is too long for a message");
  ByteVector body;
  if (descriptor) {
    ByteWriter out(body);
    descriptor->encode(out);
  }
  outbox_.answer(FrameType::kRegionReply, frame.header.id, descriptor.status(), std::move(body));
  return {};
}

Status ChannelImpl::on_peer_closing() {
  connection_.peer_stopped_asking();
  if (connection_.closing()) return {};
  connection_.mark_closed_by_peer();
  // The peer closes once everything is answered on both sides. If the peer does not, this side
  // closes after the bound.
  begin_close(2 * limits::kCloseBound);
  return {};
}

}  // namespace slime::rpc
