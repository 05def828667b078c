#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "agent/info.h"
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
#include "transport/rdma_devices.h"
#include "transport/verbs_options.h"

namespace slime {

using rpc::Attachment;
using rpc::Destination;
using rpc::Payload;
using transport::devices;
using transport::MemoryKind;
using transport::Pages;
using transport::RdmaDevice;
using transport::RemoteRegion;
using transport::Rights;
using transport::VerbsOptions;

enum class Progress : std::uint8_t {
  kThread,  // The agent's thread makes progress. While it sleeps, a thread inside wait() does.
  // Only wait() and poll() make progress, in the calling thread: no hand-over between threads.
  kCaller,
  // Like kThread, for callers that poll futures, with wait_done() and a short timeout. The polling
  // thread carries out the operation that it begins or waits for, of any size; the agent's thread
  // does the rest. Callbacks given to Future::then() may run within any call of the agent.
  kPolled,
};

struct PeerAgentOptions {
  // unique in the scope: "worker:0"; empty: "agent-" and part of the instance id
  std::string name{};
  std::string scope = "default";  // an agent sees only the names of its own scope
  // URL of nanoctrl, or several URLs separated by commas: "http://127.0.0.1:4479". Empty: no
  // registry, and peers are named by "host:port" only.
  std::string ctrl_url{};
  // Token for nanoctrl. Empty: the content of $SLIME_CTRL_TOKEN_FILE, else $SLIME_CTRL_TOKEN, else
  // none.
  std::string ctrl_token{};
  // PEM file of CA certificates for an https:// ctrl_url. Empty: $SLIME_CTRL_CA_FILE, else the
  // certificates of the system.
  std::string ctrl_ca_file{};
  std::string listen = "127.0.0.1:0";
  std::string advertise{};  // address that peers connect to; empty: the listening address
  // "auto" picks a provider for each peer: shm if both are processes of one user on one host, else
  // verbs if both have an active port, else tcp. Peer::info() shows the choice and its reason. The
  // name of a provider ("tcp", "shm", "verbs"; see PeerAgent::provider_names()) picks that
  // provider, and start() fails with the reason if it does not work here.
  std::string provider = "auto";
  // This agent's settings of verbs: adapter, port, GID, traffic class, ... None: those of the
  // environment's SLIME_VERBS_* variables. To change some of those, begin with
  // VerbsOptions::from_environment(). If `device` is named, start() fails where that adapter cannot
  // be used, unless `provider` is another one than "verbs" or "auto".
  std::optional<VerbsOptions> verbs{};
  // Secret that all agents which may connect to each other share. Empty: handshakes use the keys
  // that nanoctrl hands to agents with a ctrl_token for the scope. Without such keys handshakes
  // prove nothing, and listening beyond loopback requires `insecure`.
  std::string token{};
  bool insecure = false;
  bool accepts = false;  // keeps the peers that connect, for accept()
  Progress progress = Progress::kThread;
  // default timeout of operations; streams have only an idle timeout
  Nanos timeout = limits::kOperationDeadline;
  std::string kind{};               // "worker", "cache": `peers` shows it, and services are found by it
  Nanos heartbeat = Nanos::zero();  // interval; zero: a third of the lease that the registry grants
  // true: heartbeats report this agent's connections, their bytes and some counters to nanoctrl,
  // for its page, `nanoctrl links` and /metrics.
  bool report_links = true;
  rpc::ServerOptions server{};
  rpc::StreamOptions streams{};  // of each stream, at both sides
  // above this number the connection that has been idle longest is closed
  std::size_t max_connections = 1024;
  // Most bytes that the process holds for its peers: large requests that are not answered yet, and
  // large answers that callers have not read. One connection may hold a quarter. Requests beyond
  // the limit wait at their callers. Answers beyond the limit, and requests larger than a quarter,
  // end with kResourceExhausted.
  std::uint64_t memory_bytes = rpc::limits::kMemoryBytes;
  // How long a peer may be unreachable (its host, or the path to it) before its connections end: 1
  // s to 1 h. transport/outage.h derives from this what each provider needs. Zero: the seconds of
  // $SLIME_OUTAGE_TOLERATED, else 5 s. Both ends of a connection should use the same value.
  Nanos outage_tolerated = Nanos::zero();
  // Largest request, reply or message that this agent reads, attachments included. Peers learn the
  // limit in the handshake.
  std::uint64_t max_payload_bytes = rpc::limits::kMaxPayloadBytes;
  [[nodiscard]] Status validate() const;
};

// One registration of memory, on every device of the agent. Owns the memory only if allocate() made
// it. Movable. Operations in flight keep the registration's record alive, never the memory. Thread:
// any.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  ~MemoryRegion();  // close(), within 2 s
  MemoryRegion(MemoryRegion&&) noexcept;
  MemoryRegion& operator=(MemoryRegion&&) noexcept;

