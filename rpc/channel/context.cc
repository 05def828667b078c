#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// What few calls have, of any kind: metadata, and the wish to know where the time went. Others pass by here.
namespace slime::rpc {
namespace {

std::uint64_t count_of(Nanos span) { return static_cast<std::uint64_t>(span.count()); }
// A peer may tell any number.
Nanos span_of(std::uint64_t nanos) {
  return Nanos(static_cast<std::int64_t>(std::min<std::uint64_t>(nanos, Nanos::max().count())));
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- asking

// Before its caller hears of the end of a call, its context is its own again, with the times.
template <class Ended>
void ChannelImpl::watch(const std::shared_ptr<CallContext>& context, UniqueFunction<void(Ended)>& handler) {
  if (context->began == TimePoint{}) context->began = loop_.clock().now();
  context->timing = {};
  context->ticket = 0;
  handler = [this, context, inner = std::move(handler)](Ended ended) mutable {
    contexts_.erase(context->ticket);
    context->finish(loop_.clock().now());
    inner(std::move(ended));
  };
}
template void ChannelImpl::watch(const std::shared_ptr<CallContext>&, CallHandler&);
template void ChannelImpl::watch(const std::shared_ptr<CallContext>&, DoneHandler&);

void ChannelImpl::keep_context(Handle call, const std::shared_ptr<CallContext>& context) {
  context->ticket = call.packed();
  contexts_.emplace(call.packed(), context);
}

Status ChannelImpl::no_metadata() const {
  return Status(Code::kUnimplemented,
                str(options_.peer_name, " takes no metadata, which this call needs: upgrade it"));
}

// Behind the names, if they are there. Nobody waits for the times of a one-way call.
Status ChannelImpl::put_context(OutFrame& frame, const CallContext& context) const {
  const bool timed = context.timed && !frame.one_way;
  if (context.metadata.empty() && !timed) return {};
  if (ready_ && (peer_.optional_features & wire::kFeatureMetadata) == 0)
    return context.metadata.has_required() ? no_metadata() : Status();
  frame.header.flags |= wire::kFlagMetadata;
  wire::encode_extras(context.metadata, timed, frame.text);
  return {};
}

// The peer's hello has come, and it takes none: what waits for it goes without, or not at all.
void ChannelImpl::withdraw_contexts() {
  for (auto next = queue_.begin(); next != queue_.end();) {
    OutFrame& frame = *next++;
    if (frame.header.type != wire::FrameType::kRequest || (frame.header.flags & wire::kFlagMetadata) == 0)
      continue;
    const auto context = contexts_.find(frame.pending.packed());
    if (context->second->metadata.has_required()) {
      fail(frame.pending, no_metadata());
      continue;
    }
    // No number is known yet: the names are there.
    ByteReader text(frame.text);
    text.take(text.read<std::uint16_t>());
    text.take(text.read<std::uint16_t>());
    const std::size_t behind = shows_signature(frame) ? sizeof(std::uint64_t) : 0;
    const auto begin = frame.text.end() - static_cast<std::ptrdiff_t>(text.remaining());
    queued_bytes_ -= text.remaining() - behind;
    frame.text.erase(begin, frame.text.end() - static_cast<std::ptrdiff_t>(behind));
    frame.header.flags &= static_cast<std::uint8_t>(~wire::kFlagMetadata);
  }
}

Status ChannelImpl::take_times(const wire::Frame& frame) {
  const auto context = contexts_.find(frame.header.id);
  if (context == contexts_.end() || !context->second->timed)
    return Status(Code::kCorrupt, "times that nobody asked for");
  const wire::ServerTimes times = wire::times_of(frame);
  CallTiming& timing = context->second->timing;
  timing.queue = span_of(times.queue);
  timing.handler = span_of(times.handler);
  timing.split = true;
  return {};
}

// --------------------------------------------------------------------------------------------------- serving

void ChannelImpl::extend(CallInfo& info, const wire::Frame& frame, Handle served) {
  wire::Extras extras = wire::extras_of(frame);
  auto names = std::make_shared<CallNames>(*info.names);
  names->extras = std::make_shared<CallExtras>();
  names->extras->metadata = std::move(extras.metadata);
  names->extras->received = loop_.clock().now();
  if (extras.timed) {
    names->extras->timed = true;
    served_.find(served)->timed = true;
    timed_.emplace(served.packed(), names->extras);
  }
  info.lie_in(std::move(names));
}

// Of a request that does not reach the server: it took no time.
void ChannelImpl::refuse_request(const wire::Frame& frame, const Served& served, Status refusal) {
  const bool extended = (frame.header.flags & wire::kFlagMetadata) != 0;
  if (extended && wire::extras_of(frame).timed)
    return send_reply(served, std::move(refusal), wire::ServerTimes());
  send_reply(served, std::move(refusal));
}

wire::ServerTimes ChannelImpl::take_timed(Handle served) {
  const auto extras = timed_.extract(served.packed());
  const CallTiming times = extras.mapped()->times(loop_.clock().now());
  return {count_of(times.queue), count_of(times.handler)};
}

void ChannelImpl::send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  send_reply(served, std::move(reply), take_timed(handle));
}

}  // namespace slime::rpc
