#include <algorithm>

#include "base/check.h"
#include "rpc/channel/channel_impl.h"

// The end of a channel. A graceful close is symmetric: each side sends kClosing, makes no more
// requests, and still answers earlier requests of the peer. A side closes its endpoint when both
// sides have sent kClosing and everything is answered. So each request between two healthy peers is
// executed or refused.
namespace slime::rpc {

void ChannelImpl::close(Nanos bound) {
  const Scope scope(*this, false);
  if (connection_.over()) return;
  resume();  // a graceful close answers the requests that wait
  begin_close(bound);
}

void ChannelImpl::reset(Status reason) {
  const Scope scope(*this, false);
  SLIME_CHECK(!reason.ok());
  if (connection_.closed()) return;
  connection_.break_by(std::move(reason));
}

void ChannelImpl::begin_close(Nanos bound) {
  const TimePoint deadline = deadline_after(connection_.now(), bound);
  const bool first = !connection_.closing();
  connection_.stop_asking();
  if (!connection_.ready() || bound <= Nanos::zero()) {
    connection_.close_endpoint(bound);
    return;
  }
  if (first) {
    lent_messages_.refuse_waiting();
    OutFrame frame;
    frame.header.type = wire::FrameType::kClosing;
    outbox_.submit(frame);
  } else if (deadline >= close_deadline_) {
    return;  // the shorter bound counts
  }
  close_deadline_ = deadline;
  connection_.loop().cancel_timer(close_timer_);
  if (deadline == kNever) return;
  close_timer_ = connection_.loop().add_timer(deadline, [this] {
    const Scope timer_scope(*this, true);
    close_timer_ = {};
    connection_.close_endpoint(Nanos::zero());
  });
}

// Closes the endpoint when both sides close and nothing is in flight. Receives that wait do not
// count as in flight: they end when no more messages can arrive.
void ChannelImpl::check_drained() {
  if (!connection_.closing() || !connection_.peer_closing() || connection_.over()) return;
  if (puller_.empty()) end_receives();
  if (calls_.asked() > 0 || !served_.empty() || !puller_.empty() || !lending_.empty() || !outbox_.empty())
    return;
  if (!streams_.empty()) return;  // large messages of streams have not been read completely
  const TimePoint now = connection_.now();
  connection_.close_endpoint(close_deadline_ == kNever
                                 ? limits::kCloseBound
                                 : std::max(Nanos::zero(), Nanos(close_deadline_ - now)));
}

void ChannelImpl::end_receives() {
  if (calls_.receives() == 0) return;
  inbox_.finish_receives();
  calls_.fail_receives();
}

void ChannelImpl::on_closed(const Status& reason) noexcept {
  if (connection_.closed()) return;
  const Scope scope(*this, true);
  sweep(reason);
}

// Ends all requests, streams and loans. The endpoint is closed, so it uses no buffer of this side
// any more.
void ChannelImpl::sweep(const Status& cause) {
  connection_.end(cause);
  box_->close();
  held_.clear();
  connection_.loop().cancel_timer(close_timer_);
  end_receives();
  calls_.fail_all();
  streams_.sweep();
  outbox_.clear();
  puller_.clear();
  lent_messages_.clear();
  lending_.release_all();
  served_.clear();
  inbox_.drop_incomplete();
}

}  // namespace slime::rpc
