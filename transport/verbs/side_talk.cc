#include "transport/verbs/side_talk.h"

#include <utility>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {

void SideTalk::on_side_frame(const SideFrame& frame) noexcept {
  if (!link_.working()) return;
  switch (frame.type) {
    case SideFrameType::kReady:
      if (link_.opening.got_ready) return link_.corrupt("ready twice");
      link_.opening.got_ready = true;
      link_.opening.hello_due = true;
      break;
    case SideFrameType::kGoodbye:
      if (goodbye_) return link_.corrupt("goodbye twice");
      on_goodbye({frame.a, frame.b});
      break;
    case SideFrameType::kStarved:
      credits_.peer_starves(frame.a);
      break;
    case SideFrameType::kReturn:
      credits_.peer_returns(frame.a);
      break;
    case SideFrameType::kUnreached:
      link_.opening.unreached = true;
      return link_.break_now(
          link_.path.lost(Status(Code::kUnavailable, "the peer got nothing from here over its device")));
  }
  link_.schedule();
}

void SideTalk::on_goodbye(const Goodbye& goodbye) {
  goodbye_ = goodbye;
  goodbye_by_ = deadline_after(link_.loop->now(), limits::kGoodbyeBound);
  link_.timer.arm(goodbye_by_);
}

void SideTalk::on_side_broken(Status reason) noexcept {
  if (!link_.working() || !lost_.ok()) return;
  if (!goodbye_) {  // after a goodbye, the link stays until the peer's messages have come
    lost_ = link_.path.lost(reason);
    lost_at_poll_ = link_.port->polls();
  }
  link_.schedule();
}

bool SideTalk::look_for_end() {
  if (!lost_.ok()) {
    // Messages that arrived before the loss are in the completion queue by now. One more poll
    // handles them before the link breaks.
    if (link_.port->polls() == lost_at_poll_)
      link_.schedule();
    else
      link_.break_now(std::exchange(lost_, Status()));
    return false;
  }
  if (!goodbye_ || !link_.working()) return true;
  // The peer's goodbye tells how many messages and notifications it has sent. This side's device
  // has acknowledged all of them, so their completions come soon.
  const bool all = link_.counters.messages_received >= goodbye_->messages &&
                   link_.counters.notifications_received >= goodbye_->notifications;
  if (all || link_.loop->now() >= goodbye_by_)
    link_.break_now(Status(Code::kUnavailable,
                           str("closed by peer: ", link_.path.peer_name(), " closed the connection")));
  return true;
}

Status SideTalk::flushed() const {
  if (goodbye_) return {Code::kUnavailable, "the peer closed the connection before it had taken everything"};
  if (!lost_.ok()) return {Code::kUnavailable, str("the peer ended or reset the connection: ", lost_.text())};
  return {Code::kUnavailable,
          "its queue pair was flushed, and neither the device nor the peer gave a reason. Cause: the device "
          "stopped the queue pair, because the peer asked for what it may not have, or the device was reset. "
          "Check: what the peer logged at that time; dmesg on this host"};
}

}  // namespace slime::transport::verbs
