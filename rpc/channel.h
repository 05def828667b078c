#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/result.h"
#include "rpc/delivery.h"
#include "rpc/limits.h"
#include "rpc/payload.h"
#include "rpc/server.h"
#include "rpc/stream/stream_end.h"
#include "transport/endpoint.h"
#include "transport/provider.h"

namespace slime::rpc {

struct ChannelOptions {
  std::string peer_name;
  std::size_t max_calls = limits::kMaxCalls;            // unanswered calls
  std::size_t queue_bytes = limits::kQueueBytes;        // frames that wait for a credit
  std::size_t inbox_messages = limits::kInboxMessages;  // user messages that no receive has taken
  std::size_t inbox_bytes = limits::kInboxBytes;
  std::uint64_t max_payload_bytes = limits::kMaxPayloadBytes;
  StreamOptions streams{};  // of each stream
  // Most bytes of unanswered requests and unread answers that all connections of the process may
  // hold. This connection may hold a quarter.
  std::uint64_t memory_bytes = limits::kMemoryBytes;
  // Time after a call's deadline at which an unread answer is revoked.
  Nanos answer_grace = limits::kAnswerGrace;
};

struct ChannelCounters {
  std::uint64_t calls = 0;
  std::uint64_t calls_failed = 0;
  std::uint64_t requests = 0;
  std::uint64_t stale_replies = 0;
  std::uint64_t one_way_failed = 0;       // refused, or failed in the handler
  std::uint64_t receives_given_back = 0;  // messages, of streams too, given back by a receive
  std::uint64_t rendezvous = 0;
  std::uint64_t pulled_bytes = 0;     // bytes read from lent memory
  std::uint64_t copied_bytes = 0;     // bytes of inline attachments, copied into or out of frames
  std::uint64_t over_budget = 0;      // requests and answers refused because of memory_bytes
  std::uint64_t answers_revoked = 0;  // answers that the peer had not read in time
  std::uint64_t held_bytes = 0;       // bytes of requests and answers held now
  std::size_t calls_in_flight = 0;
  std::size_t queued_frames = 0;
  std::size_t lent_buffers = 0;
  std::size_t streams = 0;  // open ones of both sides, and ended ones whose messages are still read
};

// Callbacks of a channel to its owner, on the loop. They may not destroy the channel.
class ChannelOwner {
 public:
  // The channel is usable: a message went both ways. Called once.
  virtual void on_channel_ready() noexcept = 0;
  virtual void on_channel_imm(std::uint32_t imm) noexcept = 0;
  // The endpoint may take one-sided operations that it refused with kResourceExhausted.
  virtual void on_channel_writable() noexcept {}
  // The peer asks for a region by name. Returns its descriptor, or kNotFound, kPermissionDenied.
  virtual Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept = 0;
  // The peer revoked a region that it had described.
  virtual void on_region_revoked(std::string_view name) noexcept = 0;
  // The peer closes the channel gracefully: earlier requests are still answered, new requests are
  // refused, and no one-sided operation may be posted. Called once, and not after close().
  virtual void on_channel_closing() noexcept {}
  // The peer proves a key (transport/handshake_proof.h). An error ends the channel, like expel().
  virtual Status on_channel_proof(Bytes proof) noexcept {
    static_cast<void>(proof);
    return {Code::kCorrupt, "a proof of a key on a connection without keys"};
  }
  // The peer refused a one-way call, or its handler failed.
  virtual void on_one_way_failed(const Status& status) noexcept { static_cast<void>(status); }
  // The last callback, once: everything has completed. OK: this side closed the channel.
  virtual void on_channel_closed(const Status& reason) noexcept = 0;

