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
  if (context->began == TimePoint{}) context->began = connection_.loop().clock().now();
  context->timing = {};
  context->ticket = 0;
  handler = [this, context, inner = std::move(handler)](Ended ended) mutable {
    contexts_.erase(context->ticket);
    context->finish(connection_.loop().clock().now());
    inner(std::move(ended));
  };
}
template void ChannelImpl::watch(const std::shared_ptr<CallContext>&, CallHandler&);
template void ChannelImpl::watch(const std::shared_ptr<CallContext>&, DoneHandler&);

void ChannelImpl::keep_context(Handle call, const std::shared_ptr<CallContext>& context) {
  context->ticket = call.packed();
  contexts_.emplace(call.packed(), context);
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
  names->extras->received = connection_.loop().clock().now();
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
  const CallTiming times = extras.mapped()->times(connection_.loop().clock().now());
  return {count_of(times.queue), count_of(times.handler)};
}

void ChannelImpl::send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  send_reply(served, std::move(reply), take_timed(handle));
}

}  // namespace slime::rpc
