#include "rpc/channel/outbox.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/str.h"
#include "rpc/codec/body_pool.h"

namespace slime::rpc {
namespace {

// Returns at most the first `limit` bytes of the text, never cut inside a UTF-8 sequence.
std::string_view cut_text(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

void Outbox::FrameOperation::complete(Status status) noexcept {
  outbox.free_operations_.push_back(this);
  if (!status.ok()) outbox.on_send_failed(std::move(status));
}

Outbox::FrameOperation* Outbox::take_operation() {
  if (free_operations_.empty()) {
    operations_.push_back(std::make_unique<FrameOperation>(*this));
    free_operations_.push_back(operations_.back().get());
  }
  FrameOperation* const operation = free_operations_.back();
  free_operations_.pop_back();
  operation->deadline = kNever;
  return operation;
}

// Called when the endpoint failed to send a frame. If the endpoint is broken, on_closed() follows
// and ends everything. A healthy endpoint gives up on a frame that the peer did not take for too
// long: later frames depend on that frame, so this function breaks the connection.
void Outbox::on_send_failed(Status status) {
  const LoopTurn turn(turns_);
  if (connection_.over() || !connection_.endpoint().error().ok()) return;
  connection_.break_by(std::move(status));
}

bool Outbox::try_send(OutFrame& frame) {
  if (connection_.over()) return false;
  wire::FrameHeader& header = frame.header;
  if (header.type == wire::FrameType::kRequest) {
    header.value = frame.deadline == kNever ? wire::kNoDeadline
                                            : static_cast<std::uint64_t>(std::max<std::int64_t>(
                                                  (frame.deadline - connection_.now()).count(), 0));
  }
  // A one-way request that has to name its method is sent as an ordinary request, because the
  // answer tells the method's number. To a peer without kFeatureOneWay all one-way requests are
  // sent so.
  if (frame.one_way && header.method != 0 && connection_.peer_has(wire::kFeatureOneWay))
    header.flags |= wire::kFlagOneWay;
  header.text_bytes = static_cast<std::uint32_t>(frame.text.size());
  header.body_bytes = static_cast<std::uint32_t>(frame.body.size());
  FrameOperation* const operation = take_operation();
  const std::array<Bytes, 3> parts = {std::as_bytes(std::span(&header, 1)), Bytes(frame.text),
                                      Bytes(frame.body)};
  // The peer may close the connection as soon as it has kClosing, so kClosing must arrive after all
  // one-sided writes of this side.
  const transport::SendOptions options{.after_writes = header.type == wire::FrameType::kClosing,
                                       .late_completion = header.type == wire::FrameType::kRequest};
  if (connection_.endpoint().send(parts, *operation, options).ok()) return true;
  free_operations_.push_back(operation);
  return false;
}

// Counts one more queued answer. If too many are queued, resets the connection and returns false:
// the peer makes requests but takes no answers, so it is broken, or attacks the memory of this
// side.
bool Outbox::admit_answer() {
  if (queued_answers_ >= limits::kAnswersPerRequest * connection_.options().max_calls + more_answers_) {
    connection_.reset_endpoint(
        Status(Code::kResourceExhausted, str(connection_.peer_name(), " takes no answers")));
    return false;
  }
  ++queued_answers_;
  return true;
}

Outbox::Sent Outbox::submit(OutFrame& frame) {
  if (connection_.closed()) return Sent::kRefused;
  const bool may_leave = connection_.ready() || frame.header.type == wire::FrameType::kHello;
  if (queue_.empty() && may_leave && try_send(frame)) {
    give_body(std::move(frame.body));
    return Sent::kLeft;
  }
  if (frame.answer()) {
    if (!admit_answer()) return Sent::kRefused;
  } else {
    if (queued_bytes_ + frame.size() > connection_.options().queue_bytes) return Sent::kRefused;
    queued_bytes_ += frame.size();
  }
  queue_.push_back(std::move(frame));
  return Sent::kQueued;
}

void Outbox::submit_proof(OutFrame&& frame) {
  const auto place = std::find_if(queue_.begin(), queue_.end(), [](const OutFrame& waiting) {
    return waiting.header.type != wire::FrameType::kProof;
  });
  if (place == queue_.begin() && try_send(frame)) return;
  if (!admit_answer()) return;
  queue_.insert(place, std::move(frame));
}

void Outbox::flush() {
  while (!queue_.empty()) {
    const auto first = queue_.begin();
    if (!connection_.ready() && first->header.type != wire::FrameType::kHello) return;
    if (!try_send(*first)) return;
    if (!first->answer()) listener_.on_queued_frame_left(*first);
    unqueue(first);
  }
}

void Outbox::unqueue(Place frame) {
  if (frame->answer()) {
    --queued_answers_;
  } else {
    queued_bytes_ -= frame->size();
  }
  give_body(std::move(frame->body));
  queue_.erase(frame);
}

void Outbox::clear() {
  queue_.clear();
  queued_bytes_ = 0;
  queued_answers_ = 0;
}

void Outbox::put_status(OutFrame& frame, const Status& status) const {
  frame.header.code = static_cast<std::uint8_t>(status.code());
  if (status.maybe_executed()) frame.header.flags |= wire::kFlagMaybeExecuted;
  const std::size_t room = connection_.message_bytes() - sizeof frame.header - frame.text.size();
  const auto text = cut_text(status.text(), std::min(limits::kErrorTextBytes, room));
  ByteWriter(frame.text).append(as_bytes(text));
}

void Outbox::answer(wire::FrameType type, std::uint64_t id, const Status& status, ByteVector body) {
  OutFrame frame;
  frame.header.type = type;
  frame.header.id = id;
  if (status.ok()) {
    frame.body = std::move(body);
  } else {
    put_status(frame, status);
  }
  submit(frame);
}

}  // namespace slime::rpc