  [[nodiscard]] bool valid() const { return state_ != nullptr; }
  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] std::uint64_t length_bytes() const;
  [[nodiscard]] MutableBytes bytes() const { return {data(), static_cast<std::size_t>(length_bytes())}; }
  [[nodiscard]] Rights rights() const;
  // Unpublishes and deregisters the region. After it returns, with any status, no peer touches the
  // memory. Refuses new operations at once and waits up to `timeout` for operations in flight; then
  // resets their connections and returns kDeadlineExceeded. Idempotent. If the region is being
  // registered with a device, waits for the device first.
  Status close(Nanos timeout = limits::kCloseBound);

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
// Makes an attachment of a range of `region`, without a copy, for an argument or a result. The
// region needs Rights::kRemoteRead. The bytes must not change until the peer has read them: until
// the call succeeds; if the call fails, until its connection ends or the region is closed. The peer
// learns the address, size and key of the whole region, as by a look-up of its name. Errors:
// kInvalidArgument if the range is not inside the region.
Result<Attachment> attach(const MemoryRegion& region, std::uint64_t offset = 0,
                          std::uint64_t length_bytes = kToTheEnd);
// Makes a destination for an attachment of a reply: a range of a region with any rights.
Result<Destination> into(const MemoryRegion& region, std::uint64_t offset = 0,
                         std::uint64_t length_bytes = kToTheEnd);

struct CallOptions {
  Nanos timeout{};  // zero: the Peer's default
  // Destinations for the attachments of the reply, in order. Further attachments get memory of
  // their own. A destination is not written after the future is done. So if a call times out or is
  // cancelled while its reply is being read, it ends only when the piece in transfer (up to 16 MiB)
  // has arrived. An attachment larger than its destination ends the call with kInvalidArgument.
  rpc::Destinations into{};
};

class PeerAgentImpl;
class Stub;
namespace agent {
template <class T>
class OperationPtr;
class NamedPeer;
class Session;
}  // namespace agent

// The calls of a Peer with arguments and results as encoded bytes; see Peer::raw(). Cheap to copy.
// Thread: any.
class RawPeer {
 public:
  // Calls a method. `arguments` is a msgpack array; the future's value is the msgpack value of the
  // result.
  Future<Payload> call(std::string_view service, std::string_view method, ByteVector arguments,
                       Nanos timeout = {}) const;
  // Like call(), with attachments, to which extension values in the body refer.
  Future<Payload> call_attached(std::string_view service, std::string_view method, rpc::AttachedBody request,
                                Nanos timeout = {}) const;
  // Like Peer::one_way().
  Future<None> one_way(std::string_view service, std::string_view method, ByteVector arguments,
                       Nanos timeout = {}) const {
    return one_way_attached(service, method, {std::move(arguments)}, timeout);
  }
  Future<None> one_way_attached(std::string_view service, std::string_view method, rpc::AttachedBody request,
                                Nanos timeout = {}) const;
  // Like Peer::stream(), with encoded messages: returns this side of the stream, and the future of
  // the method's result. `reads`: the method writes messages, which this side reads. The caller
  // must call discard() on the StreamEnd before dropping it with unread messages.
  RawStream stream(std::string_view service, std::string_view method, ByteVector arguments, bool reads,
                   Nanos timeout = {}) const {
    return stream_attached(service, method, {std::move(arguments)}, reads, timeout);
  }
  RawStream stream_attached(std::string_view service, std::string_view method, rpc::AttachedBody request,
                            bool reads, Nanos timeout = {}) const;

