#include "agent/operations/operation_table.h"

#include "base/check.h"

namespace slime::agent {

WaitingOperations::WaitingOperations(transport::Loop& loop, std::string peer)
    : loop_(loop), peer_(std::move(peer)) {
  end_.close(&OperationRecord::in_queue_);
}

WaitingOperations::~WaitingOperations() { SLIME_CHECK(empty()); }

void WaitingOperations::add(OperationPtr<PeerOperation> operation, TimePoint until, Late late) {
  OperationRecord& record = *operation;
  record.queue_ = this;
  record.state_ = OperationRecord::State::kWaiting;
  record.join(&OperationRecord::in_queue_, end_);
  ++size_;
  record.keep(std::move(operation));
  if (until == kNever) return;
  record.timer_ = loop_.add_timer(until, [this, &record, late = std::move(late)]() mutable {
    record.timer_ = {};
    // withdraw() removes the operation from the queue and destroys nothing: `call` gets its owner.
    auto call = std::move(late);
    call(withdraw(at(&record)));
  });
}

OperationPtr<PeerOperation> WaitingOperations::withdraw(PeerOperation& operation) {
  OperationRecord& record = operation;
  SLIME_CHECK(record.queue_ == this);
  record.part(&OperationRecord::in_queue_);
  --size_;
  record.queue_ = nullptr;
  record.state_ = OperationRecord::State::kNew;
  loop_.cancel_timer(record.timer_);
  return record.released();
}

bool WaitingOperations::any_connects() const {
  for (OperationRecord* next = end_.in_queue_.next; next != &end_; next = next->in_queue_.next)
    if (at(next).connects()) return true;
  return false;
}

}  // namespace slime::agent
