#include "agent/operations/peer_operation.h"

#include <algorithm>

#include "agent/connecting/session.h"

namespace slime::agent {

void PeerOperation::cancel() {
  cancelled_ = true;
  if (waiting_ != nullptr) {
    const auto self = waiting_->withdraw(*this);
    self->fail(Status(Code::kCancelled, "cancelled before it began"));
  } else if (session_ != nullptr) {
    cancel_started(*session_);
  }
}

const std::string& PeerOperation::peer() const {
  static const std::string kNone;
  if (waiting_ != nullptr) return waiting_->peer();
  return session_ != nullptr ? session_->peer().name : kNone;
}

std::string_view PeerOperation::stage() const {
  if (waiting_ != nullptr) return connects() ? "waits for a connection" : "waits for its peer to connect";
  return taken() ? "under way" : "waits for room on its connection";
}

Status PeerOperation::outcome(Status status) const {
  if (status.code() != Code::kCancelled || cancelled_ || session_ == nullptr || !session_->abandoned())
    return status;
  const bool maybe_executed = status.maybe_executed();
  return Status(Code::kUnavailable, status.text()).with_maybe_executed(maybe_executed);
}

WaitingOperations::~WaitingOperations() { SLIME_CHECK(operations_.empty()); }

void WaitingOperations::add(std::shared_ptr<PeerOperation> operation, TimePoint until, Late late) {
  PeerOperation& waiting = *operation;
  waiting.waiting_ = this;
  waiting.place_ = operations_.insert(operations_.end(), std::move(operation));
  if (until == kNever) return;
  waiting.timer_ = loop_.add_timer(until, [this, &waiting, late = std::move(late)]() mutable {
    waiting.timer_ = {};
    // withdraw() ends the life of nothing here: it only makes the list forget the operation.
    auto call = std::move(late);
    call(withdraw(waiting));
  });
}

std::shared_ptr<PeerOperation> WaitingOperations::withdraw(PeerOperation& operation) {
  SLIME_CHECK(operation.waiting_ == this);
  std::shared_ptr<PeerOperation> out = std::move(*operation.place_);
  operations_.erase(operation.place_);
  operation.waiting_ = nullptr;
  loop_.cancel_timer(operation.timer_);
  return out;
}

bool WaitingOperations::any_connects() const {
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const auto& operation) { return operation->connects(); });
}

}  // namespace slime::agent
