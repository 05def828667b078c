#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/metadata.h"
#include "rpc/service.h"
#include "rpc/tracing.h"

namespace slime::rpc {

// A request on its way to its handler.
struct ServerCall {
  const CallInfo& info;
  Metadata& metadata;                  // metadata that the handler sees; the interceptor may add entries
  std::optional<TraceContext>& trace;  // becomes current_trace() of the handler
};

// Base class of server interceptors. Sees each request before its handler runs, and its answer.
// Interceptors do not see requests that the server refuses (unknown method, full queue, draining).
// before() runs in the order of add_interceptor(), after() in the reverse order. An exception is
// answered with kInternal. Called in parallel, on the threads of the handlers. For an inline method
// that is the loop, so the functions must be short.
class ServerInterceptor {
 public:
  virtual ~ServerInterceptor() = default;
  // Called before the handler. An error refuses the request: later interceptors and the handler do
  // not run, and the caller learns that nothing was executed.
  virtual Status before(ServerCall& call);
  // Called once for each request for which before() returned OK. Runs on the thread that answers,
  // before the answer leaves.
  virtual void after(const CallInfo& info, const Status& outcome, const CallTiming& times);
};

enum class CallKind : std::uint8_t {
  kPlain,
  // a one-way call; ends when the request has left, so client interceptors see no later failures
  kOneWay,
  kStream,  // a stream; ends with the method's result; interceptors do not see its messages
};

// A call before its request leaves.
struct ClientCall {
  std::string_view peer;  // "any server" for a ServiceProxy
  std::string_view service;
  std::string_view method;
  Metadata& metadata;
  bool& timed;  // true asks for the server's times; has no effect in a one-way call
  CallKind kind = CallKind::kPlain;
  std::span<const Attachment> attachments{};  // of the arguments; in before() only
};

// Base class of client interceptors. Sees all calls of an agent or a peer, on the caller's thread,
// and their outcomes. Order and exceptions are those of ServerInterceptor.
class ClientInterceptor {
 public:
  virtual ~ClientInterceptor() = default;
  // Called before the request is sent. An error refuses the call: the call ends with this error,
  // and nothing is sent.
  virtual Status before(ClientCall& call);
  // Called once for each call for which before() returned OK, before the call's future is done.
  // Runs on the loop, so it must be short and must not wait.
  virtual void after(const ClientCall& call, const Status& outcome, const CallTiming& timing);
};

// Returns an interceptor that makes a span for each request, in the caller's trace (metadata
// "traceparent" and "tracestate"), or else in a new trace. The handler finds the span in its
// metadata and in current_trace().
std::shared_ptr<ServerInterceptor> server_tracing();
// Returns an interceptor that adds a new span, of the current trace or of a new trace, to each call
// that has no valid traceparent. To a peer that takes no metadata, the call is made without the
// span.
std::shared_ptr<ClientInterceptor> client_tracing();
// Return interceptors that log each call (base/log.h) at level info, or warning if the call failed.
std::shared_ptr<ServerInterceptor> server_logging();
std::shared_ptr<ClientInterceptor> client_logging();

// Settings for the calls of a peer.
struct CallSettings {
  Metadata metadata{};
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors{};
  // receives a call's timing before the call's future is done; may be null
  std::shared_ptr<CallTiming> timing{};
  Status problem{};  // if not OK, the settings are invalid, and each call fails with this error
};

// These functions return a copy of `settings` (null: no settings) with one change.
std::shared_ptr<const CallSettings> with_metadata(const std::shared_ptr<const CallSettings>& settings,
                                                  std::string_view key, std::string_view value, Need need);
std::shared_ptr<const CallSettings> with_timing(const std::shared_ptr<const CallSettings>& settings,
                                                std::shared_ptr<CallTiming> into);
std::shared_ptr<const CallSettings> with_interceptor(const std::shared_ptr<const CallSettings>& settings,
                                                     std::shared_ptr<ClientInterceptor> interceptor);

// The client interceptors of an agent. Thread: any.
class ClientInterceptors {
 public:
  void add(std::shared_ptr<ClientInterceptor> interceptor) {
    const MutexLock lock(mutex_);
    all_.push_back(std::move(interceptor));
    any_.store(true);
  }
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::vector<std::shared_ptr<ClientInterceptor>> all() const {
    const MutexLock lock(mutex_);
    return all_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<ClientInterceptor>> all_ SLIME_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

// The names and the kind of a call.
struct CallNamed {
  std::string_view peer;
  std::string_view service;
  std::string_view method;
  CallKind kind = CallKind::kPlain;
};

// One call with its interceptors. Call begin() on the caller's thread, and later end() once, also
// if begin() returned an error.
class InterceptedCall {
 public:
  InterceptedCall(const CallNamed& named, const CallSettings* settings,
                  const std::vector<std::shared_ptr<ClientInterceptor>>& common);
  // Makes an object for one attempt of a call that was intercepted before: it has the call's
  // context, and no interceptors.
  explicit InterceptedCall(std::shared_ptr<CallContext> context) : context_(std::move(context)) {}
  // Runs before() of the interceptors. Returns the error that refuses the call, or OK.
  Status begin(std::span<const Attachment> attachments);
  // Returns the outcome for the caller.
  Status end(Status outcome, TimePoint now);
  [[nodiscard]] const std::shared_ptr<CallContext>& context() const { return context_; }

 private:
  [[nodiscard]] ClientCall call(std::span<const Attachment> attachments) {
    return {peer_, service_, method_, context_->metadata, context_->timed, kind_, attachments};
  }

  const std::string peer_;
  const std::string service_;
  const std::string method_;
  const CallKind kind_ = CallKind::kPlain;
  const std::shared_ptr<CallContext> context_;
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors_;
  std::size_t passed_ = 0;  // interceptors whose before() let the call pass
  std::shared_ptr<CallTiming> timing_;
  Status problem_;
};

// Private to the server: runs before(), the handler and after() for a request that has extras.
class Interception final : public Request::Responder {
 public:
  Interception(const CallInfo& info, std::shared_ptr<Request::Responder> inner, std::size_t passed)
      : info_(info), inner_(std::move(inner)), passed_(passed) {}
  // Adds interceptors to a request.
  static void add(Request& request, std::shared_ptr<const ServerInterceptors> interceptors,
                  const Clock& clock);
  static void run(Request&& request, RawHandler& handler, const Clock& clock);

  void respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept override;
  [[nodiscard]] bool cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept override {
    return inner_->cancelled(ticket, deadline);
  }
  void on_cancel(std::uint64_t ticket, Task task) override { inner_->on_cancel(ticket, std::move(task)); }
  void attach(std::uint64_t ticket, Attachments attachments) override {
    inner_->attach(ticket, std::move(attachments));
  }
  [[nodiscard]] std::shared_ptr<StreamEnd> stream(std::uint64_t ticket) const override {
    return inner_->stream(ticket);
  }

 private:
  static Status ask(const Request& request, CallExtras& extras, std::size_t& passed);
  const CallInfo info_;
  const std::shared_ptr<Request::Responder> inner_;
  const std::size_t passed_;
};

}  // namespace slime::rpc
