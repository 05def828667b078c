#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "agent/prepared_batch.h"
#include "agent/service_proxy.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/future.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/codec.h"
#include "rpc/interceptor.h"
#include "rpc/payload.h"
#include "rpc/reflection.h"
#include "rpc/server.h"
#include "rpc/service.h"
#include "rpc/signature.h"
#include "rpc/stream.h"
#include "transport/memory.h"

namespace slime {

using rpc::Attachment;
using rpc::Destination;
using rpc::Payload;
using transport::MemoryKind;
using transport::Pages;
using transport::RemoteRegion;
using transport::Rights;

enum class Progress : std::uint8_t {
  kThread,  // the agent has a thread that makes progress; wait() does, too, while that sleeps
  kCaller,  // wait() and poll() make progress in the caller: no hand-over between threads
  // As kThread, for users who ask again and again whether something is done (wait_done() with a short
  // timeout): they carry out what they begin and ask for, however large, and the thread does the rest. What
  // is given to Future::then() may run within any call of the agent.
  kPolled,
};

struct PeerAgentOptions {
  std::string name{};  // "worker:0"; unique in its scope; empty: "agent-" and a part of the instance id
  std::string scope = "default";  // agents see the names of their own scope
  std::string ctrl_url{};  // "http://127.0.0.1:4479", or several with commas; empty: no registry, peers by
                           // "host:port" only
  // What nanoctrl lets it in with; empty: of the file $SLIME_CTRL_TOKEN_FILE, or $SLIME_CTRL_TOKEN, or none.
  std::string ctrl_token{};
  // Of an https:// one: who vouches for it, in PEM; empty: $SLIME_CTRL_CA_FILE, or those the system knows.
  std::string ctrl_ca_file{};
  std::string listen = "127.0.0.1:0";
  std::string advertise{};  // what others connect to; empty: the listening address
  // "auto": for each peer shared memory where both are processes of one user on one host, else RDMA where
  // both have an active port, else tcp; Peer::info() says which and why. Or one by its name ("tcp", "shm",
  // "verbs": PeerAgent::provider_names()): then that one, or an error with the reason.
  std::string provider = "auto";
  // Shared by all agents that may connect. Empty: the keys that nanoctrl hands to who has a ctrl_token for
  // the scope, or nothing, which off loopback has to be said with `insecure`.
  std::string token{};
  bool insecure = false;
  Progress progress = Progress::kThread;
  Nanos deadline = limits::kOperationDeadline;  // default of operations; streams have an idle timeout
  std::string kind{};               // what `peers` shows and services are found by: "worker", "cache"
  Nanos heartbeat = Nanos::zero();  // zero: a third of the lease that the registry grants
  // Heartbeats tell nanoctrl, where they have changed, the connections with their bytes and some counters of
  // this agent, for its page, `nanoctrl links` and /metrics.
  bool report_links = true;
  rpc::ServerOptions server{};
  rpc::StreamOptions streams{};        // of each stream, of both sides
  std::size_t max_connections = 1024;  // above it the longest idle connection closes
  // Most bytes that the process holds for its peers: unanswered large requests, and large answers
  // that their callers have not read. One connection may hold a quarter. Requests beyond the limit
  // wait with their callers; answers beyond it, and requests larger than a quarter, end with
  // kResourceExhausted.
  std::uint64_t memory_bytes = rpc::limits::kMemoryBytes;
  // How long a peer may be unreachable (its host, or the path to it) before its connections end: 1 s to 1 h.
  // transport/outage.h derives from this what each provider needs. Zero: the seconds of
  // $SLIME_OUTAGE_TOLERATED, else 5 s. Both ends of a connection should use the same value.
  Nanos outage_tolerated = Nanos::zero();
  // Largest request, reply or message that this agent reads, attachments included. Told to peers.
  std::uint64_t max_payload_bytes = rpc::limits::kMaxPayloadBytes;
  [[nodiscard]] Status validate() const;
};

// One registration, on every device of the agent. Owns the memory only when allocate() made it. Movable;
// copies of the handle inside operations in flight keep the registration record, never the memory, alive.
// Thread: any.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  ~MemoryRegion();  // close() with the default bound
  MemoryRegion(MemoryRegion&&) noexcept;
  MemoryRegion& operator=(MemoryRegion&&) noexcept;

