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
// endpoint ends in a later turn, when the wire or device no longer uses the buffers of its
// operations. Thread: the loop.
class EndpointLife {
 public:
  // kConnecting: the endpoint takes posts, which wait. kBroken: no byte moves; operations have
  // still to complete.
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
  // Begins the close: refuses new posts; accepted posts have until `by` to complete. Returns false
  // if the endpoint was closing or broken already.
  bool close(TimePoint by);
  // Breaks the endpoint. Returns false if it was broken already. If close() was called before,
  // error() does not report `reason`.
  bool break_with(Status reason);
  // Sets the status with which operations in flight complete, if it differs from the reason of the
  // break.
  void leave(Status leftover) { leftover_ = std::move(leftover); }
  void end() { state_ = State::kEnded; }

  // Returns true at the first call only: the caller then tells the receiver of the end.
  bool tell_closed() { return !std::exchange(told_closed_, true); }
  [[nodiscard]] bool told_closed() const { return told_closed_; }

  [[nodiscard]] TimePoint close_by() const { return close_by_; }
  // Returns the first error; OK while the endpoint is healthy, and if this side closed it.
  [[nodiscard]] const Status& error() const { return error_; }
  // Returns the status for operations that were not carried out; OK if all of them were.
  [[nodiscard]] const Status& leftover() const { return leftover_; }

 private:
  State state_;
  bool close_called_ = false;
  bool told_closed_ = false;
  TimePoint close_by_ = kNever;
  Status error_;
  Status leftover_;
};

// The one timer of an endpoint, for all its deadlines. It may fire early, never late. Thread: the
// loop.
class EndpointTimer {
 public:
  explicit EndpointTimer(Loop& loop) : loop_(loop) {}
  EndpointTimer(const EndpointTimer&) = delete;
  EndpointTimer& operator=(const EndpointTimer&) = delete;
  ~EndpointTimer() { cancel(); }

  // Sets the function that the timer calls; call once, before arm(). `fire(now, pause)`: `pause` is
  // how long the process or its machine stood still before `now`, mostly zero.
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
  // Operations that have passed a bound. `reset`: the bounds of an operation that the peer or the
  // device knows of, so that only a reset gives its memory back; null if there is no such
  // operation. `not_started`: the operations that can end by themselves.
  struct Late {
    const TimeBounds* reset = nullptr;
    std::vector<Handle> not_started;
  };

  // Returns when the connection last moved bytes of one-sided operations.
  [[nodiscard]] TimePoint last_progress() const { return last_progress_; }
  void note_progress(TimePoint now) { last_progress_ = now; }

  // Leaves a pause of this process, or of a machine on the path to the peer, out of the stall
  // bounds of all operations: a pause is not a stall.
  template <class Record>
  void excuse(SlotMap<Record>& operations, Nanos pause, TimePoint now) {
    if (pause == Nanos::zero()) return;
    last_progress_ = std::min(now, last_progress_ + pause);
    operations.for_each([=](Handle, Record& operation) { operation.bounds.excuse(pause, now); });
  }

  // Finds the late operations and stores in bounds.passed which bound each has passed. Calls
  // on_time(operation) for the others. Lowers `next` to the time of the next look. Timers run
  // before the wire or the completion queue is read, and reading may show progress after a pause.
  // So a stall counts only if it is found again in the next turn.
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
  // an operation seems to have passed its stall bound; the next look decides
  bool suspected_ = false;
};

}  // namespace slime::transport
