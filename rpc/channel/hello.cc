#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// What a peer of an earlier version does not know: what is asked of it is made without, or refused. What was
// asked before its hello is looked at when the hello has come.
namespace slime::rpc {

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
  if (!connection_.peer_has(wire::kFeatureSignatures)) withdraw_signatures();
  if (!connection_.peer_has(wire::kFeatureMetadata)) withdraw_contexts();
  if (streams_ != nullptr && !connection_.peer_has(wire::kFeatureStreams)) refuse_streams();
  if (!connection_.peer_has(wire::kFeatureAttachments))
    refuse_queued(wire::kFlagAttachments, lending_.no_attachments());
  if (!connection_.peer_has(wire::kFeatureRaw)) refuse_queued(wire::kFlagRaw, no_raw());
  flush();
  return {};
}

// ------------------------------------------------------------------------------------------- before a
// request

// The signature follows the names; the peer tells a number only to callers that were right.
void ChannelImpl::put_signature(OutFrame& frame, const PeerMethod* known, std::uint64_t signature) const {
  const bool looks = connection_.ready() ? connection_.peer_has(wire::kFeatureSignatures) : known != nullptr;
  if (frame.header.method != 0 || !looks) return;
  ByteWriter(frame.text).write(signature);
  frame.shows_signature = true;
}

Status ChannelImpl::put_kind(OutFrame& frame, const AttachedBody& body) const {
  if (!body.raw) return {};
  if (!body.attachments.empty() || !body.into.empty())
    return Status(Code::kInvalidArgument, "a call of bytes has nothing beside them");
  if (!connection_.peer_has(wire::kFeatureRaw)) return no_raw();
  frame.header.flags |= wire::kFlagRaw;
  return {};
}

// Metadata follows the names, if they are there. Nobody waits for the times of a one-way call.
Status ChannelImpl::put_context(OutFrame& frame, const CallContext& context) const {
  const bool timed = context.timed && !frame.one_way;
  if (context.metadata.empty() && !timed) return {};
  if (!connection_.peer_has(wire::kFeatureMetadata))
    return context.metadata.has_required() ? no_metadata() : Status();
  frame.header.flags |= wire::kFlagMetadata;
  wire::encode_extras(context.metadata, timed, frame.text);
  return {};
}

// --------------------------------------------------------------------------------- what waited for the hello

void ChannelImpl::withdraw_signatures() {
  outbox_.edit([](OutFrame& frame) {
    if (!std::exchange(frame.shows_signature, false)) return;
    frame.text.resize(frame.text.size() - sizeof(std::uint64_t));
  });
}

// Such a call goes without metadata, or not at all if some of it is required.
void ChannelImpl::withdraw_contexts() {
  std::vector<Handle> refused;
  outbox_.edit([&](OutFrame& frame) {
    if (frame.header.type != wire::FrameType::kRequest || (frame.header.flags & wire::kFlagMetadata) == 0)
      return;
    if (contexts_.requires_metadata(frame.pending)) return refused.push_back(frame.pending);
    // No number is known yet: the names are there.
    ByteReader text(frame.text);
    text.take(text.read<std::uint16_t>());
    text.take(text.read<std::uint16_t>());
    const std::size_t behind = frame.shows_signature ? sizeof(std::uint64_t) : 0;
    const auto begin = frame.text.end() - static_cast<std::ptrdiff_t>(text.remaining());
    frame.text.erase(begin, frame.text.end() - static_cast<std::ptrdiff_t>(behind));
    frame.header.flags &= static_cast<std::uint8_t>(~wire::kFlagMetadata);
  });
  for (const Handle handle : refused) calls_.fail(handle, no_metadata());
}

void ChannelImpl::refuse_queued(std::uint8_t flag, const Status& why) {
  std::vector<Handle> refused;
  outbox_.edit([&](const OutFrame& frame) {
    if (frame.header.type == wire::FrameType::kRequest && (frame.header.flags & flag) != 0)
      refused.push_back(frame.pending);
  });
  for (const Handle handle : refused) calls_.fail(handle, why);
}

Status ChannelImpl::no_raw() const {
  return Status(Code::kUnimplemented, str(connection_.peer_name(), " knows no methods of bytes: upgrade it"));
}

Status ChannelImpl::no_metadata() const {
  return Status(Code::kUnimplemented,
                str(connection_.peer_name(), " takes no metadata, which this call needs: upgrade it"));
}

}  // namespace slime::rpc
