#include "rpc/channel/channel_impl.h"

// Calls whose caller says what the method takes and gives: its hash goes with the names, until the peer has
// found it right. Others pass by here.
namespace slime::rpc {

// Null when too many are known.
ChannelImpl::PeerMethod* ChannelImpl::known_as(PeerMethod& method, std::uint64_t signature) {
  for (const auto& each : method.taken_for) {
    if (each->signature == signature) return each.get();
  }
  if (method.taken_for.size() == limits::kSignatures) return nullptr;
  auto added = std::make_unique<PeerMethod>(PeerMethod{method.service, method.method});
  added->signature = signature;
  return method.taken_for.emplace_back(std::move(added)).get();
}

// Behind the names; a number is told only to those who were right.
void ChannelImpl::put_signature(OutFrame& frame, const PeerMethod* known, std::uint64_t signature) const {
  // What waits for the hello must be found there.
  const bool looks = ready_ ? (peer_.optional_features & wire::kFeatureSignatures) != 0 : known != nullptr;
  if (frame.header.method == 0 && looks) ByteWriter(frame.text).write(signature);
}

// Of a request that waits for the hello.
bool ChannelImpl::shows_signature(const OutFrame& frame) const {
  const Pending* const pending = pending_.find(frame.pending);
  return pending != nullptr && pending->method != nullptr && pending->method->signature != 0 &&
         (peer_.optional_features & wire::kFeatureSignatures) != 0;
}

// The peer's hello has come, and it looks at none.
void ChannelImpl::withdraw_signatures() {
  for (OutFrame& frame : queue_) {
    const Pending* const pending = pending_.find(frame.pending);
    if (pending == nullptr || pending->method == nullptr || pending->method->signature == 0) continue;
    frame.text.resize(frame.text.size() - sizeof(std::uint64_t));
    queued_bytes_ -= sizeof(std::uint64_t);
  }
}

Status ChannelImpl::check_signature(const wire::Frame& frame) const {
  const std::uint64_t signature = wire::signature_of(frame);
  if (signature == 0 || server_ == nullptr) return {};
  return server_->check_signature(frame.service, frame.method, signature);
}

}  // namespace slime::rpc
