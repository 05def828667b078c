#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/result.h"
#include "rpc/codec.h"
#include "rpc/limits.h"
#include "rpc/metadata.h"
#include "rpc/payload.h"
#include "rpc/stream/stream_end.h"
#include "rpc/text.h"
#include "rpc/tracing.h"

namespace slime::rpc {

// Thread on which a handler runs. kPool: a thread of the server's pool. kInline: the loop; the
// handler must be short, and must not take locks, wait or call Python.
enum class Run : std::uint8_t { kPool, kInline };

// Priority among requests that wait for a thread. A request waits as long as any request of a
// higher priority waits.
enum class Priority : std::uint8_t { kHigh, kNormal, kLow };
inline constexpr std::size_t kPriorities = 3;

struct MethodOptions {
  Run run = Run::kPool;
  // Most requests of the method that its handler has and has not answered; 0: no limit. On the
  // pool, further requests wait without occupying a thread. Inline, further requests are refused
  // with kResourceExhausted.
  std::size_t max_running = 0;
  Priority priority = Priority::kNormal;  // on the pool
  // For reflection (rpc/reflection.h). `parameters`: names of all parameters except CallInfo and
  // Request, or empty.
  std::vector<std::string> parameters{};
  std::string doc{};
};

// Describes a parameter for reflection. rpc/type_names.h defines the names of types.
struct ParameterInfo {
  std::string name{};  // empty: unknown
  std::string type = "any";
  bool optional = false;  // may be left out
  bool rest = false;      // stands for any number of further arguments of this type
  MSGPACK_DEFINE_MAP(name, type, optional, rest)
};
// Description of a method for reflection.
struct MethodInfo {
  std::string name{};
  std::vector<ParameterInfo> parameters{};
  std::string result = "any";
  std::string doc{};
  // Types of the messages that a streaming method reads and writes; empty: none.
  std::string reads{};
  std::string writes{};
  // Returns whether the method takes and returns plain bytes (Service::add_bytes).
  [[nodiscard]] bool raw() const { return result == "raw"; }
  MSGPACK_DEFINE_MAP(name, parameters, result, doc, reads, writes)
};

// Names of the server's own services (rpc/reflection.h) begin with this prefix.
inline constexpr std::string_view kReservedPrefix = "slime.";

class ServerInterceptor;
using ServerInterceptors = std::vector<std::shared_ptr<ServerInterceptor>>;

// Data that only few requests have: metadata, times, interceptors. Thread: the current owner of the
// request.
struct CallExtras {
  Metadata metadata{};
  bool timed = false;
  TimePoint received{};
  TimePoint started{};           // zero: the handler has not begun
  TimePoint ended{};             // zero: the handler has not answered
  const Clock* clock = nullptr;  // the server's
  std::shared_ptr<const ServerInterceptors> interceptors{};
  std::optional<TraceContext> trace{};
  [[nodiscard]] CallTiming times(TimePoint now) const;  // queue and handler
};

// The names of a call. Calls of one method by one caller share one object, except calls with
// `extras`.
struct CallNames {
  std::string peer;
  std::string service;
  std::string method;
  std::shared_ptr<CallExtras> extras{};
};

// Describes a call to its handler: caller, method, deadline. A copy keeps the strings alive.
struct CallInfo {
  CallInfo() = default;
  explicit CallInfo(std::shared_ptr<const CallNames> of)
      : peer(of->peer), service(of->service), method(of->method), names(std::move(of)) {}
  // Returns the metadata of the caller, and the entries that interceptors added.
  [[nodiscard]] const Metadata& metadata() const;
  [[nodiscard]] std::optional<std::string_view> metadata(std::string_view key) const {
    return metadata().get(key);
  }
  // Points the names into `other`, which must have equal strings.
  void rebind_names(std::shared_ptr<const CallNames> other);

  std::string_view peer;  // the caller's name
  std::string_view service;
  std::string_view method;
  TimePoint deadline = kNever;
  // Endpoint::id() of the caller's connection. Identifies the connection, which the name does not:
  // the name may later belong to another process, and a process may connect again.
  std::uint64_t connection = 0;
  bool raw = false;                        // the body is bytes, not msgpack (Service::add_bytes)
  bool streams = false;                    // the caller opened a stream
  std::shared_ptr<const CallNames> names;  // owns the texts
};

// A request that is not answered yet. Answer it once, on any thread. If a Request is destroyed
// without an answer, it is answered with kInternal. An answer to a caller that is disconnected is
// dropped.
class Request {
 public:
  // The channel's side of answers.
  class Responder {
   public:
    virtual ~Responder() = default;
    // Answers the request `ticket`. Call once, on any thread. The maybe_executed() of an error
    // tells the caller whether the handler ran.
    virtual void respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept = 0;
    // Adds attachments to the answer, which follows.
    virtual void attach(std::uint64_t ticket, Attachments attachments) = 0;
    // Returns whether the request was cancelled, its connection has ended, or its deadline has
    // passed. Thread: any.
    [[nodiscard]] virtual bool cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept = 0;
    // Runs `task` when the request is cancelled or its connection ends; at once if that has
    // happened.
    virtual void on_cancel(std::uint64_t ticket, Task task) = 0;
    // Returns the handler's end of the stream that the request opened; null if it opened no stream.
    [[nodiscard]] virtual std::shared_ptr<StreamEnd> stream(std::uint64_t) const { return nullptr; }
  };
  // Counts unanswered requests.
  class Tracker {
   public:
    virtual ~Tracker() = default;
    virtual void answered() noexcept = 0;  // once for each request, any thread
  };
  Request(CallInfo&& info, Payload&& body, std::shared_ptr<Responder> responder, std::uint64_t ticket = 0)
      : info_(std::move(info)), body_(std::move(body)), responder_(std::move(responder)), ticket_(ticket) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&&) = delete;
  ~Request();

