#include "rpc/channel/channel_impl.h"
#include "rpc/codec.h"

// One-way calls: whoever makes one is told when it has left, and its attachments are his again. The peer
// answers it only if it fails, which the owner of the channel is told.
namespace slime::rpc {

// A request that names its method is an ordinary one, since its answer tells the number; so is one to a peer
// that answers everything.
void ChannelImpl::mark_one_way(OutFrame& frame) const {
  if (frame.header.method != 0 && (peer_.optional_features & wire::kFeatureOneWay) != 0)
    frame.header.flags |= wire::kFlagOneWay;
}

// What is lent must not change until the peer has read it, so its release ends the call.
void ChannelImpl::one_way_left(const OutFrame& frame) {
  const bool answered = (frame.header.flags & wire::kFlagOneWay) == 0;
  Lent* const lent = lent_.find(pending_.find(frame.pending)->lent);
  if (lent == nullptr || lent->attachments.empty()) return one_way_done(frame.pending, answered);
  lent->one_way = frame.pending;
  lent->one_way_answered = answered;
}

// Unless it has ended before: its deadline passed, it was cancelled, or the connection is over.
void ChannelImpl::one_way_done(Handle handle, bool answered) {
  Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  if (!answered) return finish(handle, {});
  done_.push_back({std::move(pending->handler), {}});
  // The pointer to the method stays valid as long as the channel.
  pending->handler = CallHandler([this, method = pending->method](Result<Payload> reply) {
    if (!reply && !closed_) one_way_failed(std::move(reply).error(), method);
  });
}

const ChannelImpl::PeerMethod* ChannelImpl::method_numbered(std::uint32_t id) const {
  if (id == 0) return nullptr;
  for (const auto& [service, methods] : method_ids_) {
    for (const auto& [name, method] : methods) {
      if (method.id == id) return &method;
      for (const auto& each : method.taken_for) {
        if (each->id == id) return each.get();
      }
    }
  }
  return nullptr;
}

// `method`: null if unknown (older peers do not send its number).
void ChannelImpl::one_way_failed(Status status, const PeerMethod* method) {
  ++counters_.one_way_failed;
  if (method != nullptr)
    status = std::move(status).with_context(method_label(method->service, method->method));
  if (!destroying_) owner_.on_one_way_failed(status);
}

const std::shared_ptr<Request::Responder>& ChannelImpl::one_way_responder() {
  if (one_way_ == nullptr) one_way_ = std::make_shared<OneWayBox>(box_, loop_.clock());
  return one_way_;
}

}  // namespace slime::rpc