 private:
  friend class Peer;
  RawPeer() = default;
  RawPeer(std::shared_ptr<PeerAgentImpl> agent, std::shared_ptr<agent::NamedPeer> peer)
      : agent_(std::move(agent)), peer_(std::move(peer)) {}
  template <class Call>
  auto begin(agent::OperationPtr<Call> call, Nanos timeout) const;
  [[nodiscard]] Nanos span(Nanos timeout) const { return timeout == Nanos::zero() ? timeout_ : timeout; }

  std::shared_ptr<PeerAgentImpl> agent_;
  std::shared_ptr<agent::NamedPeer> peer_;  // null: an empty Peer
  Nanos timeout_{};
  Nanos idle_timeout_{};  // of streams; zero: the agent's default
  bool wait_for_ready_ = false;
  std::shared_ptr<const rpc::CallSettings> settings_;  // null: none
  rpc::Signature signature_;
};

// A peer by name or address. Cheap to copy. Connects on first use, and again on the next use after
// a break. Thread: any. A timeout of zero is the agent's default. Operations of a closed agent end
// with kUnavailable.
class Peer : private RawPeer {
 public:
  Peer() = default;

  // Connects now, for warm-up. The future is done once one message in each direction has arrived.
  Future<None> connect(Nanos timeout = {});
  // Connects if there is no connection, and returns the peer of that one connection: its operations
  // use no other. Once the connection has ended they end with kUnavailable, whether or not this
  // agent has connected to the peer again. kInvalidArgument on the loop.
  [[nodiscard]] Result<Peer> of_connection(Nanos timeout = {}) const;
  // Returns the id of the connection if this is the peer of one connection; else 0.
  [[nodiscard]] std::uint64_t connection() const;
  // Asks the peer for a region by its published name. The answer is cached for the connection;
  // after a reconnect operations on an old RemoteRegion end with kAborted: call region() again.
  Result<RemoteRegion> region(std::string_view name, Nanos timeout = {});
  // Like region(), but returns a future.
  Future<RemoteRegion> lookup_region(std::string_view name, Nanos timeout = {});

