#include "transport/soft/link.h"

#include <utility>

#include "base/str.h"
#include "transport/copy_checks.h"

namespace slime::transport::soft {

Link::Link(SoftEndpoint& endpoint, std::shared_ptr<PortState> on, std::shared_ptr<CreditAccount> account,
           const Parameters& parameters, std::unique_ptr<Wire> over, Introduction introduction)
    : port(std::move(on)),
      loop(port->loop()),
      peer(parameters),
      who(std::move(introduction)),
      id(new_endpoint_id()),
      wire(std::move(over)),
      memory(wire->peer_memory(port->device->regions)),
      wire_text(wire->describe()),
      checks(port->device.get(), id, who.peer_name),
      timer(*loop),
      credits(peer.initial_credits),
      gate(checks, life, credits),
      given(*port->pool, std::move(account), 0),
      long_bytes(wire->takes_long_messages() ? limits::kLongMessageBytes : 0),
      endpoint_(endpoint) {}

void Link::schedule_turn(bool lazily) {
  if (!lazily) loop->hurry();
  if (!std::exchange(scheduled, true)) port->schedule(endpoint_);
}

void Link::break_now(Status reason) {
  if (!life.break_with(std::move(reason))) return;
  if (memory != nullptr) memory->withdraw();
  operations.let_go();
  schedule_turn();
  loop->leave_to_thread();
}

void Link::corrupt(std::string_view what) {
  break_now(Status(Code::kCorrupt, str(who.peer_name, " (", wire_text, ") broke the protocol: ", what)));
}

TimePoint Link::take_deadline(const Operation& operation) {
  const TimePoint now = loop->now();
  credits.note_send(now);
  const TimePoint deadline = message_deadline(operation, now);
  timer.arm(deadline);
  return deadline;
}

TimeBounds Link::take_bounds(const Operation& operation) {
  const TimePoint now = loop->now();
  credits.note_send(now);
  const TimeBounds bounds = TimeBounds::of(operation, now);
  timer.arm(bounds.next_look(now, stalls.last_progress()));
  return bounds;
}

void Link::complete(Operation& operation, Status status) {
  if (!status.ok()) ++counters.failed_operations;
  operation.finish(std::move(status));
}

void Link::complete_one_sided(Handle handle, Status status) {
  complete(operations.take(handle), std::move(status));
}

void Link::complete_finished() {
  if (finished_.empty()) return;
  credits.note_send(loop->now());
  completing_.swap(finished_);
  for (Operation* operation : completing_) complete_message(*operation, {});
  completing_.clear();
}

void Link::top_up() {
  if (!working()) return;
  given.top_up();
  if (announce_ || !given.unannounced() || !given.low()) return;
  announce_ = true;
  schedule();
}

}  // namespace slime::transport::soft
