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

// Where a handler runs. kInline is on the loop: short, no lock, no wait, no Python.
enum class Run : std::uint8_t { kPool, kInline };

// Which of the requests that wait for a thread is next. Strict: as long as there are some of a higher one,
// those of a lower one wait.
enum class Priority : std::uint8_t { kHigh, kNormal, kLow };
inline constexpr std::size_t kPriorities = 3;

struct MethodOptions {
  Run run = Run::kPool;
  // Requests that are in its handler, or left it unanswered, at once; 0: as many as there are threads. On the
  // pool more of them wait, and keep no thread from others; inline they are refused with kResourceExhausted.
  std::size_t max_running = 0;
  Priority priority = Priority::kNormal;  // on the pool
  // For people and tools, which read them by reflection (rpc/reflection.h).
  std::vector<std::string> parameters{};  // their names, without that of a CallInfo: of all or of none
  std::string doc{};
};

// What reflection says of a parameter. Types have the names of rpc/type_names.h.
struct ParameterInfo {
  std::string name{};  // empty: not told
  std::string type = "any";
  bool optional = false;  // may be left out
  bool rest = false;      // stands for any number of arguments, each of this type
  MSGPACK_DEFINE_MAP(name, type, optional, rest)
};
// And of a method.
struct MethodInfo {
  std::string name{};
  std::vector<ParameterInfo> parameters{};
  std::string result = "any";
  std::string doc{};
  // Of a method that streams: the types of the messages that it reads and writes; empty: none.
  std::string reads{};
  std::string writes{};
  // Takes bytes as they are, and answers with such, as its one parameter and its result say: "raw".
  [[nodiscard]] bool raw() const { return result == "raw"; }
  MSGPACK_DEFINE_MAP(name, parameters, result, doc, reads, writes)
};

// Services whose names begin so are the server's own: rpc/reflection.h.
inline constexpr std::string_view kReservedPrefix = "slime.";

class ServerInterceptor;
using ServerInterceptors = std::vector<std::shared_ptr<ServerInterceptor>>;

// What few requests have: metadata, a caller who wants to know where the time went, interceptors on their
// way. Thread: whoever has the request.
struct CallExtras {
  Metadata metadata{};
  bool timed = false;
  TimePoint received{};
  TimePoint started{};           // zero: its handler has not begun
  TimePoint ended{};             // zero: not answered by its handler
  const Clock* clock = nullptr;  // the server's
  std::shared_ptr<const ServerInterceptors> interceptors{};
  std::optional<TraceContext> trace{};
  [[nodiscard]] CallTiming times(TimePoint now) const;  // queue and handler
};

// The texts of a CallInfo, which all calls of one method by one caller share, but for those with extras.
struct CallNames {
  std::string peer;
  std::string service;
  std::string method;
  std::shared_ptr<CallExtras> extras{};
};

// Who calls what, until when. A copy keeps its texts.
struct CallInfo {
  CallInfo() = default;
  explicit CallInfo(std::shared_ptr<const CallNames> of)
      : peer(of->peer), service(of->service), method(of->method), names(std::move(of)) {}
  // What its caller sent along, and what interceptors added.
  [[nodiscard]] const Metadata& metadata() const;
  [[nodiscard]] std::optional<std::string_view> metadata(std::string_view key) const {
    return metadata().get(key);
  }
  // The same texts somewhere else.
  void lie_in(std::shared_ptr<const CallNames> other);

  std::string_view peer;  // the caller's name
  std::string_view service;
  std::string_view method;
  TimePoint deadline = kNever;
  // Endpoint::id() of the connection that it came over: what a handler lends to a caller it can tie to this,
  // since a name may come back as another process, and a process over another connection.
  std::uint64_t connection = 0;
  bool raw = false;                        // its body is bytes as they are (Service::add_bytes)
  bool streams = false;                    // the caller opened a stream
  std::shared_ptr<const CallNames> names;  // what the texts lie in
};

