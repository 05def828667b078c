#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "transport/loop.h"
#include "transport/time_bounds.h"

namespace slime::transport {

// Holds the state of an endpoint from connecting to ended. The first error sticks. A broken
// endpoint ends in a later turn, when the wire or device has nothing left of its operations.
// Thread: the loop.
class EndpointLife {
 public:
  // Connecting: takes posts, which wait. Broken: no byte moves, operations are still to complete.
  enum class State { kConnecting, kOpen, kClosing, kBroken, kEnded };

  explicit EndpointLife(State state) : state_(state) {}

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool working() const { return state_ <= State::kClosing; }
  [[nodiscard]] bool takes_posts() const { return state_ <= State::kOpen; }
  [[nodiscard]] bool closing() const { return state_ == State::kClosing; }
  [[nodiscard]] bool broken() const { return state_ == State::kBroken; }
  [[nodiscard]] bool ended() const { return state_ == State::kEnded; }

  void opened() {
    if (state_ == State::kConnecting) state_ = State::kOpen;
  }
  // Takes no posts from here on; accepted posts have until `by`. Returns false if the endpoint
  // closes or broke before.
  bool close(TimePoint by);
  // Returns false if the endpoint broke before. After close() the reason is not an error.
  bool break_with(Status reason);
  // Sets the status of the operations in flight, if it differs from the reason of the break.
  void leave(Status leftover) { leftover_ = std::move(leftover); }
  void end() { state_ = State::kEnded; }

  // Returns true the first time: then the receiver must be told.
  bool tell_closed() { return !std::exchange(told_closed_, true); }
  [[nodiscard]] bool told_closed() const { return told_closed_; }

  [[nodiscard]] TimePoint close_by() const { return close_by_; }
  // Returns the first error. OK while healthy, and when this side closed.
  [[nodiscard]] const Status& error() const { return error_; }
  // Returns the status for operations that did not happen; OK if all of them did.
  [[nodiscard]] const Status& leftover() const { return leftover_; }

 private:
  State state_;
  bool close_called_ = false;
  bool told_closed_ = false;
  TimePoint close_by_ = kNever;
  Status error_;
  Status leftover_;
};

// One timer for everything that an endpoint waits for. It may fire early, never late. Thread: the
// loop.
class EndpointTimer {
 public:
  explicit EndpointTimer(Loop& loop) : loop_(loop) {}
  EndpointTimer(const EndpointTimer&) = delete;
  EndpointTimer& operator=(const EndpointTimer&) = delete;
  ~EndpointTimer() { cancel(); }

  // `fire(now, pause)`: the process or its machine was paused for `pause` until now; zero mostly.
  // Set once, before arm().
  void on_fire(UniqueFunction<void(TimePoint, Nanos)> fire) { fire_ = std::move(fire); }
  // Fires at `when` or before.
  void arm(TimePoint when) {
    if (when < due_) start(when);
  }
  void cancel() {
    loop_.cancel_timer(timer_);
    due_ = kNever;
  }

 private:
  void start(TimePoint when);

  Loop& loop_;
  UniqueFunction<void(TimePoint, Nanos)> fire_;
  TimerId timer_;
  TimePoint due_ = kNever;
};

// Finds the one-sided operations that have passed one of their bounds. Thread: the loop.
class StallWatch {
 public:
  // Operations that have passed a bound. `reset`: the peer or the device knows of one of them, so
  // only a reset gives its memory back; otherwise, the operations that can end by themselves.
  struct Late {
    const TimeBounds* reset = nullptr;
    std::vector<Handle> not_started;
  };

  // Returns when the connection last moved bytes of one-sided operations.
  [[nodiscard]] TimePoint last_progress() const { return last_progress_; }
  void note_progress(TimePoint now) { last_progress_ = now; }

  // Excuses a pause of this process, or of a machine on the path to the peer: a pause is not a
  // stall.
  template <class Record>
  void excuse(SlotMap<Record>& operations, Nanos pause, TimePoint now) {
    if (pause == Nanos::zero()) return;
    last_progress_ = std::min(now, last_progress_ + pause);
    operations.for_each([=](Handle, Record& operation) { operation.bounds.excuse(pause, now); });
  }

  // Finds late operations and sets which bound they have `passed`; calls on_time(operation) for the
  // others. Moves `next` forward to the time of the next look. Timers run before the wire or the
  // completion queue is read, and after a pause these may show progress. So a stall counts only if
  // it is found again in the next turn.
  template <class Record, class OnTime>
  Late look(SlotMap<Record>& operations, TimePoint now, TimePoint& next, OnTime on_time) {
    const bool looked = std::exchange(suspected_, false);
    Late late;
    operations.for_each([&](Handle handle, Record& operation) {
      const Overdue overdue = operation.bounds.overdue(now, last_progress_);
      const bool suspect = overdue == Overdue::kStall && !looked;
      if (overdue == Overdue::kNo || suspect) {
        suspected_ = suspected_ || suspect;
        next = std::min(next, suspect ? now : operation.bounds.next_look(now, last_progress_));
        on_time(operation);
        return;
      }
      operation.bounds.passed = overdue;
      if (operation.started)
        late.reset = &operation.bounds;
      else
        late.not_started.push_back(handle);
    });
    return late;
  }

 private:
  TimePoint last_progress_{};
  bool suspected_ = false;  // a stall bound has passed, and the connection is looked at once more
};

}  // namespace slime::transport
