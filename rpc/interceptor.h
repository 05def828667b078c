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
  Metadata& metadata;                  // of the handler; the interceptor may add entries
  std::optional<TraceContext>& trace;  // becomes current_trace() of the handler
};

// Sees each request before its handler runs, and its answer. Requests that the server refuses
// (unknown method, full queue, draining) reach no interceptor. before() of all interceptors runs in
// the order of add_interceptor(), after() in reverse order. An exception is answered as kInternal.
// Called in parallel, on the threads of handlers; for inline methods on the loop, so be short.
class ServerInterceptor {
 public:
  virtual ~ServerInterceptor() = default;
  // An error refuses the request: later interceptors and the handler do not run, and the caller
  // learns that nothing was executed.
  virtual Status before(ServerCall& call);
  // Called once for each request that before() let pass, before the answer leaves, on the thread
  // that answers.
  virtual void after(const CallInfo& info, const Status& outcome, const CallTiming& times);
};

enum class CallKind : std::uint8_t {
  kPlain,
  kOneWay,  // ends when the request has left; client interceptors do not see later failures
  kStream,  // ends with the result of the method; interceptors do not see messages
};

// A call before its request leaves.
struct ClientCall {
  std::string_view peer;  // "any server" for a ServiceProxy
  std::string_view service;
  std::string_view method;
  Metadata& metadata;
  bool& timed;  // asks for the server's times; no effect for a one-way call
  CallKind kind = CallKind::kPlain;
  std::span<const Attachment> attachments{};  // of the arguments; in before() only
};

// Sees the calls of an agent or a peer, of each kind, in the caller's thread, and their outcomes.
// Order and exceptions: as for ServerInterceptor.
class ClientInterceptor {
 public:
  virtual ~ClientInterceptor() = default;
  // An error refuses the call, which ends with this error; nothing is sent.
  virtual Status before(ClientCall& call);
  // Called once for each call that before() let pass, before the future is done. Runs on the loop:
  // be short, do not wait.
  virtual void after(const ClientCall& call, const Status& outcome, const CallTiming& timing);
};

// Returns an interceptor that makes a span for each request, in the caller's trace ("traceparent",
// "tracestate") or a new one. The handler finds the span in its metadata and in current_trace().
std::shared_ptr<ServerInterceptor> server_tracing();
// Returns an interceptor that adds a span of the current trace, or of a new one, to calls without a
// valid traceparent. A peer that takes no metadata is called without.
std::shared_ptr<ClientInterceptor> client_tracing();
// Return interceptors that log each call (base/log.h): info, or warning if the call failed.
std::shared_ptr<ServerInterceptor> server_logging();
std::shared_ptr<ClientInterceptor> client_logging();

// Settings for the calls of a peer.
struct CallSettings {
  Metadata metadata{};
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors{};
  std::shared_ptr<CallTiming> timing{};  // written before the call's future is done; may be null
  Status problem{};                      // not OK: the error of each call, for invalid settings
};

// Return a copy of these settings (null: none) with one change.
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

// A call and its interceptors. Call begin() in the caller's thread, then end() once, whatever
// begin() returned.
class InterceptedCall {
 public:
  InterceptedCall(const CallNamed& named, const CallSettings* settings,
                  const std::vector<std::shared_ptr<ClientInterceptor>>& common);
  // Makes one attempt of an intercepted call, with the call's context and without interceptors.
  explicit InterceptedCall(std::shared_ptr<CallContext> context) : context_(std::move(context)) {}
  // Returns the error that refuses the call, or OK.
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

// Private to the server: runs the handler of a request with extras, between its interceptors.
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
