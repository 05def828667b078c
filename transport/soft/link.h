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

// State that the parts of one endpoint share: wire, life, credits, operations, and the turn in the
// port. Each part changes only what its own work changes. Thread: the loop.
class Link {
 public:
  // `endpoint`: the port calls it for its turn.
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
  PeerMemory* memory;          // the wire's; null: all goes over the wire
  const std::string wire_text;
  const PostChecks checks;
  EndpointCounters counters;

  EndpointLife life{EndpointLife::State::kOpen};
  EndpointTimer timer;
  StallWatch stalls;
  SendCredits credits;
  PostGate gate;
  // a send was refused since the last message or notification, which tells the peer
  bool starved = false;
  ReceiveCredits given;
  OneSidedTable operations;

  bool in_burst = false;  // the endpoint sends queued frames anyhow
  bool scheduled = false;
  bool completed_in_stage = false;  // a callback within the burst may have posted more

  [[nodiscard]] bool working() const { return life.working(); }
  [[nodiscard]] std::size_t in_flight() const { return messages_in_flight_ + operations.size(); }
  // Notes that bytes of our one-sided operations have moved. Cheap: within a turn the loop reads
  // the clock once.
  void note_progress() { stalls.note_progress(loop->now()); }

  // Makes the port call the endpoint in a later turn; lazily: when the loop runs for other work.
  void schedule() {
    if (!in_burst) schedule_turn();
  }
  void schedule_turn(bool lazily = false);

  // Stops all traffic at once; the operations complete in a later turn. Releases their regions
  // here, so that an owner may free a region as soon as close() returns.
  void break_now(Status reason);
  void corrupt(std::string_view what);

  // Note a post, and return when the operation must be over.
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
  // Completes, in the next turn, an operation whose work was done within its post.
  void finish_later(Operation& operation) {
    ++messages_in_flight_;
    finished_.push_back(&operation);
  }
  [[nodiscard]] bool has_finished() const { return !finished_.empty(); }
  // Completes these operations. Call outside of every post.
  void complete_finished();

  // Promises more credits to the peer if it should have more, and tells the peer before it runs
  // out.
  void top_up();
  // Returns a grant that the peer has not been told of, which goes with the next frame; 0: nothing.
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
