// How an endpoint ends: close, reset, loss, deadlines.
#include <algorithm>
#include <utility>

#include "base/str.h"
#include "transport/soft/endpoint.h"

namespace slime::transport::soft {

void SoftEndpoint::close(Nanos bound) {
  SLIME_CHECK(loop_->in_loop());
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  close_called_ = true;
  close_by_ = deadline_after(loop_->now(), bound);
  arm(close_by_);
  schedule_turn();
}

void SoftEndpoint::reset(Status reason) {
  SLIME_CHECK(loop_->in_loop());
  SLIME_CHECK(!reason.ok());
  break_now(std::move(reason));
}

void SoftEndpoint::reset_if_using(const RegionRecord& record) {
  if (!working()) return;
  bool uses = false;
  operations_.for_each([&](Handle, const OneSided& operation) {
    for (const Copy& copy : operation.blocks()) uses = uses || &record_of(copy) == &record;
  });
  if (!uses) return;
  break_now(
      Status(Code::kUnavailable, str("the connection to ", who_.peer_name,
                                     " was reset: a local region was closed while operations used it")));
}

// Stops all traffic at once; the operations complete in a later turn. Their regions are let go here, so that
// whoever closes one may free it as soon as close() returns.
void SoftEndpoint::break_now(Status reason) {
  if (!working()) return;
  state_ = State::kBroken;
  if (leftover_.ok()) {
    leftover_ = reason.code() == Code::kDeadlineExceeded
                    ? Status(Code::kUnavailable, str("reset: ", reason.text()))
                    : reason;
  }
  if (!close_called_) error_ = std::move(reason);
  if (peer_memory_ != nullptr) peer_memory_->withdraw();
  operations_.for_each([](Handle, OneSided& operation) {
    drop_uses(operation.blocks());
    operation.copies = {};
    operation.number.reset();
  });
  asked_ = {};
  schedule_turn();
  loop_->leave_to_thread();
}

// In a turn of its own, so outside the wire's events and every callback.
void SoftEndpoint::end() {
  state_ = State::kEnded;
  peer_memory_ = nullptr;
  left_inside_ = wire_->take_back();
  wire_.reset();
  loop_->cancel_timer(timer_);
  complete_leftovers();
  if (slot_ != nullptr) port_->pool->recycle(*std::exchange(slot_, nullptr));
  payload_record_.reset();
  port_->pool->close(*account_);
}

void SoftEndpoint::complete_leftovers() {
  complete_sent();
  SLIME_CHECK(!leftover_.ok());  // what did not happen must not look as if it had
  while (!staged_.empty()) {
    Operation* operation = staged_.pop_front().message.operation;
    if (operation == nullptr) continue;
    --messages_in_flight_;
    complete(*operation, leftover_);
  }
  while (!messages_.empty()) {
    Operation* operation = messages_.pop_front().operation;
    --messages_in_flight_;
    complete(*operation, leftover_);
  }
  std::vector<Handle> handles;
  operations_.for_each([&](Handle handle, OneSided&) { handles.push_back(handle); });
  for (const Handle handle : handles) {
    const OneSided& operation = *operations_.find(handle);
    complete_one_sided(handle, operation.bounds.passed == Overdue::kNo
                                   ? leftover_
                                   : operation.bounds.not_ended(who_.peer_name));
  }
}

void SoftEndpoint::tell_closed() {
  if (receiver_ == nullptr || told_closed_) return;
  told_closed_ = true;
  std::exchange(receiver_, nullptr)->on_closed(close_called_ ? Status() : error_);
}

// A peer that was stopped inside of a copy of our memory may go on at any time. The memory cannot be moved
// away from it while its region is open (an adapter, or other peers, may have the same pages), so the end is
// not told before it has left, or is gone, or the region was closed. It tells nobody: we look, less and less
// often.
bool SoftEndpoint::peer_has_left() {
  loop_->cancel_timer(timer_);
  if (left_inside_ == nullptr || !left_inside_->busy()) {
    left_inside_.reset();
    return true;
  }
  timer_ = loop_->add_timer(deadline_after(loop_->now(), next_look_), [this] {
    timer_ = TimerId{};
    schedule_turn();
  });
  next_look_ = std::min(2 * next_look_, limits::kLoanLookMost);
  return false;
}

Status SoftEndpoint::peer_gone(const Status& cause) const {
  return Status(cause.code() == Code::kOk ? Code::kUnavailable : cause.code(),
                str("lost the connection to ", who_.peer_name, " (", wire_text_, "): ", cause.text()));
}

// Called by the port, never inside a callback.
void SoftEndpoint::run() {
  scheduled_ = false;
  if (state_ == State::kBroken) {
    end();
    schedule();  // on_closed comes in a turn of its own
    return;
  }
  if (receiver_ != nullptr) deliver_arrived();
  if (state_ == State::kEnded) {
    if (receiver_ != nullptr && peer_has_left()) tell_closed();
    return;
  }
  complete_sent();
  copy_left_ = limits::kCopyStepBytes;
  if (working()) flush();
}

// The bound of a close has passed, or nothing is left to wait for.
void SoftEndpoint::finish_close(Status leftover) {
  SLIME_CHECK(working());
  leftover_ = std::move(leftover);
  say_goodbye_now();
  break_now(Status(Code::kCancelled, "closed"));
}

// One attempt, at a frame boundary only: a half sent frame cannot be followed by anything.
void SoftEndpoint::say_goodbye_now() {
  if (goodbye_sent_ || !working()) return;
  if (!staged_.empty() && staged_.front().sent > 0) return;
  FrameHeader header;
  header.type = FrameType::kGoodbye;
  const iovec part{&header, sizeof header};
  goodbye_sent_ = true;
  wire_->write(std::span(&part, 1)).status().ignore();
}

void SoftEndpoint::set_awaiting(bool awaiting) {
  SLIME_CHECK(loop_->in_loop());
  awaiting_ = awaiting;
  if (working()) tell_waiting();
}

void SoftEndpoint::tell_waiting() {
  const bool waiting = in_flight() > 0 || want_credits_ > 0 || awaiting_;
  if (waiting != waiting_) wire_->set_waiting(waiting_ = waiting);
}

void SoftEndpoint::settle() {
  if (!working()) return;
  tell_waiting();
  if (receiver_ == nullptr || state_ != State::kOpen || in_flight() >= limits::kMaxOperations) return;
  const bool credit = want_credits_ > 0 && free_credits() >= want_credits_;
  if (!want_room_ && !credit) return;
  want_room_ = false;
  if (credit) want_credits_ = 0;
  receiver_->on_ready();
}

// ------------------------------------------------------------------------------------------------------ time

// One timer for everything; it never fires late, sometimes early.
void SoftEndpoint::arm(TimePoint when) {
  if (when >= timer_due_) return;
  loop_->cancel_timer(timer_);
  timer_due_ = when;
  timer_ = loop_->add_timer(when, [this] { on_timer(); });
}

void SoftEndpoint::on_timer() {
  timer_ = TimerId{};
  const TimePoint due = std::exchange(timer_due_, kNever);
  if (!working()) return;
  const TimePoint now = loop_->now();
  excuse(pause_before(now, due), now);
  if (state_ == State::kClosing && now >= close_by_) {
    finish_close(Status(Code::kCancelled,
                        str("the connection to ", who_.peer_name, " was closed before this had completed")));
    return;
  }
  acks_due_ = true;
  TimePoint next = state_ == State::kClosing ? close_by_ : kNever;
  return_idle_credits(now, next);
  expire_messages(now, next);
  if (!working() || !expire(now, next)) return;
  arm(next);
  schedule();
}

void SoftEndpoint::return_idle_credits(TimePoint now, TimePoint& next) {
  const std::uint64_t spare = credit_limit_ - credit_used_;
  if (spare <= peer_.initial_credits) return;
  const TimePoint idle = last_send_ + limits::kCreditIdle;
  if (now < idle) {
    next = std::min(next, idle);
    return;
  }
  const std::uint64_t back = spare - peer_.initial_credits;
  credit_used_ += back;
  credits_to_return_ += back;
}

// A message that is not on the wire is taken back; one that is half sent completes, but its bytes must go on.
void SoftEndpoint::expire_messages(TimePoint now, TimePoint& next) {
  std::vector<Operation*> expired;
  messages_.erase_if([&](const OutMessage& message) {
    if (message.deadline > now) {
      next = std::min(next, message.deadline);
      return false;
    }
    expired.push_back(message.operation);
    --credit_used_;
    return true;
  });
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.message.operation == nullptr) continue;
    if (frame.message.deadline > now)
      next = std::min(next, frame.message.deadline);
    else
      expired.push_back(std::exchange(frame.message.operation, nullptr));
  }
  messages_in_flight_ -= expired.size();
  for (Operation* operation : expired) {
    complete(*operation, Status(Code::kDeadlineExceeded,
                                str("a message could not be handed to the wire before its deadline: ",
                                    who_.peer_name, " does not read")));
  }
}

