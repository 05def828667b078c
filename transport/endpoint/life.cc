#include "transport/endpoint/life.h"

#include "base/str.h"

namespace slime::transport {

bool EndpointLife::close(TimePoint by) {
  if (!takes_posts()) return false;
  state_ = State::kClosing;
  close_called_ = true;
  close_by_ = by;
  return true;
}

bool EndpointLife::break_with(Status reason) {
  if (!working()) return false;
  state_ = State::kBroken;
  if (leftover_.ok()) {
    leftover_ = reason.code() == Code::kDeadlineExceeded
                    ? Status(Code::kUnavailable, str("reset: ", reason.text()))
                    : reason;
  }
  if (!close_called_) error_ = std::move(reason);
  return true;
}

void EndpointTimer::start(TimePoint when) {
  loop_.cancel_timer(timer_);
  due_ = when;
  timer_ = loop_.add_timer(when, [this] {
    timer_ = TimerId{};
    const TimePoint due = std::exchange(due_, kNever);
    const TimePoint now = loop_.now();
    fire_(now, pause_before(now, due));
  });
}

}  // namespace slime::transport
