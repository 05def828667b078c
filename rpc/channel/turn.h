#pragma once

// Private to rpc: turns of a channel, and timers that begin one.

#include <utility>

#include "base/clock.h"
#include "base/function.h"
#include "transport/loop.h"

namespace slime::rpc {

// Each public function of a channel and each callback of its loop and endpoint is a turn. Handlers are
// called when the outermost turn ends, and only from the loop, so never from inside a public function.
class TurnHost {
 public:
  virtual void begin_turn() noexcept = 0;
  virtual void end_turn(bool from_loop) noexcept = 0;

 protected:
  ~TurnHost() = default;
};

// A turn of the loop, as long as it lives.
class LoopTurn {
 public:
  explicit LoopTurn(TurnHost& host) : host_(host) { host_.begin_turn(); }
  LoopTurn(const LoopTurn&) = delete;
  LoopTurn& operator=(const LoopTurn&) = delete;
  ~LoopTurn() { host_.end_turn(true); }

 private:
  TurnHost& host_;
};

// One timer for many deadlines, at the earliest one that was known when it was armed. A deadline that goes
// costs nothing but, at most, a timer that finds nothing.
class DueTimer {
 public:
  // `look` runs in a turn of its own when the timer fires; it arms the timer again for what is left.
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