  // One-sided read and write of a batch, as one operation. The list `copies` may be destroyed after
  // the call. The memory of the regions must stay valid, and for writes unchanged, until the future
  // is done.
  Future<None> read(std::span<const Copy> copies, Nanos timeout = {});
  Future<None> write(std::span<const Copy> copies, Nanos timeout = {});
  // Like write(). The peer's on_imm handler gets `imm` once, after all bytes of the batch are
  // visible there.
  Future<None> write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Nanos timeout = {});

  // Like read() and write(), for blocks by number, as a paged KV cache has them. Blocks that follow
  // each other on both sides move as one. Takes time proportional to the number of blocks. Errors:
  // kInvalidArgument for lists of different sizes, too many blocks, or a block outside its region.
  Future<None> read_blocks(const BlockIds& blocks, Nanos timeout = {});
  Future<None> write_blocks(const BlockIds& blocks, Nanos timeout = {});

  // Checks and binds a batch for many posts (agent/prepared_batch.h). Opens no connection. Takes
  // time proportional to the number of blocks. Errors: kInvalidArgument for a block outside its
  // region, no blocks, too many blocks, or a closed local region; kPermissionDenied if the remote
  // region does not allow the transfer.
  Result<PreparedBatch> prepare(Transfer transfer, std::span<const Copy> copies) const;
  Result<PreparedBatch> prepare(Transfer transfer, const BlockOffsets& blocks) const;
  Result<PreparedBatch> prepare(Transfer transfer, const BlockStrides& blocks) const;

  // Remote atomics on the unsigned 8-byte number at `remote_offset`, in the peer's byte order. The
  // number must be aligned to 8 in the peer's memory; the region needs Rights::kReadWrite. The
  // future's value is the old number. compare_swap() stores `desired` only if the old number equals
  // `expected`.
  //
  // Atomic only with respect to remote atomics of all peers through the same provider and device of
  // the owner; not with respect to the owner's CPU, or to reads and writes. Not ordered with other
  // operations in flight. At most once: after kNotFound, kPermissionDenied and kInvalidArgument
  // nothing was changed; after other errors the number may have changed. kUnimplemented: the
  // owner's device has no atomics.
  Future<std::uint64_t> fetch_add(const RemoteRegion& remote, std::uint64_t remote_offset, std::uint64_t add,
                                  Nanos timeout = {});
  Future<std::uint64_t> compare_swap(const RemoteRegion& remote, std::uint64_t remote_offset,
                                     std::uint64_t expected, std::uint64_t desired, Nanos timeout = {});

  // Sends a message of any size; messages with one tag arrive in order. Copies the bytes. The
  // future is done once the peer's agent has the message.
  Future<None> send(std::uint64_t tag, Bytes bytes, Nanos timeout = {});
  // Sends a message that is the ranges of `ranges` in order (see attach()), without a copy, from
  // registered memory. The future is done once a receive at the peer has the bytes: until then the
  // peer keeps no memory for them, and they must not change; if the send fails, until its
  // connection ends or the region is closed. kInvalidArgument if that receive has no room for them.
  // A peer that is older than this function gets a copy, as by send().
  Future<None> sendv(std::uint64_t tag, rpc::Attachments ranges, Nanos timeout = {});
  // Receives the next message with this tag into `ranges` in order (see slime::into()), which must
  // stay valid until the future is done. The future's value is the message's length. A message that
  // is longer than the ranges is an error, kInvalidArgument with both lengths, and nothing is
  // written: a message of send() stays, for the next receive; the sender of one that came
  // from registered memory gets the error, too. If the receive ends early, the message is the next
  // receive's, and a part of it may have been written.
  Future<std::uint64_t> recvv(std::uint64_t tag, rpc::Destinations ranges, Nanos timeout = {});
  Future<std::uint64_t> recv_into(std::uint64_t tag, Destination range, Nanos timeout = {}) {
    return recvv(tag, {std::move(range)}, timeout);
  }
  // Receives the next message with this tag. If the future is dropped or cancelled before its value
  // is taken, an arrived message returns to the front of its tag, for the next receive.
  Future<Payload> recv(std::uint64_t tag, Nanos timeout = {});
  // Like recv(), but gives a Delivery, which also returns the message to its tag if it is destroyed
  // before its take() is called.
  Future<rpc::Delivery> recv_delivery(std::uint64_t tag, Nanos timeout = {});

  // Calls `service`.`method`. Arguments and result are any types that msgpack converts; call<void>
  // returns a Future<None>.
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(std::string_view service, std::string_view method,
                                                      const A&... args) {
    if constexpr (rpc::kMayAttach<A...>) {
      return call<R>(CallOptions{}, service, method, args...);
    } else {
      return rpc::decode_future<R>(RawPeer::call(service, method, rpc::encode_arguments(args...)));
    }
  }
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(CallOptions options, std::string_view service,
                                                      std::string_view method, const A&... args) {
    rpc::AttachedBody request = rpc::encode_attached_arguments(args...);
    request.into = std::move(options.into);
    return rpc::decode_future<R>(call_attached(service, method, std::move(request), options.timeout));
  }
  // Calls a method with a known C++ signature, and requires the server's method to match; see
  // with_signature().
  template <class R, class... P>
  Future<typename rpc::detail::ValueOf<R>::Type> call(const rpc::Method<R(P...)>& method,
                                                      const std::type_identity_t<P>&... args) {
    return with_signature(method.signature()).template call<R>(method.service(), method.name(), args...);
  }
  // Calls a bytes method (rpc::Service::add_bytes) with `body` as its request, not encoded. The
  // reply is the handler's bytes, and starts at an address that is a multiple of 8.
  Future<Payload> call_bytes(std::string_view service, std::string_view method, ByteVector body,
                             Nanos timeout = {}) {
    return call_attached(service, method, {.body = std::move(body), .raw = true}, timeout);
  }
  // Calls a method without an answer. The future is done once the request has left, or, if
  // attachments were lent from regions, once the peer has read them; their memory may change then.
  // After that only the end of the connection or the call's deadline can keep the handler from
  // running. A refusal or failure at the peer is counted and logged here.
  template <class... A>
  Future<None> one_way(std::string_view service, std::string_view method, const A&... args) {
    return one_way_attached(service, method, rpc::encode_attached_arguments(args...));
  }
  template <class R, class... P>
  Future<None> one_way(const rpc::Method<R(P...)>& method, const std::type_identity_t<P>&... args) {
    return with_signature(method.signature()).one_way(method.service(), method.name(), args...);
  }
  Future<None> one_way_bytes(std::string_view service, std::string_view method, ByteVector body,
                             Nanos timeout = {}) {
    return one_way_attached(service, method, {.body = std::move(body), .raw = true}, timeout);
  }
  // Calls a streaming method (rpc/stream.h). The method reads `In`, writes `Out` (None: no messages
  // in that direction) and returns R. The stream ends when no message goes either way for its idle
  // timeout. with_timeout() also limits the time of the whole stream; the agent's timeout does not.
  template <class In, class Out, class R = None, class... A>
  rpc::Stream<In, Out, R> stream(std::string_view service, std::string_view method, const A&... args) {
    auto [end, result] = RawPeer::stream_attached(service, method, rpc::encode_attached_arguments(args...),
                                                  rpc::detail::kStreams<Out>);
    return {std::move(end), std::move(result)};
  }
  // Returns the functions for encoded arguments. The reference is valid as long as this Peer; a
  // copy of the RawPeer is independent.
  [[nodiscard]] const RawPeer& raw() const { return *this; }
  // Returns the client of one service of this peer: peer.proxy("Calc").call<int>("add", 1, 2).
  // Include agent/stub.h.
  [[nodiscard]] Stub proxy(std::string_view service) const;
  // Lists the peer's services by name, with methods, parameters and results (rpc/reflection.h).
  Future<std::vector<rpc::ServiceInfo>> services(Nanos timeout = {}) {
    return with_timeout(span(timeout))
        .with_signature({})
        .call<std::vector<rpc::ServiceInfo>>(rpc::kReflectionService, "services");
  }
  // Returns a Peer with another default timeout: peer.with_timeout(5s).call<int>(...).
  [[nodiscard]] Peer with_timeout(Nanos timeout) const;
  // Returns a Peer whose streams have this idle timeout instead of the agent's; Nanos::max(): none.
  [[nodiscard]] Peer with_idle_timeout(Nanos idle_timeout) const;
  // Returns a Peer whose calls require the server's method to match `signature` (rpc/signature.h);
  // otherwise they end with kUnimplemented, and nothing was executed.
  [[nodiscard]] Peer with_signature(const rpc::Signature& signature) const;
  // Returns a Peer whose calls, of every kind, also carry this metadata entry (rpc/metadata.h):
  // "traceparent", a token. An invalid key or value ends each call with kInvalidArgument, too many
  // bytes with kResourceExhausted. A peer whose version has no metadata ends each call with
  // kUnimplemented, unless the entry is optional.
  [[nodiscard]] Peer with_metadata(std::string_view key, std::string_view value,
                                   rpc::Need need = rpc::Need::kRequired) const;
  // Returns a Peer whose calls write their timing to `*into` before their future is done, also when
  // they fail. A stream reports the time of the whole stream; a one-way call, which has no answer,
  // the time until it left. Only one call may be in flight at a time.
  [[nodiscard]] Peer with_timing(std::shared_ptr<rpc::CallTiming> into) const;
  // Returns a Peer whose calls, of every kind, pass `interceptor` after the interceptors of the
  // agent.
  [[nodiscard]] Peer with_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) const;
  // Returns a Peer whose calls wait up to their timeout for an unreachable peer, instead of
  // failing fast.
  [[nodiscard]] Peer wait_for_ready() const;

  // Closes the connection, if there is one, for all that use it; the next use connects again.
  Status disconnect();
  [[nodiscard]] const std::string& name() const;
  // Returns the state of the connection, the provider and the reason for it, the last error, and
  // counters.
  [[nodiscard]] PeerInfo info() const;

 private:
  friend class PeerAgent;
  friend class PeerAgentImpl;
  Peer(std::shared_ptr<PeerAgentImpl> agent, std::shared_ptr<agent::NamedPeer> peer)
      : RawPeer(std::move(agent), std::move(peer)) {}
  template <class T>
  Future<T> receive(std::uint64_t tag, Nanos timeout);
  [[nodiscard]] Peer with_settings(std::shared_ptr<const rpc::CallSettings> settings) const;
};