  [[nodiscard]] bool valid() const { return state_ != nullptr; }
  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] std::uint64_t length_bytes() const;
  [[nodiscard]] MutableBytes bytes() const { return {data(), static_cast<std::size_t>(length_bytes())}; }
  [[nodiscard]] Rights rights() const;
  // Final: when it returns no peer touches the memory, whatever the status. New uses are refused at once,
  // those under way are waited for up to `bound`, then their connections are reset (kDeadlineExceeded says
  // so). Unpublishes it. Idempotent.
  Status close(Nanos bound = limits::kCloseBound);

  struct State;
  explicit MemoryRegion(std::shared_ptr<State> state);
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// One block: for read, bytes go remote -> local; for write, local -> remote.
struct Copy {
  const MemoryRegion& local;
  std::uint64_t local_offset = 0;
  const RemoteRegion& remote;
  std::uint64_t remote_offset = 0;
  std::uint64_t length_bytes = 0;
};

inline constexpr std::uint64_t kToTheEnd = ~std::uint64_t{0};
// A range of a region as it is, for an argument or a result; the region needs Rights::kRemoteRead. Its memory
// must not change until the peer has read it: it has once the call ended well, else it may read until its
// connection is over or the region is closed. The peer is told the region as a whole, as one that looks it up
// by name. kInvalidArgument for what is not inside.
Result<Attachment> attach(const MemoryRegion& region, std::uint64_t offset = 0,
                          std::uint64_t length_bytes = kToTheEnd);
// A range of a region, whatever its rights, to read an attachment of a reply into.
Result<Destination> into(const MemoryRegion& region, std::uint64_t offset = 0,
                         std::uint64_t length_bytes = kToTheEnd);

struct CallOptions {
  Nanos deadline{};  // zero: the Peer's
  // Where the attachments of the reply go, in their order; those beyond get memory of their own. It is not
  // written any more once the future is done; to that end, a call that times out or is cancelled while its
  // reply is read ends with the piece (16 MiB) that is under way. One that does not fit is kInvalidArgument.
  rpc::Destinations into{};
};

class PeerAgentImpl;
namespace agent {
class Session;
}

// A peer by name or address. A cheap value; connects on first use and again on next use after a break.
// Thread: any. A deadline of zero is the agent's default. Operations on a closed agent answer kUnavailable.
class Peer {
 public:
  Peer() = default;

  // Connects now, for warm-up; OK once a message went both ways.
  Future<None> connect(Nanos deadline = {});
  // Asks the peer for a region by its published name. Cached for the connection; after a reconnect ask again:
  // the old value answers kAborted.
  Result<RemoteRegion> region(std::string_view name, Nanos deadline = {});
  // The same, without waiting for the answer.
  Future<RemoteRegion> lookup_region(std::string_view name, Nanos deadline = {});

