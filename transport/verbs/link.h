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

// What an endpoint is made of, when both sides have told their parameters.
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

// How far the two sides have come. Nothing is posted before the peer's hello.
struct Opening {
  bool connected = false;  // our queue pairs are
  bool hello_due = false;  // the peer said READY, and our hello has not left
  bool got_ready = false;
  bool got_hello = false;  // both sides' queue pairs carry messages
  bool unreached = false;  // the device carried nothing, as one side found
  TimePoint by = kNever;   // when the hello must have come
};

// What the parts of one endpoint share: its port, its queues, its life, its credits, its
// operations, and its turn in the port. Each part changes only what its own work changes. Thread:
// the loop.
class Link {
 public:
  // `endpoint`: what the port runs. Takes all of the parts but `routes` and `side`.
  Link(VerbsEndpoint& endpoint, EndpointParts& parts);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::shared_ptr<PortState> port;
  const std::shared_ptr<Loop> loop;
  const Handle place;
  const Parameters peer;
  const std::uint64_t id;
  const Path path;
  const PostChecks checks;
  EndpointCounters counters;

  EndpointLife life{EndpointLife::State::kConnecting};
  EndpointTimer timer;
  StallWatch stalls;  // progress: work requests of a one-sided operation that succeeded
  CreditBook credits;
  PostGate gate;
  OneSidedTable operations;
  SendQueues queues;
  std::shared_ptr<PairGroup> pairs;   // queue pairs from their connection to their end
  std::unique_ptr<SideChannel> side;  // null once the endpoint broke
  Opening opening;
  std::uint64_t notifications_sent = 0;

  bool in_burst = false;  // the endpoint posts what is queued anyhow
  bool scheduled = false;
  // What is posted next leaves at once: the first post after something came, for which a caller may
  // be waiting. Posts after it share doorbells in the next turn.
  bool prompt = false;

  [[nodiscard]] bool working() const { return life.working(); }

  // Have the port run the endpoint in a later turn: soon, or when it has nothing urgent to do.
  void schedule() {
    if (in_burst) return;
    port->hurry();
    schedule_housekeeping();
  }
  void schedule_housekeeping() {
    if (!in_burst && !std::exchange(scheduled, true)) port->schedule(endpoint_);
  }

  // Stops all traffic at once. The operations complete in a later turn, when the device has given
  // back what it was given.
  void break_now(Status reason);
  // Breaks for what the device or the time says of the path. Before it carried something in both
  // directions the peer hears so: both may then use another provider.
  void break_fabric(Status reason);
  // Breaks because the peer broke the protocol.
  void corrupt(std::string_view what);

  // Sends a frame on the side channel, while the endpoint works.
  void say(SideFrameType type, std::uint64_t a = 0, std::uint64_t b = 0) { side->send(type, a, b); }
  // Posts a work request on the message queue pair. False: there is no room, or the link broke.
  bool post_message(ibv_send_wr& request, bool signaled);
  // Asks the device for a completion behind all messages that were posted without one.
  void post_nothing();

  // Note a post, and return when the operation must be over.
  TimePoint take_deadline(const Operation& operation);
  TimeBounds take_bounds(const Operation& operation);

  void complete(Operation& operation, Status status) {
    if (!status.ok()) ++counters.failed_operations;
    operation.finish(std::move(status));
  }
  void complete_one_sided(OneSided& done, Status status) {
    complete(operations.take(done), std::move(status));
  }

 private:
  // Returns whether a message came, and one of ours was acknowledged.
  [[nodiscard]] bool carried() const;

  VerbsEndpoint& endpoint_;
};

}  // namespace slime::transport::verbs
