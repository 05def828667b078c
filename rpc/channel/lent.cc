#include <algorithm>

#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec/body_pool.h"

// Memory lent to the peer: its release, the budget of answers, and the revocation of late answers.
namespace slime::rpc {

// Closes the regions without waiting: the peer released them, never heard of them, or loses them.
void ChannelImpl::Lent::close() {
  region.close(Nanos::zero()).ignore();
  for (transport::MemoryRegion& each : regions) each.close(Nanos::zero()).ignore();
}

void ChannelImpl::release_lent(Handle lent) {
  auto record = lent_.take(lent);
  if (!record) return;
  record->close();
  const std::size_t length = record->bytes.size();
  give_body(std::move(record->bytes));
  if (record->stream != nullptr) message_released(*record->stream, length);
  if (record->one_way.generation != 0) one_way_done(record->one_way, record->one_way_answered);
}

// ------------------------------------------------------------------------------------------------- answers

// Does not count ranges of a user's region, whose memory exists without the answer.
std::uint64_t ChannelImpl::Lent::own_bytes() const { return bytes.size() + owned_bytes(attachments); }

Status ChannelImpl::over_budget(std::uint64_t bytes) {
  ++counters_.over_budget;
  return {Code::kResourceExhausted,
          str(bytes, " bytes, while ", account_->held(), " are held for ", options_.peer_name, " and ",
              held_bytes(), " in the process: a connection has at most ", account_->share(),
              " (read answers as they come, or raise memory_bytes)")};
}

// Takes the memory of an answer from the budget, unless the handler's thread has: its caller may
// never read it. On an error the memory is released, and the frame lends nothing.
Status ChannelImpl::admit_answer(OutFrame& frame, Handle lent, TimePoint deadline) {
  Lent& record = *lent_.find(lent);
  Status refusal;
  if (deadline <= loop_.now()) {
    refusal = Status(Code::kDeadlineExceeded, "the answer came after the deadline of the call");
  } else {
    const std::uint64_t bytes = record.own_bytes();
    record.held = std::move(answer_held_);
    if (record.held.bytes() != bytes) {
      record.held.give_back();
      record.held = account_->take(bytes);
    }
    if (!record.held) refusal = over_budget(bytes);
  }
  if (refusal.ok()) {
    revoke_after(record, deadline);
    return {};
  }
  release_lent(lent);
  frame.header.flags &= static_cast<std::uint8_t>(~(wire::kFlagRendezvous | wire::kFlagAttachments));
  frame.body.clear();
  return refusal;
}

void ChannelImpl::revoke_after(Lent& lent, TimePoint deadline) {
  if (deadline == kNever) return;
  lent.revoke_at = deadline_after(deadline, options_.answer_grace);
  arm_revocation(lent.revoke_at);
}

// Uses one timer for all answers.
void ChannelImpl::arm_revocation(TimePoint first) {
  if (first == kNever || (revoke_timer_ && revoke_timer_.when <= first)) return;
  loop_.cancel_timer(revoke_timer_);
  revoke_timer_ = loop_.add_timer(first, [this] {
    const Scope scope(*this, true);
    revoke_timer_ = {};
    revoke_late();
  });
}

// Closes the regions of late answers, which is final. If the peer is reading one at this moment,
// the connection ends, and with it all loans.
void ChannelImpl::revoke_late() {
  const TimePoint now = loop_.now();
  TimePoint next = kNever;
  std::vector<Handle> late;
  lent_.for_each([&](Handle handle, const Lent& lent) {
    if (lent.revoke_at <= now)
      late.push_back(handle);
    else
      next = std::min(next, lent.revoke_at);
  });
  arm_revocation(next);
  for (const Handle handle : late) {
    if (lent_.find(handle) == nullptr) continue;
    ++counters_.answers_revoked;
    release_lent(handle);
  }
}

}  // namespace slime::rpc