  // One-sided, a whole batch as one operation. The list is copied; the memory of the regions is not: it stays
  // valid and, for writes, unchanged until the future is done.
  Future<None> read(std::span<const Copy> copies, Nanos deadline = {});
  Future<None> write(std::span<const Copy> copies, Nanos deadline = {});
  // The peer's on_imm gets `imm` once, after all bytes of the batch are visible there.
  Future<None> write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Nanos deadline = {});

  // Checks and binds a batch for many posts (agent/prepared_batch.h). Opens no connection. Takes time
  // for each block. kInvalidArgument for what is not inside its region, for no blocks and for too many, and
  // for a closed local region; kPermissionDenied where the remote region does not allow the transfer.
  Result<PreparedBatch> prepare(Transfer transfer, std::span<const Copy> copies) const;
  Result<PreparedBatch> prepare(Transfer transfer, const BlockOffsets& blocks) const;
  Result<PreparedBatch> prepare(Transfer transfer, const BlockStrides& blocks) const;

  // Remote atomics on the unsigned number of 8 bytes at `remote_offset`, which must be aligned to 8 in the
  // peer's memory, in the peer's byte order; the region needs Rights::kReadWrite. The future's value is the
  // number as it was. compare_swap stores `desired` only if that equals `expected`.
  //
  // Atomic among the atomics of all peers through the same provider and device of the peer; not against its
  // own CPU, nor against reads and writes. At most once: with kNotFound, kPermissionDenied or
  // kInvalidArgument nothing happened, with another error it may have. kUnimplemented: the peer's device has
  // no atomics. They have no order among operations in flight.
  Future<std::uint64_t> fetch_add(const RemoteRegion& remote, std::uint64_t remote_offset, std::uint64_t add,
                                  Nanos deadline = {});
  Future<std::uint64_t> compare_swap(const RemoteRegion& remote, std::uint64_t remote_offset,
                                     std::uint64_t expected, std::uint64_t desired, Nanos deadline = {});

  // Messages by tag, of any size, in order. The bytes are copied. OK once the peer's agent has it.
  Future<None> send(std::uint64_t tag, Bytes bytes, Nanos deadline = {});
  // Receives the next message with this tag. Dropping or cancelling the future before the value is
  // taken puts an arrived message back to the front of its tag, for the next receive.
  Future<Payload> recv(std::uint64_t tag, Nanos deadline = {});
  // Like recv(), but the taken Delivery still puts the message back if it is destroyed before its
  // take().
  Future<rpc::Delivery> recv_delivery(std::uint64_t tag, Nanos deadline = {});

  // Calls `service`.`method`. The arguments and the result are anything that msgpack converts; call<void>
  // gives a Future<None>.
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(std::string_view service, std::string_view method,
                                                      const A&... args) {
    if constexpr (rpc::kMayAttach<A...>) {
      return call<R>(CallOptions{}, service, method, args...);
    } else {
      return rpc::decode_future<R>(call_raw(service, method, rpc::encode_arguments(args...)),
                                   rpc::method_label(service, method));
    }
  }
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(CallOptions options, std::string_view service,
                                                      std::string_view method, const A&... args) {
    rpc::AttachedBody request = rpc::encode_attached_arguments(args...);
    request.into = std::move(options.into);
    return rpc::decode_future<R>(call_attached(service, method, std::move(request), options.deadline),
                                 rpc::method_label(service, method));
  }
  // A method that this caller knows, as its handler looks: with_signature() of it.
  template <class R, class... P>
  Future<typename rpc::detail::ValueOf<R>::Type> call(const rpc::Method<R(P...)>& method,
                                                      const std::type_identity_t<P>&... args) {
    return with_signature(method.signature()).template call<R>(method.service(), method.name(), args...);
  }
  // The same with encoded bytes: an array of the arguments in, the value out.
  Future<Payload> call_raw(std::string_view service, std::string_view method, ByteVector arguments,
                           Nanos deadline = {});
  // And with what goes beside them, which the extension values in them name.
  Future<Payload> call_attached(std::string_view service, std::string_view method, rpc::AttachedBody request,
                                Nanos deadline = {});
  // Calls a method of bytes (rpc::Service::add_bytes): what it gets is `body` as it is, and its answer comes
  // as that made it; it begins at a multiple of 8. For messages that are encoded already.
  Future<Payload> call_bytes(std::string_view service, std::string_view method, ByteVector body,
                             Nanos deadline = {}) {
    return call_attached(service, method, {.body = std::move(body), .raw = true}, deadline);
  }
  // A call whose answer nobody wants: done once it has left, after which only the end of the connection can
  // lose it, within its deadline; one with attachments that are lent, once the peer has read them, too: they
  // may change then. If the peer refuses it or its handler fails, that is counted and logged here.
  template <class... A>
  Future<None> one_way(std::string_view service, std::string_view method, const A&... args) {
    return one_way_attached(service, method, rpc::encode_attached_arguments(args...));
  }
  template <class R, class... P>
  Future<None> one_way(const rpc::Method<R(P...)>& method, const std::type_identity_t<P>&... args) {
    return with_signature(method.signature()).one_way(method.service(), method.name(), args...);
  }
  Future<None> one_way_raw(std::string_view service, std::string_view method, ByteVector arguments,
                           Nanos deadline = {}) {
    return one_way_attached(service, method, {std::move(arguments)}, deadline);
  }
  Future<None> one_way_bytes(std::string_view service, std::string_view method, ByteVector body,
                             Nanos deadline = {}) {
    return one_way_attached(service, method, {.body = std::move(body), .raw = true}, deadline);
  }
  Future<None> one_way_attached(std::string_view service, std::string_view method, rpc::AttachedBody request,
                                Nanos deadline = {});
  // Calls a method that streams (rpc/stream.h): the method reads `In` and writes `Out` (None: no
  // messages) and returns R. The stream ends when no message comes or goes for its idle timeout. It
  // has no deadline unless with_deadline() sets one, for the whole stream.
  template <class In, class Out, class R = None, class... A>
  rpc::Stream<In, Out, R> stream(std::string_view service, std::string_view method, const A&... args) {
    auto [end, result] =
        stream_attached(service, method, rpc::encode_attached_arguments(args...), rpc::detail::kStreams<Out>);
    return {std::move(end), std::move(result)};
  }
  // The same with encoded bytes: this side of the stream, and the method's result. `reads`: messages come.
  // Whoever takes them calls discard() before it lets go of a stream that may have some left.
  std::pair<std::shared_ptr<rpc::StreamEnd>, Future<Payload>> stream_raw(std::string_view service,
                                                                         std::string_view method,
                                                                         ByteVector arguments, bool reads,
                                                                         Nanos deadline = {}) {
    return stream_attached(service, method, {std::move(arguments)}, reads, deadline);
  }
  std::pair<std::shared_ptr<rpc::StreamEnd>, Future<Payload>> stream_attached(std::string_view service,
                                                                              std::string_view method,
                                                                              rpc::AttachedBody request,
                                                                              bool reads,
                                                                              Nanos deadline = {});
  // What the peer serves, by name: methods with their parameters and results (rpc/reflection.h).
  Future<std::vector<rpc::ServiceInfo>> services(Nanos deadline = {}) {
    return with_deadline(span(deadline))
        .with_signature({})
        .call<std::vector<rpc::ServiceInfo>>(rpc::kReflectionService, "services");
  }
  // This peer with another default deadline: peer.with_deadline(5s).call<int>(...).
  [[nodiscard]] Peer with_deadline(Nanos deadline) const;
  // Returns a Peer whose streams have this idle timeout instead of the agent's; Nanos::max(): none.
  [[nodiscard]] Peer with_idle_timeout(Nanos idle_timeout) const;
  // This peer, for calls of one method, which the caller takes for this (rpc/signature.h): kUnimplemented,
  // and nothing was executed, once it has become another one.
  [[nodiscard]] Peer with_signature(const rpc::Signature& signature) const;
  // This peer, whose calls of every kind carry a text by this key besides what they carried (rpc/metadata.h):
  // "traceparent", a token. What is no metadata, or too much, ends every call with kInvalidArgument or
  // kResourceExhausted; a peer that takes none ends it with kUnimplemented, unless it is optional.
  [[nodiscard]] Peer with_metadata(std::string_view key, std::string_view value,
                                   rpc::Need need = rpc::Need::kRequired) const;
  // This peer, each of whose calls puts into `into` where its time went, before its future is done, whatever
  // became of it; a stream the time of all of it, with its result; a one-way call, that no answer tells of,
  // the time until it had left. One call at a time.
  [[nodiscard]] Peer with_timing(std::shared_ptr<rpc::CallTiming> into) const;
  // This peer, whose calls of every kind pass this one behind those of the agent.
  [[nodiscard]] Peer with_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) const;
  // Calls wait for a peer that is not there yet, up to their deadline, instead of failing fast.
  [[nodiscard]] Peer wait_for_ready() const;

  // Closes the connection, if any; the next use connects again.
  Status disconnect();
  [[nodiscard]] const std::string& name() const { return name_; }
  // JSON: name, address, instance, provider, reason, state, error, counters.
  [[nodiscard]] std::string info() const;

 private:
  friend class PeerAgent;
  friend class PeerAgentImpl;
  Peer(std::shared_ptr<PeerAgentImpl> agent, std::string name)
      : agent_(std::move(agent)), name_(std::move(name)) {}
  template <class Call>
  auto begin(std::shared_ptr<Call> call, Nanos deadline) const;
  template <class T>
  Future<T> receive(std::uint64_t tag, Nanos deadline);
  [[nodiscard]] Peer with_settings(std::shared_ptr<const rpc::CallSettings> settings) const;
  [[nodiscard]] Nanos span(Nanos deadline) const { return deadline == Nanos::zero() ? deadline_ : deadline; }

  std::shared_ptr<PeerAgentImpl> agent_;
  std::string name_;
  Nanos deadline_{};
  Nanos idle_timeout_{};  // of streams; zero: the agent's
  bool wait_for_ready_ = false;
  std::shared_ptr<const rpc::CallSettings> settings_;  // null: none
  rpc::Signature signature_;
};

