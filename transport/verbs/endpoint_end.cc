// How an endpoint closes, breaks and ends, and what happens in time.
#include <algorithm>

#include "base/log.h"
#include "base/str.h"
#include "transport/verbs/endpoint.h"

namespace slime::transport::verbs {

std::string VerbsEndpoint::path() const {
  const Options& options = port_->context()->options;
  const Selection& at = port_->context()->selection;
  const RetryPolicy retries = port_->retries();
  return str(at.device, " port ", at.port, ", GID ", gid_text(ours_.gid), " -> ", gid_text(peer_.gid),
             ", QP ", ours_.queue_pairs[0].number, " -> ", peer_.queue_pairs[0].number, ", MTU ", 128 << mtu_,
             ", SL ", options.service_level, ", traffic class ", options.traffic_class, ", timeout ",
             retries.timeout, ", retries ", retries.retry_count);
}

Status VerbsEndpoint::peer_gone(const Status& cause) const {
  return Status(
      cause.code() == Code::kOk ? Code::kUnavailable : cause.code(),
      str("lost the connection to ", who_.peer_name, " (", path(), "; ", side_text_, "): ", cause.text()));
}

// With whatever code the device's own error has.
Status VerbsEndpoint::unavailable(const Status& cause) const {
  return peer_gone(Status(Code::kUnavailable, cause.text()));
}

void VerbsEndpoint::close(Nanos bound) {
  SLIME_CHECK(loop_->in_loop());
  if (!life_.close(deadline_after(loop_->now(), bound))) return;
  timer_.arm(life_.close_by());
  schedule();
}

void VerbsEndpoint::reset(Status reason) {
  SLIME_CHECK(loop_->in_loop());
  SLIME_CHECK(!reason.ok());
  break_now(std::move(reason));
}

// Also while it is broken: the device still has what was not flushed.
void VerbsEndpoint::reset_if_using(const RegionUses* uses, bool now) {
  if (life_.ended()) return;
  bool found = uses == nullptr;
  operations_.for_each(
      [&](Handle, const OneSided& operation) { found = found || PostChecks::use(operation.copies(), uses); });
  if (!found) return;
  break_now(Status(Code::kUnavailable, str("the connection to ", who_.peer_name,
                                           " was reset: a local region was closed while it was in use")));
  // The operations complete in a later turn.
  if (now)
    pairs_->leave_now();
  else
    pairs_->hurry();
}

// The device stops at once; the operations complete when it has given back what it was given.
void VerbsEndpoint::break_now(Status reason) {
  if (!life_.break_with(std::move(reason))) return;
  pairs_->leave(limits::kFlushBound);
  in_burst_ = false;
  schedule();
  loop_->leave_to_thread();
}

void VerbsEndpoint::on_connected(const Status& outcome) {
  if (!working()) return;
  if (!outcome.ok()) {
    unreached_ = true;
    side_->send(SideFrameType::kUnreached);
    return break_now(peer_gone(outcome));
  }
  connected_ = true;
  // The peer may send from here on, so what it was promised must be posted.
  port_->post_receives();
  side_->send(SideFrameType::kReady);
  schedule();
}

// A message came, and one of ours was acknowledged.
bool VerbsEndpoint::carried() const {
  const std::uint64_t failed =
      counters_.errors_local + counters_.errors_remote + counters_.errors_path + counters_.errors_victim;
  return got_hello_ && counters_.completions > failed;
}

// What the device or the time says of the path. Before it carried something in both directions the peer hears
// so: both may then use another provider, and not only the one that noticed.
void VerbsEndpoint::break_fabric(Status reason) {
  if (working() && !carried()) {
    unreached_ = true;
    side_->send(SideFrameType::kUnreached);
  }
  break_now(std::move(reason));
}

// What was posted without asking for a completion, and has succeeded, is not flushed: that it is over is told
// by a request behind it, which is.
void VerbsEndpoint::mark_end(QueuePair& pair, std::uint32_t number) {
  if (pair.unsignaled() == 0 || pair.room() == 0 || port_->may_post(*this, work_in_flight_, 1) == 0) return;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr_id = WorkId{place_.index, place_.generation, number, pair.next_place()}.pack();
  std::uint32_t accepted = 0;
  pair.post(&request, 1, 1, accepted).ignore();  // without it the bound of the flush ends the wait
  account(pair, QueuePair::Owner{Handle{}, accepted, QueuePair::Owner::kNone});
}

void VerbsEndpoint::on_pairs_failed() {
  mark_end(*messages_pair_, 0);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) mark_end(*lanes_[i].pair, i + 1);
}

std::uint32_t VerbsEndpoint::leave_pairs(std::vector<std::uint32_t>& buffers) {
  if (messages_pair_ == nullptr) return 0;
  messages_pair_->abandon([&](const QueuePair::Owner& owner) {
    if (owner.buffer != QueuePair::Owner::kNone) buffers.push_back(owner.buffer);
  });
  messages_pair_.reset();
  lanes_.clear();
  return std::exchange(work_in_flight_, 0);
}

// The device does nothing for this endpoint any more: it touches no memory of the operations.
void VerbsEndpoint::on_pairs_gone() {
  // So that whoever closes a region of theirs may free it before they complete.
  operations_.for_each([](Handle, OneSided& operation) {
    PostChecks::drop_uses(operation.copies());
    operation.batch = {};
    operation.left = true;
  });
  schedule();  // with nothing to wait for any more, the operations complete
}

