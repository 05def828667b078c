#include "transport/verbs/link.h"

#include <algorithm>

#include "base/str.h"
#include "transport/copy_checks.h"

namespace slime::transport::verbs {

Link::Link(VerbsEndpoint& endpoint, EndpointParts& parts)
    : port(std::move(parts.port)),
      loop(port->users_loop()),
      place(parts.place),
      peer(parts.peer),
      reads_at_once(std::max<std::uint32_t>(std::min(parts.ours.read_requests, peer.read_responses), 1)),
      id(new_endpoint_id()),
      path(port->context(), {parts.ours, peer, parts.mtu, port->retries()}, parts.who.peer_name,
           parts.side->describe()),
      checks(port->device().get(), id, path.peer_name()),
      timer(*loop),
      credits(peer.initial_credits, port->pool(), std::move(parts.account)),
      gate(checks, life, credits.ours),
      queues(*port, endpoint, place, counters, parts.queue_pairs),
      pairs(std::make_shared<PairGroup>(port, place, credits.given.shared_account(),
                                        std::move(parts.queue_pairs), endpoint)),
      endpoint_(endpoint) {}

void Link::break_now(Status reason) {
  if (!life.break_with(std::move(reason))) return;
  pairs->leave(limits::kFlushBound);
  in_burst = false;
  schedule();
  loop->leave_to_thread();
}

bool Link::carried() const {
  const std::uint64_t failed =
      counters.errors_local + counters.errors_remote + counters.errors_path + counters.errors_victim;
  return opening.got_hello && counters.completions > failed;
}

void Link::break_fabric(Status reason) {
  if (working() && !carried()) {
    opening.unreached = true;
    say(SideFrameType::kUnreached);
  }
  break_now(std::move(reason));
}

void Link::corrupt(std::string_view what) {
  break_now(path.lost(Status(Code::kCorrupt, str("it broke the protocol: ", what))));
}

bool Link::post_message(ibv_send_wr& request, bool signaled) {
  if (queues.room(0, 1) == 0) return false;
  bool accepted = false;
  Status posted = queues.post(0, request, signaled, Handle{}, accepted);
  if (!posted.ok()) break_fabric(path.unavailable(posted));
  return posted.ok();
}

void Link::post_nothing() {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  post_message(request, true);
}

TimePoint Link::take_deadline(const Operation& operation) {
  const TimePoint now = loop->now();
  credits.ours.note_send(now);
  const TimePoint deadline = message_deadline(operation, now);
  timer.arm(deadline);
  return deadline;
}

void Link::take_bounds(const Operation& operation, TimeBounds& bounds) {
  const TimePoint now = operation.stall == Nanos::zero() ? post_time() : loop->now();
  credits.ours.note_send(now);
  bounds = TimeBounds::of(operation, now);
  timer.arm(
      std::min(bounds.next_look(now, stalls.last_progress()), deadline_after(now, limits::kStuckAfter)));
}

}  // namespace slime::transport::verbs
