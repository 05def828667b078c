#pragma once

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace slime::transport {

// One posted request; a whole batch is one. Owned by the caller, never moved while posted,
// completed exactly once on the endpoint's loop, also when the endpoint closes or the peer dies.
// After complete() it may be posted again, or be destroyed from inside complete().
class Operation {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Called on the loop. OK: a message was handed to the wire, and its buffer is the caller's
  // again; a write is in the memory of the peer; a read is in local memory. Otherwise the outcome
  // is unknown, but the wire no longer uses any buffer.
  virtual void complete(Status status) noexcept = 0;

  // The time by which the operation ends; set before posting. kNever means
  // limits::kOperationDeadline from now, but no deadline for a one-sided operation with a stall
  // bound.
  TimePoint deadline = kNever;

  // The stall bound; set before posting. Zero: none. Messages ignore it. A one-sided operation
  // ends as at its deadline once its connection has moved no byte of the one-sided operations of
  // this side for so long, counted from the post or from the last such byte, without the time for
  // which this process did not run. A byte of a write moves when the wire takes it, and over TCP
  // also when the host of the peer acknowledges it. Operations on a connection share one stream,
  // so the progress of each counts for all.
  Nanos stall = Nanos::zero();

  [[nodiscard]] bool posted() const { return posted_; }

  // For endpoints only: the two ends of a post.
  void mark_posted() {
    SLIME_CHECK(!posted_);
    posted_ = true;
  }
  void finish(Status status) noexcept {
    SLIME_CHECK(posted_);
    posted_ = false;
    complete(std::move(status));
  }

 protected:
  Operation() = default;
  ~Operation() { SLIME_CHECK(!posted_); }  // never deleted through the base; never while the wire may use it

 private:
  bool posted_ = false;
};

// An Operation that calls a function: complete(status) -> fn(status).
template <class F>
class FunctionOperation final : public Operation {
 public:
  explicit FunctionOperation(F fn) : fn_(std::move(fn)) {}
  void complete(Status status) noexcept override { fn_(std::move(status)); }

 private:
  F fn_;
};

}  // namespace slime::transport
