#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/endpoint.h"
#include "transport/endpoint/credit_ledger.h"
#include "transport/endpoint/life.h"
#include "transport/endpoint/post_checks.h"
#include "transport/endpoint/post_gate.h"
#include "transport/soft/frames.h"
#include "transport/soft/operations.h"
#include "transport/soft/port.h"
#include "transport/wire.h"

namespace slime::transport::soft {

// State that the parts of one endpoint share: the wire, the life, the credits, the operations, and
// whether the port will call the endpoint. Thread: the loop.
class Link {
 public:
  // `endpoint`: the endpoint that the port calls for its turn.
  Link(SoftEndpoint& endpoint, std::shared_ptr<PortState> on, std::shared_ptr<CreditAccount> account,
       const Parameters& parameters, std::unique_ptr<Wire> over, Introduction introduction);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::shared_ptr<PortState> port;
  const std::shared_ptr<Loop> loop;
  const Parameters peer;
  const Introduction who;
  const std::uint64_t id;
  std::unique_ptr<Wire> wire;  // null once the endpoint has ended
  PeerMemory* memory;          // the wire's peer_memory(); null: all data goes over the wire
  const std::string wire_text;
  const PostChecks checks;
  EndpointCounters counters;

  EndpointLife life{EndpointLife::State::kOpen};
  EndpointTimer timer;
  StallWatch stalls;
  SendCredits credits;
  PostGate gate;
  // a post was refused for lack of credits; the next message or notification tells the peer so
  bool starved = false;
  ReceiveCredits given;
  OneSidedTable operations;
  // The most bytes of a long message, in both directions; 0: the wire takes none.
  const std::uint32_t long_bytes;
  std::uint64_t long_unsent = 0;  // bytes of long messages that the wire has not taken completely

  // true while the endpoint handles a burst, after which it sends queued frames anyhow
  bool in_burst = false;
  bool scheduled = false;
  // an operation completed while staging, so its callback may have posted more
  bool completed_in_stage = false;

  [[nodiscard]] bool working() const { return life.working(); }
  // Returns whether a message of this side is a long one.
  [[nodiscard]] bool is_long(std::uint32_t bytes) const { return bytes > peer.slot_bytes; }
  [[nodiscard]] std::size_t in_flight() const { return messages_in_flight_ + operations.size(); }
  // Notes that bytes of one-sided operations of this side have moved now. Cheap: the loop reads the
  // clock only once for each round of callbacks.
  void note_progress() { stalls.note_progress(loop->now()); }

  // Makes the port call the endpoint's run() in a later turn. schedule() does nothing inside a
  // burst. `lazily`: that turn may wait until the loop runs for other work.
  void schedule() {
    if (!in_burst) schedule_turn();
  }
  void schedule_turn(bool lazily = false);

  // Stops all traffic at once. The operations complete in a later turn, but their regions are
  // released here, so that an owner may free a region as soon as its close() returns.
  void break_now(Status reason);
  void corrupt(std::string_view what);

  // Note the post of an operation. take_deadline() returns when a message must be sent;
  // take_bounds() returns the time bounds of a one-sided operation.
  TimePoint take_deadline(const Operation& operation);
  TimeBounds take_bounds(const Operation& operation);

  void complete(Operation& operation, Status status);
  void complete_one_sided(Handle handle, Status status);
  // Count messages in flight: posted, not completed.
  void add_message() { ++messages_in_flight_; }
  void complete_message(Operation& operation, Status status) {
    --messages_in_flight_;
    complete(operation, std::move(status));
  }
  // Completes in the next turn an operation whose work was done during its post.
  void finish_later(Operation& operation) {
    ++messages_in_flight_;
    finished_.push_back(&operation);
  }
  [[nodiscard]] bool has_finished() const { return !finished_.empty(); }
  // Completes the operations given to finish_later(). Must not be called inside a post.
  void complete_finished();

  // Promises the peer further credits, up to the number that it should have. If the peer has few
  // left, makes the endpoint tell it of the new ones.
  void top_up();
  // Returns the granted credits since the beginning if the peer does not know of all of them, and
  // counts them as told: the caller sends the number in its next frame. Otherwise returns 0.
  std::uint64_t take_grant() {
    announce_ = false;
    return given.unannounced() ? given.announce() : 0;
  }
  [[nodiscard]] bool must_announce() const { return announce_; }

 private:
  SoftEndpoint& endpoint_;
  std::size_t messages_in_flight_ = 0;
  std::vector<Operation*> finished_;
  std::vector<Operation*> completing_;
  bool announce_ = false;  // a grant is due
};

}  // namespace slime::transport::soft
