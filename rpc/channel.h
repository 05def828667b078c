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
  std::size_t max_calls = limits::kMaxCalls;      // calls that wait for a reply; one more: kResourceExhausted
  std::size_t queue_bytes = limits::kQueueBytes;  // frames that wait for a credit
  std::size_t inbox_messages = limits::kInboxMessages;  // user messages that nobody has taken yet
  std::size_t inbox_bytes = limits::kInboxBytes;
  std::uint64_t max_payload_bytes = limits::kMaxPayloadBytes;
  StreamOptions streams{};  // of each
  // Most bytes of unanswered requests and unread answers that all connections of the process may
  // hold. This connection may hold a quarter.
  std::uint64_t memory_bytes = limits::kMemoryBytes;
  // Time after a call's deadline at which an answer that the peer has not read is revoked.
  Nanos answer_grace = limits::kAnswerGrace;
};

struct ChannelCounters {
  std::uint64_t calls = 0;
  std::uint64_t calls_failed = 0;
  std::uint64_t requests = 0;
  std::uint64_t stale_replies = 0;
  std::uint64_t one_way_failed = 0;       // one-way calls that the peer refused, or whose handler failed
  std::uint64_t receives_given_back = 0;  // messages, of streams too, given back by a receive
  std::uint64_t rendezvous = 0;
  std::uint64_t pulled_bytes = 0;     // bytes read from memory that peers lent
  std::uint64_t copied_bytes = 0;     // bytes of inline attachments, copied into or out of frames
  std::uint64_t over_budget = 0;      // requests and answers refused because of memory_bytes
  std::uint64_t answers_revoked = 0;  // answers that the peer had not read by deadline and grace
  std::uint64_t held_bytes = 0;       // bytes of requests and answers held now
  std::size_t calls_in_flight = 0;
  std::size_t queued_frames = 0;
  std::size_t lent_buffers = 0;
  std::size_t streams = 0;  // both ways, until their messages have come here too
};

// What a channel asks and tells its owner, on the loop. May not destroy the channel.
class ChannelOwner {
 public:
  // A message went both ways: the channel is usable. Once.
  virtual void on_channel_ready() noexcept = 0;
  virtual void on_channel_imm(std::uint32_t imm) noexcept = 0;
  // The endpoint's on_ready: one-sided operations that it refused with kResourceExhausted may be taken now.
  virtual void on_channel_writable() noexcept {}
  // The peer asks for a region by name: its descriptor, or kNotFound, kPermissionDenied.
  virtual Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept = 0;
  // The peer revoked a region that it had described: forget it.
  virtual void on_region_revoked(std::string_view name) noexcept = 0;
  // The peer closes the channel in good order: what it was asked before is still answered, new calls are
  // refused, and no one-sided operation may be posted any more. Once, not after a close() of ours.
  virtual void on_channel_closing() noexcept {}
  // The peer proves a key (transport/handshake_proof.h). An error ends the channel, as expel() does.
  virtual Status on_channel_proof(Bytes proof) noexcept {
    static_cast<void>(proof);
    return {Code::kCorrupt, "a proof of a key on a connection without keys"};
  }
  // The peer refused a one-way call, or its handler failed.
  virtual void on_one_way_failed(const Status& status) noexcept { static_cast<void>(status); }
  // The last call, once; everything has completed. OK: we closed it.
  virtual void on_channel_closed(const Status& reason) noexcept = 0;

 protected:
  ~ChannelOwner() = default;
};

using CallHandler = UniqueFunction<void(Result<Payload>)>;
using DeliveryHandler = UniqueFunction<void(Result<Delivery>)>;
using DoneHandler = UniqueFunction<void(Status)>;
using RegionHandler = UniqueFunction<void(Result<transport::RemoteRegion>)>;

// Names one call or receive of one channel for cancel().
struct Ticket {
  std::uint64_t value = 0;  // 0: it was refused or is over already; its handler ran or will run by itself
};

// What every kind of call has besides its body. The names are only read while it is begun.
struct CallSpec {
  std::string_view service;
  std::string_view method;
  TimePoint deadline = kNever;
  // Metadata, and the wish to know where the time goes, or null. One for each call, of whatever kind; it is
  // read and written until the call's handler is called. To a peer that takes no metadata: kUnimplemented,
  // and nothing is sent, if an entry is required; else the call is made without, and its times are not told.
  std::shared_ptr<CallContext> context{};
  // What the caller takes the method for: Signature::hash(); 0: anything. kUnimplemented, and nothing was
  // executed, if the peer's method is another one, as far as the peer looks.
  std::uint64_t signature = 0;
  // For a stream: its StreamOptions::idle_timeout; zero: the channel's.
  Nanos idle_timeout{};
};

