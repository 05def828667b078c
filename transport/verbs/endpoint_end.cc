// How an endpoint opens, closes, breaks and ends, and what its timer does.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "transport/verbs/endpoint.h"

namespace slime::transport::verbs {

void VerbsEndpoint::on_connected(const Status& outcome) {
  if (!link_.working()) return;
  if (!outcome.ok()) return link_.break_fabric(link_.path.lost(outcome));
  link_.opening.connected = true;
  // The peer may send from here on, so the slots for its credits must be posted.
  link_.port->post_receives();
  link_.say(SideFrameType::kReady);
  schedule();
}

void VerbsEndpoint::close(Nanos bound) {
  SLIME_CHECK(link_.loop->in_loop());
  if (!link_.life.close(deadline_after(link_.loop->now(), bound))) return;
  link_.timer.arm(link_.life.close_by());
  schedule();
}

void VerbsEndpoint::reset(Status reason) {
  SLIME_CHECK(link_.loop->in_loop());
  SLIME_CHECK(!reason.ok());
  link_.break_now(std::move(reason));
}

// Resets the endpoint if its operations use the region. Does so even if the endpoint is broken
// already, because the device may still have its work requests.
void VerbsEndpoint::reset_if_using(const RegionUses* uses, bool now) {
  if (link_.life.ended() || (uses != nullptr && !link_.operations.use(uses))) return;
  link_.break_now(
      Status(Code::kUnavailable, str("the connection to ", who_.peer_name,
                                     " was reset: a local region was closed while it was in use")));
  // The operations complete in a later turn.
  if (now)
    link_.pairs->leave_now();
  else
    link_.pairs->hurry();
}

// Called once the queue pairs are destroyed: the device does nothing more for this endpoint, and
// touches no memory of its operations.
void VerbsEndpoint::on_pairs_gone() {
  // Drops the uses of regions now, because a region's owner may free it before the operations
  // complete.
  link_.operations.let_go();
  schedule();  // the next turn completes the operations, which have nothing left to wait for
}

void VerbsEndpoint::finish_close(Status leftover) {
  SLIME_CHECK(link_.working());
  link_.life.leave(std::move(leftover));
  link_.say(SideFrameType::kGoodbye, link_.counters.messages_sent - messages_.size(),
            link_.notifications_sent);
  link_.break_now(Status(Code::kCancelled, "closed"));
}

// Finishes a close once no operation is in flight and the peer's device has acknowledged all posted
// work requests.
void VerbsEndpoint::advance_close() {
  if (!link_.life.closing() || in_flight() > 0) return;
  const QueuePair& pair = link_.queues.pair(0);
  if (pair.in_flight() == 0) return finish_close(Status(Code::kCancelled, "closed"));
  if (pair.unsignaled() > 0) link_.post_nothing();
}

void VerbsEndpoint::end() {
  link_.life.end();
  link_.credits.given.end();
  link_.side.reset();
  link_.timer.cancel();
  const Status& leftover = link_.life.leftover();
  SLIME_CHECK(!leftover.ok());  // operations that did not happen must not end with OK
  complete_sent();
  messages_.end();
  std::vector<Handle> handles;
  link_.operations.records().for_each([&](Handle handle, OneSided&) { handles.push_back(handle); });
  for (const Handle handle : handles) {
    OneSided& operation = *link_.operations.find(handle);
    Status status = leftover;
    if (!operation.failure.ok()) {
      status = std::move(operation.failure);
    } else if (operation.bounds.passed != Overdue::kNo) {
      status = operation.bounds.not_ended(who_.peer_name);
    }
    link_.complete_one_sided(operation, std::move(status));
  }
}

void VerbsEndpoint::tell_closed() {
  if (inbox_.receiver() == nullptr || !link_.life.tell_closed()) return;
  inbox_.drop_receiver()->on_closed(link_.life.error());
}

// -------------------------------------------------------------------------------------------- time

void VerbsEndpoint::on_timer(TimePoint now, Nanos pause) {
  if (!link_.working()) return;
  link_.stalls.excuse(link_.operations.records(), pause, now);
  TimePoint next = kNever;
  if (link_.life.closing()) {
    if (now >= link_.life.close_by()) return finish_close(link_.checks.cut_by_close());
    next = link_.life.close_by();
  }
  if (!link_.opening.got_hello) {
    if (now >= link_.opening.by)
      return link_.break_fabric(link_.path.lost(
          Status(Code::kUnavailable, "no message came over the queue pair within the handshake's time")));
    next = std::min(next, link_.opening.by);
  }
  side_.bound(next);
  credits_.return_idle(now, next);
  messages_.expire(now, next);
  if (!link_.working() || !expire(now, next)) return;
  link_.timer.arm(next);
  schedule();
}

// Ends the one-sided operations that are past their time bounds. Returns false if the link is
// broken afterwards: if the device has part of an operation, only a reset gives its memory back.
bool VerbsEndpoint::expire(TimePoint now, TimePoint& next) {
  const StallWatch::Late late =
      link_.stalls.look(link_.operations.records(), now, next, [&](OneSided& operation) {
        if (operation.reported) return;
        const TimePoint stuck = deadline_after(operation.bounds.posted_at, limits::kStuckAfter);
        if (stuck > now)
          next = std::min(next, stuck);
        else
          report_stuck(operation);
      });
  if (late.reset != nullptr) {
    const Status status = late.reset->reset_reason(who_.peer_name);
    link_.break_now(Status(status.code(), str(status.text(), " (", link_.path.text(), ")")));
    return false;
  }
  for (const Handle handle : late.not_started) {
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr) continue;
    if (operation->has_imm) link_.credits.ours.unuse();
    link_.complete_one_sided(*operation, operation->bounds.not_started(who_.peer_name));
    if (!link_.working()) return false;
  }
  return true;
}

void VerbsEndpoint::report_stuck(OneSided& operation) const {
  operation.reported = true;
  SLIME_LOG(LogLevel::kWarning, "verbs", operation.kind == Kind::kRead ? "a read" : "a write or atomic",
            " of ", operation.copies().size(), " blocks with ", who_.peer_name, " has been under way for ",
            limits::kStuckAfter.count() / 1'000'000'000, " s: ", operation.next_copy, " blocks posted, ",
            operation.in_flight, " work requests in flight, ", link_.queues.in_flight(), " of the endpoint, ",
            reached() ? "open" : "no hello yet", "; ", link_.path.text());
}

}  // namespace slime::transport::verbs
