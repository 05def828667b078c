#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// Proofs that a peer of an open channel knows a newer key, and the end of a channel whose peer has
// sent no such proof.
namespace slime::rpc {

void ChannelImpl::prove(Bytes proof) {
  const Scope scope(*this, false);
  if (connection_.over() || !takes_proofs()) return;
  OutFrame frame;
  frame.header.type = wire::FrameType::kProof;
  frame.body.assign(proof.begin(), proof.end());
  outbox_.submit_proof(std::move(frame));
}

void ChannelImpl::expel(Status reason) {
  const Scope scope(*this, false);
  SLIME_CHECK(!reason.ok());
  if (connection_.closed() || connection_.expelled()) return;
  connection_.expel(reason);
  connection_.loop().cancel_timer(close_timer_);
  if (takes_proofs() && !connection_.endpoint_closing()) {
    OutFrame frame;
    frame.header.type = wire::FrameType::kProof;
    outbox_.put_status(frame, reason);
    if (outbox_.try_send(frame)) return connection_.close_endpoint(limits::kExpelBound);
  }
  connection_.reset_endpoint(std::move(reason));
}

Status ChannelImpl::on_proof(const wire::Frame& frame) {
  if (frame.header.code != 0) {
    const Status told = wire::error_of(frame);
    return Status(told.code(), str("it ended the connection: ", told.text()));
  }
  if (Status refused = owner_.on_channel_proof(frame.body); !refused.ok()) expel(std::move(refused));
  return {};
}

}  // namespace slime::rpc
