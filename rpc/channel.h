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
  // Most bytes of unanswered requests and unread answers that the process may hold for all
  // connections together. This connection may hold a quarter of them.
  std::uint64_t memory_bytes = limits::kMemoryBytes;
  // Time between a call's deadline and the moment at which an answer that the peer has not read is
  // revoked.
  Nanos answer_grace = limits::kAnswerGrace;
  // The channel is held until Channel::resume().
  bool held = false;
};

struct ChannelCounters {
  std::uint64_t calls = 0;
  std::uint64_t calls_failed = 0;
  std::uint64_t requests = 0;
  std::uint64_t stale_replies = 0;
  std::uint64_t one_way_failed = 0;  // refused, or failed in the handler
  // messages, including those of streams, that receives and reads have given back
  std::uint64_t receives_given_back = 0;
  std::uint64_t rendezvous = 0;
  std::uint64_t pulled_bytes = 0;  // bytes read from lent memory
  std::uint64_t copied_bytes = 0;  // bytes of inline attachments, copied into or out of frames
  // memory registered for bodies and attachments, one call after the other, and blocks made for
  // them, which are registered once; and the bytes of these blocks now
  std::uint64_t registrations = 0;
  std::uint64_t blocks_made = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t over_budget = 0;      // requests and answers refused because of memory_bytes
  std::uint64_t answers_revoked = 0;  // answers revoked because the peer had not read them in time
  std::uint64_t held_bytes = 0;       // bytes of requests and answers held now
  std::size_t calls_in_flight = 0;
  std::size_t queued_frames = 0;
  std::size_t lent_buffers = 0;
  // open streams of both sides, and ended streams whose messages are still being read
  std::size_t streams = 0;
};

// Callbacks of a channel to its owner, called on the loop. They must not destroy the channel.
class ChannelOwner {
 public:
  // Called once, when the channel is usable: messages have gone both ways.
  virtual void on_channel_ready() noexcept = 0;
  virtual void on_channel_imm(std::uint32_t imm) noexcept = 0;
  // Called when the endpoint, after it refused one-sided operations with kResourceExhausted, may
  // accept them again.
  virtual void on_channel_writable() noexcept {}
  // Called when the peer asks for a region by name. Returns its descriptor, or kNotFound or
  // kPermissionDenied.
  virtual Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept = 0;
  // Called when the peer has revoked a region whose descriptor it had sent to this side.
  virtual void on_region_revoked(std::string_view name) noexcept = 0;
  // Called once when the peer begins to close the channel, but not after close(). The peer still
  // answers earlier requests and refuses new ones; no one-sided operation may be posted any more.
  virtual void on_channel_closing() noexcept {}
  // Called when the peer proves that it knows a key (transport/handshake_proof.h). An error ends
  // the channel, like expel().
  virtual Status on_channel_proof(Bytes proof) noexcept {
    static_cast<void>(proof);
    return {Code::kCorrupt, "a proof of a key on a connection without keys"};
  }
  // Called when a one-way call of this side was refused by the peer, or its handler failed.
  virtual void on_one_way_failed(const Status& status) noexcept { static_cast<void>(status); }
  // Called once, as the last callback, when everything has completed. `reason` is OK if this side
  // closed the channel.
  virtual void on_channel_closed(const Status& reason) noexcept = 0;

 protected:
  ~ChannelOwner() = default;
};

using CallHandler = UniqueFunction<void(Result<Payload>)>;
using DeliveryHandler = UniqueFunction<void(Result<Delivery>)>;
using LengthHandler = UniqueFunction<void(Result<std::uint64_t>)>;
using DoneHandler = UniqueFunction<void(Status)>;
using RegionHandler = UniqueFunction<void(Result<transport::RemoteRegion>)>;

// Identifies a call or receive of a channel, for cancel().
struct Ticket {
  // 0: the call or receive was refused or has ended; its handler has been or will be called
  std::uint64_t value = 0;
};

// Attributes of a call. The function that takes a CallSpec reads the names only before it returns.
struct CallSpec {
  std::string_view service;
  std::string_view method;
  TimePoint deadline = kNever;
  // Metadata and timing of this call, or null. The channel uses the context until it calls the
  // call's handler. If the peer takes no metadata and an entry is required: kUnimplemented, and
  // nothing is sent. If no entry is required, the call is made without metadata and timing.
  std::shared_ptr<CallContext> context{};
  // Signature::hash() that the peer's method must have; 0: any. If the method has another
  // signature, and the peer checks signatures: kUnimplemented, and nothing was executed.
  std::uint64_t signature = 0;
  // StreamOptions::idle_timeout of a stream; zero: the channel's.
  Nanos idle_timeout{};
};

// Implements the mailbox protocol over one endpoint: calls, user messages, region look-up and ping,
// in both directions. The channel is the receiver of its endpoint. Each handler is called exactly
// once, on the loop, never before the function that took the handler returns. Thread: the loop.
// Destroy a channel on the loop, but not in one of its callbacks.
class Channel {
 public:
  // `server` and `device` must outlive the channel. If `server` is null, each request is answered
  // with kNotFound.
  static std::unique_ptr<Channel> create(transport::Loop& loop, transport::Device& device,
                                         std::unique_ptr<transport::Endpoint> endpoint, Server* server,
                                         ChannelOwner& owner, ChannelOptions options = {});
  virtual ~Channel() = default;