// The credit of a notification that is not handled yet. The destructor returns the credit to the
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

// Lets a notification handler keep the credit of its notification. Valid during the handler's call.
class NotificationCredit {
 public:
  // Keeps the credit. When a peer has no free credits for notifications, further notifications wait
  // at the peer; its calls and messages go on.
  [[nodiscard]] HeldCredit hold();
  // Returns whether the peer's calls, replies and messages go on while credits for notifications
  // are held. Returns false for a peer of an earlier version, which sends calls, replies, messages
  // and notifications with the same credits: once all credits are held, the peer can send none of
  // these, and a handler that waits for an answer of that peer waits until its timeout.
  [[nodiscard]] bool leaves_messages() const;

 private:
  friend class PeerAgentImpl;
  NotificationCredit(std::weak_ptr<PeerAgentImpl> agent, agent::Session& session)
      : agent_(std::move(agent)), session_(session) {}
  std::weak_ptr<PeerAgentImpl> agent_;
  agent::Session& session_;
};

// The agent of a process: listens, registers with nanoctrl and keeps the lease, connects to peers
// on first use, and serves their requests. Thread: any.
class PeerAgent {
 public:
  // Listens, then registers with nanoctrl if there is a ctrl_url. Returns the first error; nanoctrl
  // must answer now.
  static Result<std::unique_ptr<PeerAgent>> start(PeerAgentOptions options);
  // Returns the values that PeerAgentOptions::provider takes in this build: "auto", "tcp", ...
  // Starting an agent, or `slime doctor`, shows whether a provider works on this machine.
  static std::vector<std::string> provider_names();
  // Calls close(), then waits for running handlers, unless a Peer of this agent is left. In a
  // handler, interceptor or callback of the agent it returns at once, and another thread closes the
  // agent.
  ~PeerAgent();
  PeerAgent(const PeerAgent&) = delete;
  PeerAgent& operator=(const PeerAgent&) = delete;

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::string address() const;  // as advertised
  [[nodiscard]] InstanceId instance() const;

