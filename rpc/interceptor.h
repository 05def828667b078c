#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/metadata.h"
#include "rpc/service.h"
#include "rpc/tracing.h"

namespace slime::rpc {

// A request on its way to its handler.
struct ServerCall {
  const CallInfo& info;
  Metadata& metadata;                  // as the handler sees it: may be added to
  std::optional<TraceContext>& trace;  // the current one while the handler runs, on its thread
};

// Sees every request of a server that is about to run, and how it was answered. What the server refuses by
// itself (no such method, a full queue, draining) reaches none. They are asked in the order in which they
// were added, and told in the reverse one. What one throws is answered as kInternal. Several at once, on the
// handlers' threads: for inline methods that is the loop, so be short.
class ServerInterceptor {
 public:
  virtual ~ServerInterceptor() = default;
  // A status refuses: nothing behind it runs, and the caller learns that nothing was executed.
  virtual Status before(ServerCall& call);
  // Once for each call that it let in, before the answer leaves, on the thread that answers.
  virtual void after(const CallInfo& info, const Status& outcome, const CallTiming& times);
};

enum class CallKind : std::uint8_t {
  kPlain,
  kOneWay,  // ends when it has left; what becomes of it then no interceptor of its client sees
  kStream,  // ends with the result of its method; what it reads and writes until then passes nobody
};

// A call before it leaves.
struct ClientCall {
  std::string_view peer;  // of a ServiceProxy "any server"
  std::string_view service;
  std::string_view method;
  Metadata& metadata;
  bool& timed;  // whether to ask for the server's part of the time; of a one-way call nobody can tell
  CallKind kind = CallKind::kPlain;
  std::span<const Attachment> attachments{};  // of its arguments; in before() only
};

// Sees the calls of an agent or a peer, of every kind, in the caller's thread, and how they ended. Order and
// exceptions as above.
class ClientInterceptor {
 public:
  virtual ~ClientInterceptor() = default;
  // A status refuses: the call ends with it, and nothing was sent.
  virtual Status before(ClientCall& call);
  // Once for each call that it let out, before its future is done. On the loop: short, no wait.
  virtual void after(const ClientCall& call, const Status& outcome, const CallTiming& timing);
};

// Continues the trace of the caller ("traceparent", "tracestate"), or begins one, with a span for each call.
// The handler finds its own context in the metadata and in current_trace().
std::shared_ptr<ServerInterceptor> server_tracing();
// Puts a span of the current trace, or of a new one, into calls that have no valid traceparent; peers that
// take no metadata are called without.
std::shared_ptr<ClientInterceptor> client_tracing();
// A line for each call through base/log.h: info, or warning if it failed.
std::shared_ptr<ServerInterceptor> server_logging();
std::shared_ptr<ClientInterceptor> client_logging();

// How a peer is called, besides service, method and arguments.
struct CallSettings {
  Metadata metadata{};
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors{};
  std::shared_ptr<CallTiming> timing{};  // where it goes, before the call's future is done
  Status problem{};                      // why these cannot be: every call ends with it
};

// These settings (null: none) with one more.
std::shared_ptr<const CallSettings> with_metadata(const std::shared_ptr<const CallSettings>& settings,
                                                  std::string_view key, std::string_view value, Need need);
std::shared_ptr<const CallSettings> with_timing(const std::shared_ptr<const CallSettings>& settings,
                                                std::shared_ptr<CallTiming> into);
std::shared_ptr<const CallSettings> with_interceptor(const std::shared_ptr<const CallSettings>& settings,
                                                     std::shared_ptr<ClientInterceptor> interceptor);

// Those of an agent. Thread: any.
class ClientInterceptors {
 public:
  void add(std::shared_ptr<ClientInterceptor> interceptor) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(interceptor));
    any_.store(true);
  }
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::vector<std::shared_ptr<ClientInterceptor>> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ClientInterceptor>> all_;
  std::atomic<bool> any_{false};
};

// Whose call of what it is.
struct CallNamed {
  std::string_view peer;
  std::string_view service;
  std::string_view method;
  CallKind kind = CallKind::kPlain;
};

// One call and those that see it. begin() in the caller's thread, then end() once, whatever happened.
class InterceptedCall {
 public:
  InterceptedCall(const CallNamed& named, const CallSettings* settings,
                  const std::vector<std::shared_ptr<ClientInterceptor>>& common);
  // One attempt of a call that was seen: carries the same, and nobody sees it.
  explicit InterceptedCall(std::shared_ptr<CallContext> context) : context_(std::move(context)) {}
  // What to refuse it with.
  Status begin(std::span<const Attachment> attachments);
  // What the caller gets to know of the outcome.
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
  std::size_t passed_ = 0;  // that let it out
  std::shared_ptr<CallTiming> timing_;
  Status problem_;
};

// For the server: runs the handler of a request that has extras.
class Interception final : public Request::Responder {
 public:
  Interception(const CallInfo& info, std::shared_ptr<Request::Responder> inner, std::size_t passed)
      : info_(info), inner_(std::move(inner)), passed_(passed) {}
  // Gives a request the interceptors that it is to go through.
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
