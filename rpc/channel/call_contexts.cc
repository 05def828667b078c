#include "rpc/channel/call_contexts.h"

#include <algorithm>

namespace slime::rpc {
namespace {

// Converts nanoseconds that the peer sent. The number may be too large for Nanos.
Nanos span_of(std::uint64_t nanos) {
  return Nanos(static_cast<std::int64_t>(std::min<std::uint64_t>(nanos, Nanos::max().count())));
}

}  // namespace

void CallContexts::begin(CallContext& context) const {
  if (context.began == TimePoint{}) context.began = clock_.now();
  context.timing = {};
  context.ticket = 0;
}

void CallContexts::end(CallContext& context) {
  contexts_.erase(context.ticket);
  context.finish(clock_.now());
}

void CallContexts::keep(Handle call, const std::shared_ptr<CallContext>& context) {
  context->ticket = call.packed();
  contexts_.emplace(call.packed(), context);
}

bool CallContexts::requires_metadata(Handle call) const {
  const auto context = contexts_.find(call.packed());
  return context != contexts_.end() && context->second->metadata.has_required();
}

Status CallContexts::take_times(const wire::Frame& reply) {
  const auto context = contexts_.find(reply.header.id);
  if (context == contexts_.end() || !context->second->timed)
    return Status(Code::kCorrupt, "times that nobody asked for");
  const wire::ServerTimes times = wire::times_of(reply);
  CallTiming& timing = context->second->timing;
  timing.queue = span_of(times.queue);
  timing.handler = span_of(times.handler);
  timing.split = true;
  return {};
}

}  // namespace slime::rpc
