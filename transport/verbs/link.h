#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/endpoint.h"
#include "transport/endpoint/life.h"
#include "transport/endpoint/post_checks.h"
#include "transport/endpoint/post_gate.h"
#include "transport/verbs/credit_book.h"
#include "transport/verbs/operations.h"
#include "transport/verbs/pair_group.h"
#include "transport/verbs/parameters.h"
#include "transport/verbs/path.h"
#include "transport/verbs/port.h"
#include "transport/verbs/send_queues.h"
#include "transport/verbs/side_channel.h"

namespace slime::transport::verbs {

// The parts from which an endpoint is made, after both sides have sent their parameters.
struct EndpointParts {
  std::shared_ptr<PortState> port;
  Handle place;
  std::shared_ptr<CreditAccount> account;
  std::vector<std::shared_ptr<QueuePair>> queue_pairs;  // in INIT
  std::vector<QueuePairRoute> routes;                   // of each
  Parameters ours;
  Parameters peer;
  ibv_mtu mtu{};
  std::unique_ptr<Wire> side;
  Introduction who;
};

// How far the opening of the connection has come. Nothing is posted before the peer's hello.
struct Opening {
  bool connected = false;  // our queue pairs are connected
  bool hello_due = false;  // the peer said READY, and this side has not sent its hello yet
  bool got_ready = false;
  bool got_hello = false;  // both sides' queue pairs carry messages
  bool unreached = false;  // one side found that the RDMA path carries nothing
  TimePoint by = kNever;   // time by which the peer's hello must have come
};

// State that the parts of one endpoint share: port, queues, life, credits, operations, and whether
// a turn is scheduled. Each part changes only what its own work concerns. Thread: the loop.
class Link {
 public:
  // `endpoint`: the endpoint that the port runs in a turn. Moves all members out of `parts`, except
  // `routes` and `side`.
  Link(VerbsEndpoint& endpoint, EndpointParts& parts);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::shared_ptr<PortState> port;
  const std::shared_ptr<Loop> loop;
  const Handle place;
  const Parameters peer;
  const std::uint32_t reads_at_once;  // most reads that the device has under way on a queue pair
  const std::uint64_t id;
  const Path path;
  const PostChecks checks;
  EndpointCounters counters;

  EndpointLife life{EndpointLife::State::kConnecting};
  EndpointTimer timer;
  StallWatch stalls;  // counts each successful work request of a one-sided operation as progress
  CreditBook credits;
  PostGate gate;
  OneSidedTable operations;
  SendQueues queues;
  std::shared_ptr<PairGroup> pairs;   // the queue pairs, from connecting to destroying them
  std::unique_ptr<SideChannel> side;  // null once the endpoint broke
  Opening opening;
  std::uint64_t notifications_sent = 0;

  bool in_burst = false;  // the endpoint posts queued work anyhow
  bool scheduled = false;
  // True after the only arrival of a poll, or the only end of an operation in it: the next post
  // goes to the device at once, because a caller may be waiting for it. Other posts share doorbells
  // in the next turn.
  bool prompt = false;

  [[nodiscard]] bool working() const { return life.working(); }

  // schedule() makes the port run the endpoint soon, in a later turn. schedule_housekeeping() makes
  // the port run it when nothing urgent is left to do.
  void schedule() {
    if (in_burst) return;
    port->hurry();
    schedule_housekeeping();
  }
  void schedule_housekeeping() {
    if (!in_burst && !std::exchange(scheduled, true)) port->schedule(endpoint_);
  }

  // Stops all traffic at once. A later turn completes the operations, after the device has given
  // back all work requests.
  void break_now(Status reason);
  // Breaks the link because the device, or a timeout, shows that the path failed. If the path has
  // not yet carried bytes in both directions, tells the peer so: then both sides may use another
  // provider.
  void break_fabric(Status reason);
  // Breaks the link because the peer broke the protocol.
  void corrupt(std::string_view what);

  // Sends a frame on the side channel. Call only while the endpoint works.
  void say(SideFrameType type, std::uint64_t a = 0, std::uint64_t b = 0) { side->send(type, a, b); }
  // Posts a work request on the message queue pair. Returns false if there is no room, or if the
  // link broke.
  bool post_message(ibv_send_wr& request, bool signaled);
  // Posts an empty RDMA write with a completion. It also completes the messages that were posted
  // before without a completion of their own.
  void post_nothing();

  // Call at the begin of a turn of the endpoint.
  void begin_turn() {
    scheduled = false;
    post_time_ = {};
  }
  // Note the time of the post, arm the timer, and return the deadline or set the bounds of the
  // operation.
  TimePoint take_deadline(const Operation& operation);
  void take_bounds(const Operation& operation, TimeBounds& bounds);

  void complete(Operation& operation, Status status) {
    if (!status.ok()) ++counters.failed_operations;
    operation.finish(std::move(status));
  }
  void complete_one_sided(OneSided& done, Status status) {
    complete(operations.take(done), std::move(status));
  }

 private:
  // Returns whether the path has carried bytes in both directions: the peer's hello came, and a
  // work request of this side succeeded.
  [[nodiscard]] bool carried() const;

  // Returns the time for a post. Reading the clock takes a good part of the time of a post, so the
  // posts that wait for one turn share a reading.
  TimePoint post_time() {
    if (!scheduled || post_time_ == TimePoint{}) post_time_ = loop->now();
    return post_time_;
  }

  VerbsEndpoint& endpoint_;
  TimePoint post_time_{};  // of the first post that waits for the next turn; zero: none does
};

}  // namespace slime::transport::verbs
