#pragma once

// Private to rpc: turns of a channel, and a timer whose callback is a turn.

#include <utility>

#include "base/clock.h"
#include "base/function.h"
#include "transport/loop.h"

namespace slime::rpc {

// A turn is a call of a public function of a channel, or a callback of its loop or endpoint. Turns
// nest. Handlers are called on the loop after the outermost turn has ended, so never inside a
// public function.
class TurnHost {
 public:
  virtual void begin_turn() noexcept = 0;
  virtual void end_turn(bool from_loop) noexcept = 0;

 protected:
  ~TurnHost() = default;
};

// Begins a turn for a callback of the loop, and ends the turn at the end of the scope.
class LoopTurn {
 public:
  explicit LoopTurn(TurnHost& host) : host_(host) { host_.begin_turn(); }
  LoopTurn(const LoopTurn&) = delete;
  LoopTurn& operator=(const LoopTurn&) = delete;
  ~LoopTurn() { host_.end_turn(true); }

 private:
  TurnHost& host_;
};

// One timer for many deadlines, set to the earliest. Removing a deadline does not change the timer,
// so it may fire when no deadline has passed.
class DueTimer {
 public:
  // `look` runs in a turn when the timer fires. It must arm the timer again for the deadlines that
  // are left.
  DueTimer(transport::Loop& loop, TurnHost& host, Task look)
      : loop_(loop), host_(host), look_(std::move(look)) {}
  DueTimer(const DueTimer&) = delete;
  DueTimer& operator=(const DueTimer&) = delete;
  ~DueTimer() { cancel(); }

  void arm(TimePoint first) {
    if (first == kNever || (timer_ && timer_.when <= first)) return;
    loop_.cancel_timer(timer_);
    timer_ = loop_.add_timer(first, [this] {
      const LoopTurn turn(host_);
      timer_ = {};
      look_();
    });
  }
  void cancel() { loop_.cancel_timer(timer_); }

 private:
  transport::Loop& loop_;
  TurnHost& host_;
  Task look_;
  transport::TimerId timer_;
};

}  // namespace slime::rpc
