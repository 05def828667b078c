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

// The pieces of which an endpoint is made once both sides have sent their parameters.
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
  bool hello_due = false;  // the peer said READY, and our hello has not left
  bool got_ready = false;
  bool got_hello = false;  // both sides' queue pairs carry messages
  bool unreached = false;  // one side found that the device carries nothing
  TimePoint by = kNever;   // time by which the hello must have come
};

// State that the parts of one endpoint share: port, queues, life, credits, operations, and the turn
// in the port. Each part changes only what its own work changes. Thread: the loop.
class Link {
 public:
  // `endpoint`: the port runs it. Takes all members of `parts` except `routes` and `side`.
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
  StallWatch stalls;  // progress: the work requests of a one-sided operation that succeeded
  CreditBook credits;
  PostGate gate;
  OneSidedTable operations;
  SendQueues queues;
  std::shared_ptr<PairGroup> pairs;   // queue pairs from their connection to their end
  std::unique_ptr<SideChannel> side;  // null once the endpoint broke
  Opening opening;
  std::uint64_t notifications_sent = 0;

  bool in_burst = false;  // the endpoint posts queued work anyhow
  bool scheduled = false;
  // The next post leaves at once: the first after an arrival, for which a caller may be waiting.
  // Later posts share doorbells in the next turn.
  bool prompt = false;

  [[nodiscard]] bool working() const { return life.working(); }

  // Make the port run the endpoint in a later turn: soon, or when the port has nothing urgent to
  // do.
  void schedule() {
    if (in_burst) return;
    port->hurry();
    schedule_housekeeping();
  }
  void schedule_housekeeping() {
    if (!in_burst && !std::exchange(scheduled, true)) port->schedule(endpoint_);
  }

  // Stops all traffic at once. The operations complete in a later turn, when the device has given
  // back all its work.
  void break_now(Status reason);
  // Breaks the link because the device, or a timeout, shows that the path failed. If the path has
  // not carried bytes in both directions yet, tells the peer so: both sides may then use another
  // provider.
  void break_fabric(Status reason);
  // Breaks the link because the peer broke the protocol.
  void corrupt(std::string_view what);

  // Sends a frame on the side channel, if the endpoint works.
  void say(SideFrameType type, std::uint64_t a = 0, std::uint64_t b = 0) { side->send(type, a, b); }
  // Posts a work request on the message queue pair. Returns false if there is no room, or if the
  // link broke.
  bool post_message(ibv_send_wr& request, bool signaled);
  // Posts an empty request, whose completion covers all messages that were posted without one.
  void post_nothing();

  // Notes a post, and returns when the operation must be over.
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
  // Returns whether a message has come, and one of ours was acknowledged.
  [[nodiscard]] bool carried() const;

  VerbsEndpoint& endpoint_;
};

}  // namespace slime::transport::verbs
