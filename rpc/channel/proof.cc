#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// Proofs of newer keys on a channel that is there, and the end of a channel whose peer has none.
namespace slime::rpc {

// In front of the queue: what waits there may take longer than the peer waits for the proof. Proofs keep
// their order among themselves.
void ChannelImpl::prove(Bytes proof) {
  const Scope scope(*this, false);
  if (closed_ || endpoint_closing_ || !takes_proofs()) return;
  OutFrame frame;
  frame.header.type = wire::FrameType::kProof;
  frame.body.assign(proof.begin(), proof.end());
  const auto place = std::find_if(queue_.begin(), queue_.end(), [](const OutFrame& waiting) {
    return waiting.header.type != wire::FrameType::kProof;
  });
  if (place == queue_.begin() && try_send(frame)) return;
  if (!admit_queued_answer()) return;
  queue_.insert(place, std::move(frame));
}

void ChannelImpl::expel(Status reason) {
  const Scope scope(*this, false);
  SLIME_CHECK(!reason.ok());
  if (closed_ || !expelled_.ok()) return;
  closing_ = true;
  expelled_ = std::move(reason);
  loop_.cancel_timer(close_timer_);
  if (takes_proofs() && !endpoint_closing_) {
    OutFrame frame;
    frame.header.type = wire::FrameType::kProof;
    put_status(frame, expelled_);
    if (try_send(frame)) {
      endpoint_closing_ = true;
      endpoint_->close(limits::kExpelBound);
      return;
    }
  }
  endpoint_closing_ = true;
  endpoint_->reset(expelled_);
}

Status ChannelImpl::on_proof(const wire::Frame& frame) {
  if (frame.header.code != 0) {
    const Status told = peer_error(frame);
    return Status(told.code(), str("it ended the connection: ", told.text()));
  }
  if (Status refused = owner_.on_channel_proof(frame.body); !refused.ok()) expel(std::move(refused));
  return {};
}

}  // namespace slime::rpc