// A request that waits for its answer. Answer once, from any thread; dropping it unanswered answers
// kInternal. The answer to a caller that is gone is dropped.
class Request {
 public:
  // The channel's side of answers.
  class Responder {
   public:
    virtual ~Responder() = default;
    // Once for each request, which `ticket` names; any thread. An error's maybe_executed() tells the caller
    // whether the handler ran.
    virtual void respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept = 0;
    // What goes beside the answer, which follows.
    virtual void attach(std::uint64_t ticket, Attachments attachments) = 0;
    // Whether nobody waits for that answer any more, or its deadline has passed; any thread.
    [[nodiscard]] virtual bool cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept = 0;
    // Runs `task` when the caller does not wait any more, or now if it does not.
    virtual void on_cancel(std::uint64_t ticket, Task task) = 0;
    // The handler's end of the stream that the request opened; null if it opened none.
    [[nodiscard]] virtual std::shared_ptr<StreamEnd> stream(std::uint64_t) const { return nullptr; }
  };
  // Who counts what is under way.
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
  // msgpack, an array of the arguments; or bytes as they are (CallInfo::raw).
  [[nodiscard]] Bytes body() const { return body_.bytes(); }
  [[nodiscard]] Payload& payload() { return body_; }
  [[nodiscard]] std::span<const Attachment> attachments() const { return body_.attachments(); }
  // The caller has cancelled, its connection is gone, or its deadline has passed: a long handler looks now
  // and then, and stops. Whatever it answers is dropped.
  [[nodiscard]] bool cancelled() const;
  // Runs `task` once when the caller cancels or its connection goes, at once if it has; never for a deadline,
  // and never once it is answered. On the loop: short, no lock that is held while a call is made, no wait.
  void on_cancel(Task task);
  // Its work begins now: for handlers that let requests wait in a queue of their own, so that the wait does
  // not count as work (CallTiming).
  void mark_started();
  // The stream that it opened, which its answer ends; null if it is a plain call, or is over.
  [[nodiscard]] std::shared_ptr<StreamEnd> stream() const;
  void reply(ByteVector body);  // msgpack, the value; of a raw method bytes as they are
  // What goes beside the reply, whose extension values name it; before reply().
  void attach(Attachments attachments);
  template <std::same_as<AttachedBody> Body>  // not what braces could mean as well
  void reply(Body reply) {
    attach(std::move(reply.attachments));
    this->reply(std::move(reply.body));
  }
  void fail(Status status);    // the code and text travel; the caller learns that it was executed
  void refuse(Status status);  // as fail(), but nothing was executed: the caller may retry

 private:
  friend class Server;        // sets tracker_, reads the place of body_
  friend class Interception;  // and who answers
  void answer(Result<ByteVector>&& reply);

  CallInfo info_;
  Payload body_;
  std::shared_ptr<Responder> responder_;  // null once it is answered
  std::uint64_t ticket_;
  std::shared_ptr<Tracker> tracker_;
};

using RawHandler = UniqueFunction<void(Request)>;

// Named methods. Filled once, then given to Server::add; methods cannot be added after that. Handlers may run
// several at once on the pool.
class Service {
 public:
  static constexpr std::size_t kBytesAlignment = 8;  // of what a method of bytes gets
  explicit Service(std::string name) : name_(std::move(name)) {}

  // Adds a plain function: arguments and result are anything that msgpack converts (numbers, strings, bytes
  // as std::vector<std::byte>-like, containers, structs with MSGPACK_DEFINE), by value or const reference.
  // The result is T, Result<T>, Status or void. A first parameter `const CallInfo&` gets the call, `const
  // Request&` what also tells whether somebody waits for it still. With a first parameter `ServerStream<In,
  // Out>&`, or by value, it streams (rpc/stream.h). kInvalidArgument for a bad name, or when
  // not all parameters are named; kAlreadyExists for a name that is taken.
  template <class F>
  Status add(std::string_view method, F handler, MethodOptions options = {}) {
    return add_typed(method, typed_handler(std::move(handler)), std::move(options), typed_info<F>());
  }
  // Adds a method of bytes: no msgpack, neither in nor out. For messages that are encoded already
  // (FlatBuffers, protobuf). `handler` takes Bytes, as the caller gave them, which are there until it
  // returns, and begin at a multiple of kBytesAlignment; before them, if it likes, `const CallInfo&` or
  // `const Request&`. It returns ByteVector, Result<ByteVector>, Status or void. Inline it reads them where
  // they were received. Called by Peer::call_bytes only: any other call is refused, as is one by call_bytes
  // of any other method.
  template <class F>
  Status add_bytes(std::string_view method, F handler, MethodOptions options = {});
  // Adds a handler that gets the encoded request and answers when it likes. The request owns its bytes.
  // Parameters that are named are of any type; if none is, it takes whatever comes.
  Status add_raw(std::string_view method, RawHandler handler, MethodOptions options = {});
  // The same with all that there is to say of it; only the name is `method`. One whose description is raw is
  // a method of bytes.
  Status add_raw(std::string_view method, RawHandler handler, Run run, MethodInfo info);

  [[nodiscard]] const std::string& name() const { return name_; }

  struct Method {
    RawHandler handler;
    Run run = Run::kPool;
    std::size_t max_running = 0;  // 0: any number
    Priority priority = Priority::kNormal;
    bool raw = false;      // of bytes: add_bytes()
    bool streams = false;  // may be called as a stream
    bool borrows = false;  // is done with the body when it returns, so inline it may read a receive slot
    bool while_draining = false;  // is answered by a server that drains, too
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
// Behind them, whoever is included first: what handlers that stream get.
#include "rpc/stream.h"
