#include "rpc/channel/channel_impl.h"
#include "rpc/codec.h"

// One-way calls: whoever makes one is told when it has left, and its attachments are his again. The peer
// answers it only if it fails, which the owner of the channel is told.
namespace slime::rpc {

// What is lent must not change until the peer has read it, so its release ends the call.
void ChannelImpl::one_way_left(const OutFrame& frame) {
  const bool answered = (frame.header.flags & wire::kFlagOneWay) == 0;
  Lent* const lent = lending_.find(pending_.find(frame.pending)->lent);
  if (lent == nullptr || lent->attachments.empty()) return one_way_done(frame.pending, answered);
  lent->released = [this, handle = frame.pending, answered](std::uint64_t) {
    one_way_done(handle, answered);
  };
}

// Unless it has ended before: its deadline passed, it was cancelled, or the connection is over.
void ChannelImpl::one_way_done(Handle handle, bool answered) {
  Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  if (!answered) return finish(handle, {});
  completions_.add(std::move(pending->handler));
  // The pointer to the method stays valid as long as the channel.
  pending->handler = CallHandler([this, method = pending->method](Result<Payload> reply) {
    if (!reply && !connection_.closed()) one_way_failed(std::move(reply).error(), method);
  });
}

// `method`: null if unknown (older peers do not send its number).
void ChannelImpl::one_way_failed(Status status, const PeerMethod* method) {
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