  // Calls a method. The handler gets the reply's payload, or an error whose maybe_executed() tells
  // whether the peer may have executed the call. A refused call (too many calls, full queue,
  // closed) also ends through the handler.
  virtual Ticket call(const CallSpec& spec, ByteVector body, CallHandler handler) = 0;
  // Calls a method with attachments, and with destinations for the attachments of the reply.
  // Nothing is written to the destinations once the handler is called: a call that timed out or was
  // cancelled waits for a read in progress. kUnimplemented: the peer knows no attachments.
  // kInvalidArgument: an attachment of the reply does not fit into its destination.
  virtual Ticket call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) = 0;
  // Calls a method without a reply. The handler gets OK when the request has left and the peer has
  // read the lent attachments, whose memory may change from then on. A deadline or a cancel may end
  // the call earlier. Later failures go to ChannelOwner::on_one_way_failed(). `request` must have
  // no destinations. All time of the context's timing counts as network time.
  virtual Ticket call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) = 0;
  // Calls a streaming method. `stream` (not null, new) is this side's end of the stream. The
  // handler gets the method's result, which ends the stream. kUnimplemented, and nothing is sent,
  // if the peer does not know streams. The deadline and the timing are for the whole stream. When
  // the idle timeout passes, the peer's handler is cancelled.
  virtual Ticket stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                        CallHandler handler) = 0;
  // Sends a message to the peer's inbox. The handler gets OK when the peer's channel has received
  // the message, kResourceExhausted if the inbox is full.
  virtual Ticket send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) = 0;
  // Sends a message of ranges of registered memory, in order, without a copy: the peer reads them
  // once a receive gets the message. The handler gets OK when that receive has them, and
  // kInvalidArgument if it has no room for them. The bytes must not change until then, or if the
  // send fails otherwise, until the connection ends or the regions are closed. To an older peer,
  // and without ranges, it is send() of a copy.
  virtual Ticket send_ranges(std::uint64_t tag, Attachments ranges, TimePoint deadline,
                             DoneHandler handler) = 0;
  // Receives the next message with this tag into memory of the caller, one range after the other.
  // The handler gets the length of the message. If the message is longer than the memory, it gets
  // kInvalidArgument, and nothing was written: the message goes back to its tag, or, if it lies in
  // its sender's memory, its sender gets that error, too. Nothing is written once the handler is
  // called: a receive that timed out or was cancelled waits for a read in progress, and then the
  // message is the next receive's.
  virtual Ticket recv_into(std::uint64_t tag, Destinations into, TimePoint deadline,
                           LengthHandler handler) = 0;
  // Receives the next message with this tag, in order of arrival. If the handler does not take the
  // message out of the Delivery, the message goes back to the front of its tag, for the next
  // receive; after the channel is closed it is dropped.
  virtual Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) = 0;
  virtual Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) = 0;
  // Proves that the peer's loop runs.
  virtual Ticket ping(TimePoint deadline, DoneHandler handler) = 0;
  // Ends the call or receive with kCancelled, unless it has ended already. Memory lent for it stays
  // lent until the peer releases the memory.
  virtual void cancel(Ticket ticket) = 0;

  // Ends the hold of a channel that was created with ChannelOptions::held. A held channel says
  // hello, answers pings and takes proofs. All other frames of the peer wait, and keep their
  // credits, so the owner makes no requests but pings. resume() handles the waiting frames in a
  // later turn, in order, and their time counts against their deadlines; close() does that, too.
  virtual void resume() = 0;

  // Tells the peer that the region `name` no longer exists.
  virtual void revoke_region(std::string_view name) = 0;

  // Sends a proof of a key to the peer, ahead of all queued frames. Does nothing if takes_proofs()
  // is false.
  virtual void prove(Bytes proof) = 0;
  // Tells the peer the reason, and ends the channel within limits::kExpelBound. No requests are
  // sent or answered any more; requests in flight end with kUnavailable and the reason. If the peer
  // knows no proofs (takes_proofs()), or has left no credit, the connection is reset instead.
  virtual void expel(Status reason) = 0;

  // Closes the endpoint when the requests in flight have ended, after `bound` at the latest.
  // Requests that have not ended by then end with kCancelled.
  virtual void close(Nanos bound) = 0;
  virtual void reset(Status reason) = 0;

  [[nodiscard]] virtual bool ready() const = 0;
  [[nodiscard]] virtual bool closed() const = 0;
  [[nodiscard]] virtual transport::Endpoint& endpoint() = 0;  // for one-sided operations
  [[nodiscard]] virtual bool idle() const = 0;                // nothing in flight or lent
  // Returns whether the peer keeps enough credits for its messages while this side holds the
  // credits of its notifications (Endpoint::hold_credit). Older peers do not: their replies wait
  // meanwhile, too.
  [[nodiscard]] virtual bool peer_leaves_message_credits() const = 0;
  // Returns whether the peer's hello has arrived and says that the peer knows proofs of keys.
  [[nodiscard]] virtual bool takes_proofs() const = 0;
  [[nodiscard]] virtual ChannelCounters counters() const = 0;
};

}  // namespace slime::rpc
