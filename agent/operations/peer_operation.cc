#include "agent/operations/peer_operation.h"

#include <algorithm>

#include "agent/connecting/session.h"
#include "agent/limits.h"
#include "agent/operations/operation_table.h"

namespace slime::agent {

void PeerOperation::begin(const transport::Loop& loop, Nanos timeout, bool coarse) {
  if (!coarse || std::min(timeout, patience()) < limits::kCoarseTimeout) {
    began = loop.now();
    deadline = deadline_after(began, timeout);
  } else {
    began = loop.clock().coarse_now();
    deadline = deadline_after(began + limits::kCoarseSlack, timeout);
  }
}

void PeerOperation::cancel() {
  cancelled_ = true;
  if (state() == State::kWaiting) {
    const auto self = queue()->withdraw(*this);
    self->fail(Status(Code::kCancelled, "cancelled before it began"));
  } else if (state() == State::kRunning) {
    cancel_started(*running());
  }
}

const std::string& PeerOperation::peer() const {
  static const std::string kNone;
  if (state() == State::kWaiting) return queue()->peer();
  return state() == State::kRunning ? running()->peer().name : kNone;
}

std::string_view PeerOperation::stage() const {
  switch (state()) {
    case State::kNew:
      return "about to begin";
    case State::kWaiting:
      return connects() ? "waits for a connection" : "waits for its peer to connect";
    case State::kRunning:
      return taken() ? "under way" : "waits for room on its connection";
    case State::kEnded:
      break;
  }
  return "ended";
}

Status PeerOperation::outcome(Status status) const {
  if (status.code() != Code::kCancelled || cancelled_ || running() == nullptr || !running()->abandoned())
    return status;
  const bool maybe_executed = status.maybe_executed();
  return Status(Code::kUnavailable, status.text()).with_maybe_executed(maybe_executed);
}

}  // namespace slime::agent