// Credit of a notification that is not handled yet. The destructor gives the credit back to the
// peer. Movable. Thread: any.
class HeldCredit {
 public:
  HeldCredit() = default;
  HeldCredit(HeldCredit&& other) noexcept
      : agent_(std::exchange(other.agent_, {})), session_(other.session_) {}
  HeldCredit& operator=(HeldCredit&& other) = delete;
  ~HeldCredit();

 private:
  friend class NotificationCredit;
  HeldCredit(std::weak_ptr<PeerAgentImpl> agent, std::uint64_t session)
      : agent_(std::move(agent)), session_(session) {}
  std::weak_ptr<PeerAgentImpl> agent_;
  std::uint64_t session_ = 0;
};

// Lets a handler of notifications keep the credit of one notification. Valid while the handler is called.
class NotificationCredit {
 public:
  // Keeps the credit. A peer without free credits for notifications keeps further ones waiting at
  // its side; its calls and messages go on.
  [[nodiscard]] HeldCredit hold();
  // False for a peer of an earlier version: when all of its credits are kept, its calls, replies and messages
  // wait, too. A handler that waits for an answer of that peer meanwhile waits until its deadline.
  [[nodiscard]] bool leaves_messages() const;

 private:
  friend class PeerAgentImpl;
  NotificationCredit(std::weak_ptr<PeerAgentImpl> agent, agent::Session& session)
      : agent_(std::move(agent)), session_(session) {}
  std::weak_ptr<PeerAgentImpl> agent_;
  agent::Session& session_;
};