// The mailbox protocol over one endpoint, of which it is the receiver: calls, user messages, region look-up,
// ping. Both ends call each other on it. Every handler given to it is called exactly once, on the loop, never
// from inside the call that was given it. Thread: the loop. Lifetime: destroy it on the loop, outside its
// callbacks.
class Channel {
 public:
  // `server` (may be null: every request answers kNotFound) and `device` outlive it.
  static std::unique_ptr<Channel> create(transport::Loop& loop, transport::Device& device,
                                         std::unique_ptr<transport::Endpoint> endpoint, Server* server,
                                         ChannelOwner& owner, ChannelOptions options = {});
  virtual ~Channel() = default;

  // Calls a method; the reply's payload, or the error with maybe_executed() set right. Refusals (too many
  // calls, full queue, closed) come through the handler too.
  virtual Ticket call(const CallSpec& spec, ByteVector body, CallHandler handler) = 0;
  // The same with attachments beside the body, and memory that those of the reply are read into: that is not
  // touched any more once the handler is called, for which a call that has timed out or was cancelled waits
  // while a read into it is under way. kUnimplemented when the peer knows no attachments; kInvalidArgument
  // when one of the reply's does not fit where it should go.
  virtual Ticket call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) = 0;
  // Calls a method whose answer nobody wants: OK once the request has left, after which only the end of the
  // connection can lose it. If attachments of it are lent (those that do not fit into the message), OK once
  // the peer has read them, too, so that their memory may change; a deadline or a cancel ends it before, as
  // any call. Failures are told to the owner. The request names no memory for a reply. No answer tells times:
  // those of its context are all network.
  virtual Ticket call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) = 0;
  // A call of a method that streams: `stream` (not null, of no other call) is this side of it. The handler
  // gets the method's result, which ends the stream; kUnimplemented, and nothing is sent, if the peer has no
  // streams. The deadline and the times are those of the whole stream. The idle timeout cancels the
  // handler.
  virtual Ticket stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                        CallHandler handler) = 0;
  // Sends to the peer's inbox; OK once the peer's channel has it. kResourceExhausted when its inbox is full.
  virtual Ticket send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) = 0;
  // Receives the next message with this tag, in order of arrival. A delivery that is not taken goes
  // back to the front of its tag, for the next receive; after the channel is closed the message is
  // dropped.
  virtual Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) = 0;
  virtual Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) = 0;
  // Proves that the peer's loop runs.
  virtual Ticket ping(TimePoint deadline, DoneHandler handler) = 0;
  // Completes it with kCancelled if it is not over. What is lent stays lent until the peer is done with it.
  virtual void cancel(Ticket ticket) = 0;

  // Tells the peer that a region it may hold is gone.
  virtual void revoke_region(std::string_view name) = 0;

  // Sends a proof of a key, before all that waits to be sent. Only if takes_proofs().
  virtual void prove(Bytes proof) = 0;
  // Tells the peer the reason and ends the channel within limits::kExpelBound. Nothing more is asked or
  // answered; what is in flight completes with kUnavailable and the reason. A peer without takes_proofs(), or
  // that has left no credit for one more message, is reset without a word.
  virtual void expel(Status reason) = 0;

  // Finishes what is in flight up to `bound`, then closes the endpoint; the rest completes with kCancelled.
  virtual void close(Nanos bound) = 0;
  virtual void reset(Status reason) = 0;

  [[nodiscard]] virtual bool ready() const = 0;
  [[nodiscard]] virtual bool closed() const = 0;
  [[nodiscard]] virtual transport::Endpoint& endpoint() = 0;  // for one-sided operations
  [[nodiscard]] virtual bool idle() const = 0;                // nothing in flight or lent, either way
  // Whether the peer's notifications leave credits to its messages. Those of a peer of an earlier version do
  // not: while the credits of its notifications are held (Endpoint::hold_credit), its replies wait, too.
  [[nodiscard]] virtual bool peer_leaves_message_credits() const = 0;
  // Whether the peer's hello has come and says that the peer understands proofs of keys.
  [[nodiscard]] virtual bool takes_proofs() const = 0;
  [[nodiscard]] virtual ChannelCounters counters() const = 0;
};

}  // namespace slime::rpc