 protected:
  ~ChannelOwner() = default;
};

using CallHandler = UniqueFunction<void(Result<Payload>)>;
using DeliveryHandler = UniqueFunction<void(Result<Delivery>)>;
using DoneHandler = UniqueFunction<void(Status)>;
using RegionHandler = UniqueFunction<void(Result<transport::RemoteRegion>)>;

// Names a call or receive of a channel for cancel().
struct Ticket {
  std::uint64_t value = 0;  // 0: refused or ended; the handler was or will be called
};

// Attributes of a call. The names are read only before the function that takes them returns.
struct CallSpec {
  std::string_view service;
  std::string_view method;
  TimePoint deadline = kNever;
  // Metadata and timing of this call, or null. Read and written until the call's handler is called.
  // If the peer takes no metadata: kUnimplemented, and nothing is sent, if an entry is required;
  // otherwise the call is made without metadata and times.
  std::shared_ptr<CallContext> context{};
  // Signature::hash() of the method; 0: any. kUnimplemented, and nothing was executed, if the
  // peer's method has another signature and the peer checks signatures.
  std::uint64_t signature = 0;
  // StreamOptions::idle_timeout of a stream; zero: the channel's.
  Nanos idle_timeout{};
};

// The mailbox protocol over one endpoint: calls, user messages, region look-up, ping, both ways.
// The channel is the receiver of its endpoint. Each handler is called exactly once, on the loop,
// never before the function that took the handler returns. Thread: the loop. Destroy a channel on
// the loop, outside its callbacks.
class Channel {
 public:
  // `server` and `device` outlive the channel. Without a server each request is answered with
  // kNotFound.
  static std::unique_ptr<Channel> create(transport::Loop& loop, transport::Device& device,
                                         std::unique_ptr<transport::Endpoint> endpoint, Server* server,
                                         ChannelOwner& owner, ChannelOptions options = {});
  virtual ~Channel() = default;

  // Calls a method. The handler gets the reply's payload, or an error with maybe_executed(), also
  // if the call is refused (too many calls, full queue, closed).
  virtual Ticket call(const CallSpec& spec, ByteVector body, CallHandler handler) = 0;
  // Calls a method with attachments, and with destinations for the attachments of the reply.
  // Destinations are not written any more when the handler is called: a call that timed out or was
  // cancelled first waits for a read in progress. kUnimplemented: the peer knows no attachments.
  // kInvalidArgument: an attachment of the reply does not fit into its destination.
  virtual Ticket call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) = 0;
  // Calls a method without a reply. OK when the request has left and the peer has read lent
  // attachments, whose memory may change then. A deadline or a cancel may end the call earlier,
  // like any call. The owner is told of later failures. `request` has no destinations. The timing
  // of the context is all network time.
  virtual Ticket call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) = 0;
  // Calls a streaming method. `stream` (not null, new) is this side's end. The handler gets the
  // method's result, which ends the stream. kUnimplemented, and nothing is sent, if the peer has no
  // streams. Deadline and times are those of the whole stream. The idle timeout cancels the
  // handler.
  virtual Ticket stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                        CallHandler handler) = 0;
  // Sends a message to the peer's inbox. OK when the peer's channel has it. kResourceExhausted: the
  // inbox is full.
  virtual Ticket send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) = 0;
  // Receives the next message with this tag, in order of arrival. A delivery that is not taken goes
  // back to the front of its tag, for the next receive; after the channel is closed the message is
  // dropped.
  virtual Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) = 0;
  virtual Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) = 0;
  // Proves that the peer's loop runs.
  virtual Ticket ping(TimePoint deadline, DoneHandler handler) = 0;
  // Ends the call or receive with kCancelled if it has not ended. Lent memory stays lent until the
  // peer releases it.
  virtual void cancel(Ticket ticket) = 0;

  // Tells the peer that this region is gone.
  virtual void revoke_region(std::string_view name) = 0;

  // Sends a proof of a key, before all queued frames. Does nothing unless takes_proofs().
  virtual void prove(Bytes proof) = 0;
  // Tells the peer the reason and ends the channel within limits::kExpelBound. Nothing more is
  // requested or answered; requests in flight end with kUnavailable and the reason. If the peer
  // knows no proofs (takes_proofs()), or has left no credit, the connection is reset instead.
  virtual void expel(Status reason) = 0;

  // Waits up to `bound` for requests in flight, then closes the endpoint. Other requests end with
  // kCancelled.
  virtual void close(Nanos bound) = 0;
  virtual void reset(Status reason) = 0;

  [[nodiscard]] virtual bool ready() const = 0;
  [[nodiscard]] virtual bool closed() const = 0;
  [[nodiscard]] virtual transport::Endpoint& endpoint() = 0;  // for one-sided operations
  [[nodiscard]] virtual bool idle() const = 0;                // nothing in flight or lent
  // Returns whether the peer's notifications leave credits for its messages. Older peers do not:
  // while credits of their notifications are held (Endpoint::hold_credit), their replies wait, too.
  [[nodiscard]] virtual bool peer_leaves_message_credits() const = 0;
  // Returns whether the peer's hello has come and says that the peer knows proofs of keys.
  [[nodiscard]] virtual bool takes_proofs() const = 0;
  [[nodiscard]] virtual ChannelCounters counters() const = 0;
};

}  // namespace slime::rpc
