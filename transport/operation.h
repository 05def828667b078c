#pragma once

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace slime::transport {

// One posted request: a message, or a whole batch. Owned by the caller, and not moved while posted.
// Completed exactly once on the endpoint's loop, also when the endpoint closes or the peer dies.
// Inside complete() and afterwards it may be posted again or destroyed.
class Operation {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Called on the loop. OK means: a message was handed to the wire and its buffer belongs to the
  // caller again; a write is in the memory of the peer; a read is in local memory. Any other
  // status: the outcome is unknown, but the wire no longer uses any buffer.
  virtual void complete(Status status) noexcept = 0;

  // Time by which the operation ends; set it before posting. kNever means
  // limits::kOperationDeadline after the post, and no deadline for a one-sided operation that has a
  // stall bound. Posts that wait for the same turn of the loop may count from the first of them.
  TimePoint deadline = kNever;

  // Stall bound of a one-sided operation; set it before posting. Zero: none. Messages ignore it.
  // The operation ends as at its deadline once its connection has moved no byte of this side's
  // one-sided operations for this long. The time counts from the post or the last such byte, and
  // leaves out the time for which this process did not run. A byte of a write moves when the wire
  // takes it, and over TCP also when the peer's host acknowledges it. All operations of a
  // connection share one stream, so the progress of each counts for all.
  Nanos stall = Nanos::zero();

  [[nodiscard]] bool posted() const { return posted_; }
  // Returns whether an endpoint has accepted this operation at least once. If not, nothing of it
  // has reached the peer.
  [[nodiscard]] bool was_posted() const { return was_posted_; }

  // For endpoints only: call mark_posted() when the operation is posted, and finish() when it ends.
  void mark_posted() {
    SLIME_CHECK(!posted_);
    posted_ = was_posted_ = true;
  }
  void finish(Status status) noexcept {
    SLIME_CHECK(posted_);
    posted_ = false;
    complete(std::move(status));
  }

 protected:
  Operation() = default;
  // an Operation is not deleted through this base, and not while it is posted
  ~Operation() { SLIME_CHECK(!posted_); }

 private:
  bool posted_ = false;
  bool was_posted_ = false;
};

// An Operation whose complete(status) calls the function `fn` with the status.
template <class F>
class FunctionOperation final : public Operation {
 public:
  explicit FunctionOperation(F fn) : fn_(std::move(fn)) {}
  void complete(Status status) noexcept override { fn_(std::move(status)); }

 private:
  F fn_;
};

}  // namespace slime::transport
