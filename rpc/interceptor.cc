#include "rpc/interceptor.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/str.h"

namespace slime::rpc {
namespace {

// Calls `hook`, a function of the user's code, and converts an exception to a status.
template <class F>
Status guarded(std::string_view what, F&& hook) {
  try {
    return hook();
  } catch (const std::exception& error) {
    return Status(Code::kInternal, str(what, " threw: ", error.what()));
  } catch (...) {
    return Status(Code::kInternal, str(what, " threw"));
  }
}

void put_trace(Metadata& metadata, const TraceContext& trace) {
  // If the metadata has no room for the trace, the call is made without it.
  metadata.set(kTraceparent, trace.traceparent(), Need::kOptional).ignore();
  if (trace.tracestate.empty()) return metadata.remove(kTracestate);
  metadata.set(kTracestate, trace.tracestate, Need::kOptional).ignore();
}

std::optional<TraceContext> trace_in(const Metadata& metadata) {
  const auto parent = metadata.get(kTraceparent);
  if (!parent) return std::nullopt;
  return TraceContext::parse(*parent, metadata.get(kTracestate).value_or(""));
}

class ServerTracing final : public ServerInterceptor {
 public:
  Status before(ServerCall& call) override {
    const auto parent = trace_in(call.metadata);
    call.trace = parent ? parent->child() : TraceContext::create();
    put_trace(call.metadata, *call.trace);
    return {};
  }
};

class ClientTracing final : public ClientInterceptor {
 public:
  Status before(ClientCall& call) override {
    if (trace_in(call.metadata)) return {};  // set by the caller
    const auto parent = current_trace();
    put_trace(call.metadata, parent ? parent->child() : TraceContext::create());
    return {};
  }
};

template <class... Rest>
void log_call(const Status& outcome, const Rest&... rest) {
  const LogLevel level = outcome.ok() ? LogLevel::kInfo : LogLevel::kWarning;
  SLIME_LOG(level, "rpc", rest..., ": ", outcome.to_string());
}

std::int64_t micros(Nanos span) {
  return std::chrono::duration_cast<std::chrono::microseconds>(span).count();
}

class ServerLogging final : public ServerInterceptor {
 public:
  void after(const CallInfo& info, const Status& outcome, const CallTiming& times) override {
    log_call(outcome, info.peer, " called ", info.service, ".", info.method, ", queued ", micros(times.queue),
             " us, ran ", micros(times.handler), " us");
  }
};

class ClientLogging final : public ClientInterceptor {
 public:
  void after(const ClientCall& call, const Status& outcome, const CallTiming& timing) override {
    log_call(outcome, "call of ", call.service, ".", call.method, " at ", call.peer, ", ",
             micros(timing.total), " us");
  }
};

}  // namespace

Status ServerInterceptor::before(ServerCall&) { return {}; }
void ServerInterceptor::after(const CallInfo&, const Status&, const CallTiming&) {}
Status ClientInterceptor::before(ClientCall&) { return {}; }
void ClientInterceptor::after(const ClientCall&, const Status&, const CallTiming&) {}

std::shared_ptr<ServerInterceptor> server_tracing() { return std::make_shared<ServerTracing>(); }
std::shared_ptr<ClientInterceptor> client_tracing() { return std::make_shared<ClientTracing>(); }
std::shared_ptr<ServerInterceptor> server_logging() { return std::make_shared<ServerLogging>(); }
std::shared_ptr<ClientInterceptor> client_logging() { return std::make_shared<ClientLogging>(); }

CallTiming CallExtras::times(TimePoint now) const {
  const TimePoint end = ended == TimePoint{} ? now : ended;
  const TimePoint start = started == TimePoint{} ? end : started;
  CallTiming out;
  out.queue = std::max(start - received, Nanos::zero());
  out.handler = std::max(end - start, Nanos::zero());
  out.total = out.queue + out.handler;
  out.split = true;
  return out;
}

// -------------------------------------------------------------------------------------- the client

namespace {

std::shared_ptr<CallSettings> copy_of(const std::shared_ptr<const CallSettings>& settings) {
  return settings ? std::make_shared<CallSettings>(*settings) : std::make_shared<CallSettings>();
}

}  // namespace

std::shared_ptr<const CallSettings> with_metadata(const std::shared_ptr<const CallSettings>& settings,
                                                  std::string_view key, std::string_view value, Need need) {
  auto out = copy_of(settings);
  Status status = out->metadata.set(key, value, need);
  if (out->problem.ok()) out->problem = std::move(status);
  return out;
}

std::shared_ptr<const CallSettings> with_timing(const std::shared_ptr<const CallSettings>& settings,
                                                std::shared_ptr<CallTiming> into) {
  auto out = copy_of(settings);
  out->timing = std::move(into);
  return out;
}

std::shared_ptr<const CallSettings> with_interceptor(const std::shared_ptr<const CallSettings>& settings,
                                                     std::shared_ptr<ClientInterceptor> interceptor) {
  auto out = copy_of(settings);
  out->interceptors.push_back(std::move(interceptor));
  return out;
}

InterceptedCall::InterceptedCall(const CallNamed& named, const CallSettings* settings,
                                 const std::vector<std::shared_ptr<ClientInterceptor>>& common)
    : peer_(named.peer),
      service_(named.service),
      method_(named.method),
      kind_(named.kind),
      context_(std::make_shared<CallContext>()),
      interceptors_(common) {
  context_->began = steady_clock().now();
  if (settings == nullptr) return;
  context_->metadata = settings->metadata;
  context_->timed = settings->timing != nullptr;
  interceptors_.insert(interceptors_.end(), settings->interceptors.begin(), settings->interceptors.end());
  timing_ = settings->timing;
  problem_ = settings->problem;
}

Status InterceptedCall::begin(std::span<const Attachment> attachments) {
  SLIME_TRY(problem_);
  for (; passed_ < interceptors_.size(); ++passed_) {
    SLIME_TRY(guarded("a client interceptor", [&] {
      ClientCall intercepted = call(attachments);
      return interceptors_[passed_]->before(intercepted);
    }));
  }
  return {};
}

Status InterceptedCall::end(Status outcome, TimePoint now) {
  context_->finish(now);
  for (; passed_ > 0; --passed_) {
    Status failure = guarded("a client interceptor", [&] {
      interceptors_[passed_ - 1]->after(call({}), outcome, context_->timing);
      return Status();
    });
    if (!failure.ok()) {
      const bool executed = outcome.ok() || outcome.maybe_executed();
      outcome = std::move(failure).with_maybe_executed(executed);
    }
  }
  if (timing_) *timing_ = context_->timing;
  return outcome;
}

// -------------------------------------------------------------------------------------- the server

void Interception::add(Request& request, std::shared_ptr<const ServerInterceptors> interceptors,
                       const Clock& clock) {
  CallInfo& info = request.info_;
  if (info.names->extras == nullptr) {
    auto names = std::make_shared<CallNames>(*info.names);
    names->extras = std::make_shared<CallExtras>();
    names->extras->received = clock.now();
    info.rebind_names(std::move(names));
  }
  info.names->extras->interceptors = std::move(interceptors);
}

Status Interception::ask(const Request& request, CallExtras& extras, std::size_t& passed) {
  if (extras.interceptors == nullptr) return {};
  ServerCall call{request.info(), extras.metadata, extras.trace};
  for (const auto& interceptor : *extras.interceptors) {
    SLIME_TRY(guarded("a server interceptor", [&] { return interceptor->before(call); }));
    ++passed;
  }
  return {};
}

void Interception::run(Request&& request, RawHandler& handler, const Clock& clock) {
  const std::shared_ptr<CallExtras> extras = request.info().names->extras;
  extras->clock = &clock;
  extras->started = clock.now();
  std::size_t passed = 0;
  Status refusal = ask(request, *extras, passed);
  if (passed > 0 || extras->timed) {
    request.responder_ =
        std::make_shared<Interception>(request.info(), std::move(request.responder_), passed);
  }
  if (!refusal.ok()) return request.refuse(std::move(refusal));
  if (!extras->trace) return handler(std::move(request));
  const TraceScope scope(*extras->trace);
  handler(std::move(request));
}

void Interception::respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept {
  CallExtras& extras = *info_.names->extras;
  extras.ended = extras.clock->now();
  const CallTiming times = extras.times(extras.ended);
  for (std::size_t i = passed_; i > 0; --i) {
    Status failure = guarded("a server interceptor", [&] {
      (*extras.interceptors)[i - 1]->after(info_, reply.status(), times);
      return Status();
    });
    if (!failure.ok()) {
      const bool executed = reply.has_value() || reply.error().maybe_executed();
      reply = std::move(failure).with_maybe_executed(executed);
    }
  }
  inner_->respond(ticket, std::move(reply));
}

}  // namespace slime::rpc
