#pragma once

// Private to rpc: the requests of a channel that wait for an answer of the peer.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/completions.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/turn.h"

namespace slime::rpc {

// Keeps calls, messages, look-ups, pings and receives until they end by an answer, an error, a
// cancel or a deadline. Each request ends once: its handler is added to the Completions. If the
// request's frame was never sent, the frame is removed from the queue and its lent memory released.
// Thread: the loop.
class CallTable {
 public:
  using Handler = Completions::Handler;
  using Outcome = Completions::Outcome;
  enum class Kind : std::uint8_t { kCall, kSend, kRecv, kLookup, kPing };

  // A request, or a receive, that waits.
  struct Pending {
    Pending(Kind k, Handler&& h, TimePoint d) : kind(k), handler(std::move(h)), deadline(d) {}
    Kind kind;
    Handler handler;
    TimePoint deadline;
    bool sent = false;     // the frame has left the queue, so the peer may execute the request
    bool pulling = false;  // the reply or the message has arrived, and what it lends is being read
    bool parks = false;    // a message that waits at the peer for a receive
    std::optional<Outbox::Place> queued;
    Handle lent;                   // a lent body; generation 0: none
    std::uint64_t tag = 0;         // receive: its tag
    std::uint64_t into = 0;        // number of the destinations in AttachmentRoom; 0: none
    PeerMethod* method = nullptr;  // for a call: gets the number that the peer gives to the method
  };

  // The other parts of the channel that must know when a request ends.
  class Host {
   public:
    // A receive has ended without a message.
    virtual void on_receive_ended(std::uint64_t tag, Handle receive) = 0;
    // Stops reading the reply of `call`, or the message of that receive. Returns true if reading
    // itself ends the call or receive with `reason`, now or after the read in progress.
    virtual bool end_reading(Handle call, const Status& reason) = 0;
    // Returns the error text of a call whose deadline has passed; empty for the default text.
    [[nodiscard]] virtual std::string deadline_text(Handle call) const = 0;
    // Called when a one-way call failed after its frame had left. `method`: null if unknown.
    virtual void on_one_way_failed(Status status, const PeerMethod* method) = 0;

   protected:
    ~Host() = default;
  };
  struct Counters {
    std::uint64_t calls_failed = 0;
    std::uint64_t stale_replies = 0;
  };
  CallTable(Connection& connection, Completions& completions, Outbox& outbox, Lending& lending,
            TurnHost& turns, Host& host);

  // ---- asking
  // Returns OK if one more request of this kind is allowed now, otherwise the error to end it with.
  [[nodiscard]] Status admission(Kind kind) const;
  // Ends a request that was not added.
  Ticket refuse(Kind kind, Handler&& handler, Status status);
  // Adds a request for which admission() has returned OK. The pointer is valid until the next
  // add().
  std::pair<Handle, Pending*> add(Kind kind, Handler&& handler, TimePoint deadline);
  // Sends the frame of a request that was added, or queues the frame.
  Ticket ask(Handle handle, TimePoint deadline, OutFrame& frame);
  // Watches the deadline of a receive, which has no frame.
  void watch(TimePoint deadline) { deadlines_.arm(deadline); }
  // Called when the frame of a request has left the queue.
  void on_left(const OutFrame& frame);

  // ---- answers
  // Returns the waiting request that an answer with this header belongs to. Returns null if the
  // request has ended, and counts the answer as stale; kCorrupt if the request does not wait for
  // such an answer.
  Result<Pending*> expected(const wire::FrameHeader& header, Kind kind);
  void finish(Handle handle, Outcome&& outcome);
  void count_stale() { ++counters_.stale_replies; }
  // Removes a call or a receive and returns its handler, which the caller must call now.
  CallHandler take_call(Handle handle, Pending& pending);
  DeliveryHandler take_receive(Handle handle);

  // ---- other ends
  // Ends the request with an error, whose maybe_executed() tells whether the frame has left. Does
  // nothing if the request has ended.
  void fail(Handle handle, Status status);
  // Sends a cancel to the peer if the call's frame has left. Not used when a deadline passes,
  // because the peer knows the deadline.
  void tell_cancelled(Handle handle);
  void fail_receives();
  // Fails all requests and receives. Called when the channel is closed.
  void fail_all();

  [[nodiscard]] Pending* find(Handle handle) { return pending_.find(handle); }
  [[nodiscard]] const Pending* find(Handle handle) const { return pending_.find(handle); }
  [[nodiscard]] bool knew(Handle handle) const { return pending_.knew(handle); }
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] std::size_t asked() const { return asked_; }  // without receives
  [[nodiscard]] std::size_t receives() const { return receives_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  void on_one_way_left(Handle handle, const OutFrame& frame);
  void end_one_way(Handle handle, bool answered);
  void expire();

  Connection& connection_;
  Completions& completions_;
  Outbox& outbox_;
  Lending& lending_;
  Host& host_;
  SlotMap<Pending> pending_;
  std::size_t asked_ = 0;
  std::size_t receives_ = 0;
  DueTimer deadlines_;
  Counters counters_;
};

}  // namespace slime::rpc