  [[nodiscard]] const CallInfo& info() const { return info_; }
  // Returns the body: a msgpack array of the arguments, or plain bytes if CallInfo::raw.
  [[nodiscard]] Bytes body() const { return body_.bytes(); }
  [[nodiscard]] Payload& payload() { return body_; }
  [[nodiscard]] std::span<const Attachment> attachments() const { return body_.attachments(); }
  // Returns whether the caller has cancelled, its connection has ended, or its deadline has passed.
  // A long handler should check cancelled() now and then, and stop if true: its answer will be
  // dropped.
  [[nodiscard]] bool cancelled() const;
  // Runs `task` once, on the loop, when the caller cancels or its connection ends. If that has
  // already happened, runs it now. Does not run it for a passed deadline, or after the answer.
  // `task` must be short, must not wait, and must not take a lock that is held while a call is
  // made.
  void on_cancel(Task task);
  // Records the start of the work, for handlers with a queue of their own: the time before the
  // start counts as CallTiming::queue.
  void mark_started();
  // Returns the stream that the request opened. Returns null for a call without a stream, or if the
  // stream has ended.
  [[nodiscard]] std::shared_ptr<StreamEnd> stream() const;
  // `body`: a msgpack value, or plain bytes for a method of add_bytes()
  void reply(ByteVector body);
  // Adds attachments to the reply, whose body refers to them with extension values. Call before
  // reply().
  void attach(Attachments attachments);
  // a template, so that reply({...}) takes the braces as a ByteVector
  template <std::same_as<AttachedBody> Body>
  void reply(Body reply) {
    attach(std::move(reply.attachments));
    this->reply(std::move(reply.body));
  }
  void fail(Status status);  // an error with maybe_executed() true
  // answers with an error whose maybe_executed() is false, so the caller may retry
  void refuse(Status status);

 private:
  friend class Server;        // sets tracker_, reads the place of body_
  friend class Interception;  // and responder_
  void answer(Result<ByteVector>&& reply);

  CallInfo info_;
  Payload body_;
  std::shared_ptr<Responder> responder_;  // null once it is answered
  std::uint64_t ticket_;
  std::shared_ptr<Tracker> tracker_;
};

using RawHandler = UniqueFunction<void(Request)>;

// A named set of methods. Add all methods first, then call Server::add(); methods cannot be added
// after that. Handlers on the pool may run in parallel.
class Service {
 public:
  // alignment of the bytes that a handler of add_bytes() gets
  static constexpr std::size_t kBytesAlignment = 8;
  explicit Service(std::string name) : name_(std::move(name)) {}

  // Adds a plain function as a method. Parameters (by value or const reference) and the result must
  // have types that msgpack converts (rpc/codec.h); the function may return T, Result<T>, Status or
  // void. An additional first parameter `const CallInfo&` gets the call; `const Request&` can also
  // tell whether the call was cancelled; `ServerStream<In, Out>`, by reference or value, makes a
  // streaming method (rpc/stream.h). kInvalidArgument: a bad name, or names for only some
  // parameters. kAlreadyExists: the service already has a method with this name.
  template <class F>
  Status add(std::string_view method, F handler, MethodOptions options = {}) {
    return add_typed(method, typed_handler(std::move(handler)), std::move(options), typed_info<F>());
  }
  // Adds a method that takes and returns plain bytes instead of msgpack, for encoded messages
  // (FlatBuffers, protobuf). `handler` takes Bytes, which are valid until it returns and aligned to
  // kBytesAlignment; before them it may take `const CallInfo&` or `const Request&`. It returns
  // ByteVector, Result<ByteVector>, Status or void. An inline handler reads the bytes directly in
  // the receive slot. Only Peer::call_bytes can call the method.
  template <class F>
  Status add_bytes(std::string_view method, F handler, MethodOptions options = {});
  // Adds a handler that gets the encoded request, which owns its bytes, and that may answer at any
  // time later. Parameters that are named have type "any". Without names the method takes any
  // arguments.
  Status add_raw(std::string_view method, RawHandler handler, MethodOptions options = {});
  // Like the function above, with a full description; `method` replaces the name in it. If the
  // description is raw(), the method takes and returns plain bytes.
  Status add_raw(std::string_view method, RawHandler handler, Run run, MethodInfo info);

  [[nodiscard]] const std::string& name() const { return name_; }

  struct Method {
    RawHandler handler;
    Run run = Run::kPool;
    std::size_t max_running = 0;  // 0: any number
    Priority priority = Priority::kNormal;
    bool raw = false;             // a method of bytes: add_bytes()
    bool streams = false;         // may be called as a stream
    bool borrows = false;         // the handler does not use the request's body after it returns
    bool while_draining = false;  // a draining server answers, too
    MethodInfo info{};
  };
  [[nodiscard]] const std::map<std::string, std::shared_ptr<Method>, std::less<>>& methods() const {
    return methods_;
  }

 private:
  friend class Server;  // marks it as served
  template <class F>
  static RawHandler typed_handler(F handler);
  template <class F>
  static MethodInfo typed_info();
  Status add_typed(std::string_view method, RawHandler handler, MethodOptions options, MethodInfo info);
  static MethodInfo bytes_info();
  Status add_method(std::string_view name, Method method);

  bool served_ = false;
  std::string name_;
  std::map<std::string, std::shared_ptr<Method>, std::less<>> methods_;
};

}  // namespace slime::rpc

#include "rpc/typed_handler.h"
// Include last: needs Service and TypedHandler.
#include "rpc/stream.h"