  // Returns the peer with this name ("worker:0") or address ("host:port", "[v6]:port"). Cannot
  // fail; the first use can.
  Peer peer(std::string_view name_or_address);

  // Allocates zeroed, touched memory that peers on this host can map. With Pages::kHuge all of the
  // memory comes from the machine's pool of huge pages, now; kResourceExhausted says how many pages
  // are missing and how to reserve them.
  Result<MemoryRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind = MemoryKind::kHost,
                                Pages pages = Pages::kDefault);
  // Registers memory of the caller; the caller keeps the memory alive until the region is closed.
  // With provider "auto", this and allocated memory is registered with an RDMA device at the first
  // connection over that device.
  Result<MemoryRegion> register_memory(void* data, std::size_t bytes, Rights rights,
                                       MemoryKind kind = MemoryKind::kHost);
  // Publishes a region under a name, by which peers ask this agent for it. Name and size go to
  // nanoctrl, keys never. Errors: kAlreadyExists if the name is in use.
  Status publish(std::string_view name, const MemoryRegion& region);
  Status unpublish(std::string_view name);

  // Serves the service to every peer, on this agent's one port, and registers it with nanoctrl.
  // Moves the service's methods into the agent.
  Status serve(rpc::Service& service);
  // Returns a proxy that calls any server of `service` in this agent's scope; see ServiceProxy.
  // Cannot fail; the first call can.
  ServiceProxy proxy(std::string_view service, ProxyOptions options = {});
  // Adds an interceptor for requests that this agent serves, or for calls that it makes, from the
  // next one on. Interceptors run in the order in which they were added.
  void add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor);
  void add_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor);
  // Refuses new requests, except to slime.Health, and waits for running handlers.
  Status drain(Nanos timeout);
  // Sets the handler of notifications; replaces an earlier handler. Without a handler notifications
  // are dropped. Thread: the loop, so be short.
  void on_imm(std::function<void(Peer, std::uint32_t)> handler);
  // Like on_imm(), for a handler that queues notifications: while its queue is full it holds
  // credits, which stops the peer.
  void on_imm_queued(std::function<void(Peer, std::uint32_t, NotificationCredit&)> handler);
  // Adds a handler that is called on the loop once for each connection that a peer has opened, when
  // it is ready, with the peer's name, which peer() takes, and the connection's id. Be short.
  void on_connect(std::function<void(const std::string& peer, std::uint64_t connection)> handler);
  // With PeerAgentOptions::accepts: waits for the next connection that a peer has opened to this
  // agent, in order, and returns the peer of that connection (Peer::of_connection); peer(name())
  // is the peer that connects again. A connection that has ended meanwhile is returned, too. Of
  // two agents that connect to each other at the same moment, one accepts nothing: both use one
  // connection. Errors: kDeadlineExceeded; kUnavailable once the agent is closed. Thread: any but
  // the loop.
  Result<Peer> accept(Nanos timeout = Nanos::max());
  // Returns the peer of a connection (Peer::of_connection) by its id: CallInfo::connection,
  // PeerInfo::connection, on_connect(). kNotFound: there is no such connection any more.
  Result<Peer> peer_of(std::uint64_t connection);
  // Adds a handler that is called on the loop once for each ended connection, with the peer's name
  // and the connection's id (CallInfo::connection). From then on no bytes of the connection land,
  // and no inline handler starts for its requests. Handlers live as long as the agent. Be short.
  void on_disconnect(std::function<void(const std::string& peer, std::uint64_t connection)> handler);

  // Returns nanoctrl's list of this scope's peers, with their services and regions. Errors:
  // kInvalidArgument without a ctrl_url.
  Result<std::vector<RegisteredPeer>> list_peers(Nanos timeout = std::chrono::seconds(5));
  // Returns the agent's options and state, its registration, its peers, its oldest operations, and
  // counters.
  [[nodiscard]] AgentInfo info() const;

  // Progress::kCaller only: runs due work; waits up to `budget` if there is none. Returns true if
  // anything ran.
  bool poll(Nanos budget);
  // Ends a poll() that waits in another thread, or the next one. Does nothing in a forked child.
  void wake();
  // Returns the driver for a thread that waits for what the agent's handlers do, such as a queue
  // that they fill: the thread makes progress while it waits, as in Future::wait().
  [[nodiscard]] std::shared_ptr<Driver> driver() const;

  // Deregisters, refuses new work, finishes work in flight within `timeout`, then closes every
  // connection and region: after it no peer touches the agent's memory. Idempotent.
  Status close(Nanos timeout = limits::kCloseBound);

 private:
  friend class PeerAgentImpl;
  explicit PeerAgent(std::shared_ptr<PeerAgentImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<PeerAgentImpl> impl_;
};

}  // namespace slime