void VerbsEndpoint::end() {
  life_.end();
  given_.end();
  side_.reset();
  timer_.cancel();
  SLIME_CHECK(!life_.leftover().ok());  // what did not happen must not look as if it had
  complete_sent();
  while (!messages_.empty()) {
    const OutMessage message = messages_.pop_front();
    port_->give_buffer(message.buffer);
    complete(*message.operation, life_.leftover());
  }
  std::vector<Handle> handles;
  operations_.for_each([&](Handle handle, OneSided&) { handles.push_back(handle); });
  for (const Handle handle : handles) {
    OneSided& operation = *operations_.find(handle);
    Status status = life_.leftover();
    if (!operation.failure.ok()) {
      status = std::move(operation.failure);
    } else if (operation.bounds.passed != Overdue::kNo) {
      status = operation.bounds.not_ended(who_.peer_name);
    }
    complete_one_sided(operation, std::move(status));
  }
}

void VerbsEndpoint::tell_closed() {
  if (inbox_.receiver() == nullptr || !life_.tell_closed()) return;
  inbox_.drop_receiver()->on_closed(life_.error());
}

void VerbsEndpoint::finish_close(Status leftover) {
  SLIME_CHECK(working());
  life_.leave(std::move(leftover));
  side_->send(SideFrameType::kGoodbye, counters_.messages_sent - messages_.size(), notifications_sent_);
  break_now(Status(Code::kCancelled, "closed"));
}

// A close goes on once everything that was taken has been acknowledged by the peer's device.
void VerbsEndpoint::advance_close() {
  if (!life_.closing() || in_flight() > 0) return;
  if (messages_pair_->in_flight() == 0) return finish_close(Status(Code::kCancelled, "closed"));
  if (messages_pair_->unsignaled() > 0) send_nothing();
}

// Called by the port, never inside a callback.
void VerbsEndpoint::run() {
  scheduled_ = false;
  if (life_.broken()) {
    side_.reset();  // the peer learns of it at once
    if (!pairs_->gone()) return pairs_->check();
    end();
    return schedule();  // on_closed comes in a turn of its own
  }
  inbox_.deliver_kept();
  if (life_.ended()) return tell_closed();
  if (!lost_.ok()) {
    // What arrived before the loss is in the completion queue by now; it is seen first.
    if (port_->polls() == lost_at_poll_) return schedule();
    return break_now(std::exchange(lost_, Status()));
  }
  check_goodbye();
  flush();
}

// ----------------------------------------------------------------------------------------------------- time

void VerbsEndpoint::on_timer(TimePoint now, Nanos pause) {
  if (!working()) return;
  stalls_.excuse(operations_, pause, now);
  TimePoint next = kNever;
  if (life_.closing()) {
    if (now >= life_.close_by())
      return finish_close(Status(Code::kCancelled, str("the connection to ", who_.peer_name,
                                                       " was closed before this had completed")));
    next = life_.close_by();
  }
  if (!got_hello_) {
    if (now >= open_by_)
      return break_fabric(peer_gone(
          Status(Code::kUnavailable, "no message came over the queue pair within the handshake's time")));
    next = std::min(next, open_by_);
  }
  if (goodbye_) next = std::min(next, goodbye_by_);
  return_idle_credits(now, next);
  expire_messages(now, next);
  if (!working() || !expire(now, next)) return;
  timer_.arm(next);
  schedule();
}

void VerbsEndpoint::return_idle_credits(TimePoint now, TimePoint& next) {
  const std::uint64_t back = credits_.return_idle(now, next);
  if (back > 0) side_->send(SideFrameType::kReturn, back);
}

// Messages wait here for credits of the device only: for room in its send queue, or behind a barrier.
void VerbsEndpoint::expire_messages(TimePoint now, TimePoint& next) {
  std::vector<Operation*> expired;
  messages_.erase_if([&](const OutMessage& message) {
    if (message.deadline > now) {
      next = std::min(next, message.deadline);
      return false;
    }
    expired.push_back(message.operation);
    port_->give_buffer(message.buffer);
    credits_.unuse();
    --counters_.messages_sent;
    return true;
  });
  for (Operation* operation : expired) {
    complete(*operation,
             Status(Code::kDeadlineExceeded, str("a message to ", who_.peer_name,
                                                 " could not be handed to the device before its deadline")));
  }
}

// False when an operation that the device knows of is overdue: nothing but a reset gives its memory back.
bool VerbsEndpoint::expire(TimePoint now, TimePoint& next) {
  const StallWatch::Late late = stalls_.look(operations_, now, next, [&](OneSided& operation) {
    if (operation.reported) return;
    const TimePoint stuck = deadline_after(operation.bounds.posted_at, limits::kStuckAfter);
    if (stuck > now)
      next = std::min(next, stuck);
    else
      report_stuck(operation);
  });
  if (late.reset != nullptr) {
    const Status status = late.reset->reset_reason(who_.peer_name);
    break_now(Status(status.code(), str(status.text(), " (", path(), ")")));
    return false;
  }
  for (const Handle handle : late.not_started) {
    OneSided* operation = operations_.find(handle);
    if (operation == nullptr) continue;
    if (operation->has_imm) credits_.unuse();
    complete_one_sided(*operation, operation->bounds.not_started(who_.peer_name));
    if (!working()) return false;
  }
  return true;
}

void VerbsEndpoint::report_stuck(OneSided& operation) const {
  operation.reported = true;
  SLIME_LOG(LogLevel::kWarning, "verbs", operation.kind == Kind::kRead ? "a read" : "a write or atomic",
            " of ", operation.copies().size(), " blocks with ", who_.peer_name, " has been under way for ",
            limits::kStuckAfter.count() / 1'000'000'000, " s: ", operation.next_copy, " blocks posted, ",
            operation.in_flight, " work requests in flight, ", work_in_flight_, " of the endpoint, ",
            got_hello_ ? "open" : "no hello yet", "; ", path());
}

}  // namespace slime::transport::verbs