// One process's presence among its peers: listens, registers with nanoctrl and keeps the lease, connects on
// first use, serves. Thread: any.
class PeerAgent {
 public:
  // Listens, then registers; errors of either. With a ctrl_url the registry must answer now.
  static Result<std::unique_ptr<PeerAgent>> start(PeerAgentOptions options);
  // What PeerAgentOptions::provider may be in this build: "auto", "tcp", ... Whether it works on this machine
  // is seen by starting an agent, or by `slime doctor`.
  static std::vector<std::string> provider_names();
  // Calls close(), then waits for handlers that still run, unless a Peer of this agent is left. In
  // a handler, interceptor or callback of the agent it returns at once, and another thread closes
  // the agent.
  ~PeerAgent();
  PeerAgent(const PeerAgent&) = delete;
  PeerAgent& operator=(const PeerAgent&) = delete;

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::string address() const;  // as advertised
  [[nodiscard]] InstanceId instance() const;

  // "worker:0", or "host:port" ("[v6]:port") without a registry. Cannot fail: the first use does.
  Peer peer(std::string_view name_or_address);

  // Zeroed, touched memory of Slime's own that peers on this host can map. Of huge pages (Pages::kHuge) all
  // are taken from the machine's pool now; kResourceExhausted says how many it lacks, and what to do.
  Result<MemoryRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind = MemoryKind::kHost,
                                Pages pages = Pages::kDefault);
  // The caller's memory, which it keeps alive until the region is closed.
  Result<MemoryRegion> register_memory(void* data, std::size_t bytes, Rights rights,
                                       MemoryKind kind = MemoryKind::kHost);
  // Makes a region known by name: peers ask this agent for it. The name and the size go to nanoctrl, keys
  // never do. kAlreadyExists for a name that is in use.
  Status publish(std::string_view name, const MemoryRegion& region);
  Status unpublish(std::string_view name);

  // Serves to every peer, on this agent's one port, and tells nanoctrl. The service's methods move into the
  // agent.
  Status serve(rpc::Service& service);
  // A service of whoever serves it in this agent's scope; see ServiceProxy. Cannot fail: the first call does.
  ServiceProxy proxy(std::string_view service, ProxyOptions options = {});
  // Sees the requests that this agent serves, or the calls that it makes, from the next one on: behind those
  // that were added before.
  void add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor);
  void add_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor);
  // Refuses new requests, but for those of slime.Health, and waits for those that run.
  Status drain(Nanos bound);
  // Sets the handler of notifications; replaces an earlier one. Without a handler notifications are
  // dropped. Thread: the loop, so be short.
  void on_imm(std::function<void(Peer, std::uint32_t)> handler);
  // Like on_imm(), for a handler that queues. If its queue is full, it holds credits, which stops
  // the peer.
  void on_imm_queued(std::function<void(Peer, std::uint32_t, NotificationCredit&)> handler);
  // Called on the loop once for each connection that ended, with the peer's name and the id that its calls
  // had (CallInfo::connection): no byte of it lands any more, and none of its requests starts inline any
  // more. Adds to the earlier ones; a handler lives as long as the agent. Be short.
  void on_disconnect(std::function<void(const std::string& peer, std::uint64_t connection)> handler);

  // What nanoctrl knows of this scope, as a JSON array of peers: name, address, instance, kind, services,
  // regions, ... as in nanoctrl's own answers. kInvalidArgument without a ctrl_url.
  Result<std::string> list_peers(Nanos timeout = std::chrono::seconds(5));
  // JSON: name, address, instance, registry state and last error, every peer's info(), counters.
  [[nodiscard]] std::string info() const;

  // Progress::kCaller only: runs what is due, waits up to `budget` if nothing is. True if anything ran.
  bool poll(Nanos budget);

  // Deregisters, refuses new work, finishes what is in flight within `bound`, closes every connection and
  // region: after it no peer touches our memory. Idempotent.
  Status close(Nanos bound = limits::kCloseBound);

 private:
  explicit PeerAgent(std::shared_ptr<PeerAgentImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<PeerAgentImpl> impl_;
};

}  // namespace slime
