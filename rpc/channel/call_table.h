#pragma once

// Private to rpc: what a channel has asked of its peer, and waits for.

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

// Keeps calls, messages, look-ups, pings and receives from the time they are asked until they end:
// by an answer, an error, a cancel, or their deadline. Each ends once; then its handler is added
// to the completions, and what is queued or lent for a request that never left goes. Thread: the
// loop.
class CallTable {
 public:
  using Handler = Completions::Handler;
  using Outcome = Completions::Outcome;
  enum class Kind : std::uint8_t { kCall, kSend, kRecv, kLookup, kPing };

  // Something that waits for the peer.
  struct Pending {
    Pending(Kind k, Handler&& h, TimePoint d) : kind(k), handler(std::move(h)), deadline(d) {}
    Kind kind;
    Handler handler;
    TimePoint deadline;
    bool sent = false;     // the request left our queue: it may be executed
    bool pulling = false;  // the reply has come and is being read
    std::optional<Outbox::Place> queued;
    Handle lent;                   // the body, when it goes by rendezvous
    std::uint64_t tag = 0;         // of a receive
    std::uint64_t into = 0;        // of a call: the number of its destinations; 0: none
    PeerMethod* method = nullptr;  // of a call: where the peer's number for the method goes
  };

  // The parts of the channel that something pending belongs to as well.
  class Host {
   public:
    virtual void on_receive_ended(std::uint64_t tag, Handle receive) = 0;
    // Ends the reading of a call's reply for this reason. True: later, then the call ends with it.
    virtual bool end_reading(Handle call, const Status& reason) = 0;
    // The error text of a call whose deadline has passed; empty: the usual one.
    [[nodiscard]] virtual std::string deadline_text(Handle call) const = 0;
    // A one-way call failed after it had left. `method`: null if unknown.
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
  // Whether something more of this kind may be asked now.
  [[nodiscard]] Status admission(Kind kind) const;
  // Ends something that was not added.
  Ticket refuse(Kind kind, Handler&& handler, Status status);
  // Adds what admission() has allowed. The place is valid until the next add().
  std::pair<Handle, Pending*> add(Kind kind, Handler&& handler, TimePoint deadline);
  // Sends or queues the frame of a pending one.
  Ticket ask(Handle handle, TimePoint deadline, OutFrame& frame);
  // Watches the deadline of one that has no frame.
  void watch(TimePoint deadline) { deadlines_.arm(deadline); }
  // The frame of a pending one has left.
  void on_left(const OutFrame& frame);

  // ---- answers
  // Returns the one that waits for this answer: null when it is over (counted), kCorrupt when nobody asked
  // for such an answer.
  Result<Pending*> expected(const wire::FrameHeader& header, Kind kind);
  void finish(Handle handle, Outcome&& outcome);
  void count_stale() { ++counters_.stale_replies; }
  // Removes a call, or a receive, whose handler its caller calls at once.
  CallHandler take_call(Handle handle, Pending& pending);
  DeliveryHandler take_receive(Handle handle);

  // ---- other ends
  // Ends it with an error, whose maybe_executed() tells whether the request has left. Does nothing if it is
  // over.
  void fail(Handle handle, Status status);
  // Tells the peer that nobody waits for the answer any more. Of a deadline the peer knows by
  // itself.
  void tell_cancelled(Handle handle);
  void fail_receives();
  // Fails all: the channel is closed.
  void fail_all();

  [[nodiscard]] Pending* find(Handle handle) { return pending_.find(handle); }
  [[nodiscard]] const Pending* find(Handle handle) const { return pending_.find(handle); }
  [[nodiscard]] bool knew(Handle handle) const { return pending_.knew(handle); }
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] std::size_t asked() const { return asked_; }  // those that the peer must answer
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
