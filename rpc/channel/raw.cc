#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// Calls of methods of bytes: a flag in each request says so, which the peer's server compares with the
// method.
namespace slime::rpc {

Status ChannelImpl::no_raw() const {
  return Status(Code::kUnimplemented, str(options_.peer_name, " knows no methods of bytes: upgrade it"));
}

Status ChannelImpl::put_kind(OutFrame& frame, const AttachedBody& body) const {
  if (!body.raw) return {};
  if (!body.attachments.empty() || !body.into.empty())
    return Status(Code::kInvalidArgument, "a call of bytes has nothing beside them");
  if (ready_ && (peer_.optional_features & wire::kFeatureRaw) == 0) return no_raw();
  frame.header.flags |= wire::kFlagRaw;
  return {};
}

void ChannelImpl::refuse_raw() {
  if ((peer_.optional_features & wire::kFeatureRaw) == 0) refuse_queued(wire::kFlagRaw, no_raw());
}

void ChannelImpl::refuse_queued(std::uint8_t flag, const Status& why) {
  std::vector<Handle> refused;
  for (const OutFrame& frame : queue_) {
    if (frame.header.type == wire::FrameType::kRequest && (frame.header.flags & flag) != 0)
      refused.push_back(frame.pending);
  }
  for (const Handle handle : refused) fail(handle, why);
}

}  // namespace slime::rpc
