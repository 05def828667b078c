#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/stream/streams.h"

// Ending a channel. A graceful close is symmetric: each side says kClosing, after which it asks for nothing
// more, answers what the other asked before, and closes once both have said it and everything is answered. So
// no request is lost between two healthy peers: it is executed or refused, never unknown.
namespace slime::rpc {

void ChannelImpl::close(Nanos bound) {
  const Scope scope(*this, false);
  if (closed_ || endpoint_closing_) return;
  begin_close(bound);
}

void ChannelImpl::reset(Status reason) {
  const Scope scope(*this, false);
  SLIME_CHECK(!reason.ok());
  if (closed_) return;
  closing_ = true;
  endpoint_closing_ = true;
  endpoint_->reset(std::move(reason));
}

void ChannelImpl::begin_close(Nanos bound) {
  const TimePoint deadline = deadline_after(loop_.now(), bound);
  const bool first = !closing_;
  closing_ = true;
  if (!ready_ || bound <= Nanos::zero()) {
    close_endpoint(bound);
    return;
  }
  if (first) {
    OutFrame frame;
    frame.header.type = wire::FrameType::kClosing;
    submit(std::move(frame));
  } else if (deadline >= close_deadline_) {
    return;  // the shorter bound counts
  }
  close_deadline_ = deadline;
  loop_.cancel_timer(close_timer_);
  if (deadline == kNever) return;
  close_timer_ = loop_.add_timer(deadline, [this] {
    const Scope timer_scope(*this, true);
    close_timer_ = {};
    close_endpoint(Nanos::zero());
  });
}

void ChannelImpl::close_endpoint(Nanos bound) {
  if (endpoint_closing_) return;
  endpoint_closing_ = true;
  endpoint_->close(bound);
}

// Runs after whatever happened. Receives are no work in flight: they end when nothing more can come.
void ChannelImpl::check_drained() {
  if (!closing_ || !peer_closing_ || closed_ || endpoint_closing_) return;
  if (pulls_.empty()) end_receives();
  if (asked_ > 0 || !served_.empty() || !pulls_.empty() || !lent_.empty() || !queue_.empty()) return;
  if (streams_ != nullptr && !streams_->all.empty()) return;  // large messages have not been read out yet
  const TimePoint now = loop_.now();
  close_endpoint(close_deadline_ == kNever ? limits::kCloseBound
                                           : std::max(Nanos::zero(), Nanos(close_deadline_ - now)));
}

void ChannelImpl::end_receives() {
  if (receives_ == 0) return;
  for (auto& [tag, state] : tags_) {
    // Completes receives whose message has arrived.
    while (!state.receivers.empty() && !state.messages.empty() && state.messages.front().complete) {
      InboxEntry entry = std::move(state.messages.front());
      state.messages.pop_front();
      --inbox_messages_;
      inbox_bytes_ -= entry.bytes;
      const Handle receiver = state.receivers.front();
      state.receivers.pop_front();
      done_.push_back({std::move(pending_.find(receiver)->handler),
                       {{}, std::move(entry.payload), {}, tag, entry.number}});
      pending_.erase(receiver);
      --receives_;
    }
  }
  std::vector<Handle> ended;
  pending_.for_each([&](Handle handle, Pending& pending) {
    if (pending.kind == Kind::kRecv) ended.push_back(handle);
  });
  for (const Handle handle : ended) fail(handle, closing_status());
}

// Why nothing more is done here.
Status ChannelImpl::closing_status() const {
  if (closed_ && !closed_reason_.ok()) return closed_reason_;
  if (!expelled_.ok()) return broken_by(expelled_);
  if (closed_by_peer_)
    return Status(Code::kUnavailable, str(options_.peer_name, " is closing the connection"));
  return Status(Code::kCancelled, str("the connection to ", options_.peer_name, " was closed"));
}

void ChannelImpl::on_closed(const Status& reason) noexcept {
  if (closed_) return;
  const Scope scope(*this, true);
  sweep(reason);
}

// What a connection that broke for this reason is to its callers.
Status ChannelImpl::broken_by(const Status& reason) const {
  const bool same = reason.code() == Code::kUnavailable;  // do not print the code twice
  return {Code::kUnavailable, str(options_.peer_name, ": ", same ? reason.text() : reason.to_string())};
}

// Completes everything. The wire uses no buffer of ours any more.
void ChannelImpl::sweep(const Status& cause) {
  closing_ = true;
  endpoint_closing_ = true;
  closed_ = true;
  const Status& reason = expelled_.ok() ? cause : expelled_;
  if (!reason.ok()) {
    closed_reason_ = broken_by(reason);
  } else if (closed_by_peer_) {
    closed_reason_ = Status(Code::kUnavailable, str(options_.peer_name, " closed the connection"));
  }
  box_->close();
  loop_.cancel_timer(close_timer_);
  end_receives();
  std::vector<Handle> handles;
  pending_.for_each([&](Handle handle, Pending&) { handles.push_back(handle); });
  for (const Handle handle : handles) fail(handle, closing_status());
  if (streams_ != nullptr) sweep_streams();
  loop_.cancel_timer(deadline_timer_);
  loop_.cancel_timer(revoke_timer_);
  loop_.cancel_timer(places_timer_);
  queue_.clear();
  queued_bytes_ = 0;
  queued_answers_ = 0;
  for (Pull& pull : pulls_) SLIME_CHECK(!pull.posted() || destroying_);
  if (!destroying_) pulls_.clear();
  waiting_pulls_.clear();
  pulled_bytes_ = 0;
  std::vector<Handle> lent;
  lent_.for_each([&](Handle handle, Lent&) { lent.push_back(handle); });
  for (const Handle handle : lent) release_lent(handle);
  std::vector<Handle> served;
  served_.for_each([&](Handle handle, Served&) { served.push_back(handle); });
  for (const Handle handle : served) served_.take(handle);
  timed_.clear();
  std::vector<std::uint64_t> tags;
  for (auto& [tag, state] : tags_) {
    for (const InboxEntry& entry : state.messages) {
      if (entry.complete) continue;
      --inbox_messages_;
      inbox_bytes_ -= entry.bytes;
    }
    std::erase_if(state.messages, [](const InboxEntry& entry) { return !entry.complete; });
    tags.push_back(tag);
  }
  for (const std::uint64_t tag : tags) forget_tag_if_empty(tag);
}

}  // namespace slime::rpc