// A pause of this process, or of the machine with all that the path to the peer needs, is no stall.
void SoftEndpoint::excuse(Nanos pause, TimePoint now) {
  if (pause == Nanos::zero()) return;
  last_progress_ = std::min(now, last_progress_ + pause);
  operations_.for_each([=](Handle, OneSided& operation) { operation.bounds.excuse(pause, now); });
}

// A wire takes the bytes of writes long before the peer has them where its link is slow. That it has fewer of
// them left than at the last look is progress, too.
void SoftEndpoint::note_backlog(TimePoint now) {
  bool writes = false;
  operations_.for_each([&writes](Handle, const OneSided& operation) {
    writes = writes || (operation.kind == Kind::kWrite && operation.started);
  });
  const std::uint64_t before = std::exchange(backlog_bytes_, writes ? wire_->backlog_bytes() : 0);
  const bool comparable = std::exchange(backlog_at_, now) >= last_progress_;
  if (comparable && backlog_bytes_ < before && writes) note_progress();
}

// False when an operation that the peer knows of is overdue: nothing but a reset gives its memory back.
bool SoftEndpoint::expire(TimePoint now, TimePoint& next) {
  // Timers run before the wire is looked at. After a pause of this process, or of whoever drives the loop,
  // the wire may have what shows progress: so a stall counts only once it is found again in the turn after
  // that.
  const bool looked = std::exchange(stall_suspected_, false);
  note_backlog(now);
  std::vector<Handle> expired;
  const TimeBounds* reason = nullptr;
  operations_.for_each([&](Handle handle, OneSided& operation) {
    const Overdue overdue = operation.bounds.overdue(now, last_progress_);
    if (overdue == Overdue::kNo) {
      next = std::min(next, operation.bounds.next_look(now, last_progress_));
      return;
    }
    if (overdue == Overdue::kStall && !looked) {
      stall_suspected_ = true;
      next = now;
      return;
    }
    operation.bounds.passed = overdue;
    if (operation.started)
      reason = &operation.bounds;
    else
      expired.push_back(handle);
  });
  if (reason != nullptr) {
    break_now(reason->reset_reason(who_.peer_name));
    return false;
  }
  for (const Handle handle : expired) {
    const OneSided* operation = operations_.find(handle);
    if (operation == nullptr) continue;
    if (operation->has_imm) --credit_used_;
    complete_one_sided(handle, operation->bounds.not_started(who_.peer_name));
    if (!working()) return false;
  }
  return true;
}

}  // namespace slime::transport::soft
