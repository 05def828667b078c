#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "agent/admission.h"
#include "agent/limits.h"
#include "base/future.h"
#include "transport/loop.h"

namespace slime::agent {

// Lets waiting threads drive the agent's loop if that is better than sleeping. Never drives in a
// child of fork(): the loop's descriptors and thread belong to the parent. Futures keep it alive:
// it holds what they may still use once the agent is gone. Thread: any.
class AgentDriver final : public Driver {
 public:
  // `polled`: a waiting thread always drives (Progress::kPolled).
  AgentDriver(std::shared_ptr<transport::Loop> loop, std::shared_ptr<Admission> admission, bool polled)
      : loop_(std::move(loop)), admission_(std::move(admission)), polled_(polled) {}

  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override {
    if (admission_->forked()) return;
    // If more than kHelpOperations operations are in flight, this thread sleeps and the loop's
    // thread drives: two threads together do more work than one that does everything.
    if (loop_->has_thread() && !polled_ &&
        under_way.load(std::memory_order_relaxed) > limits::kHelpOperations)
      sleep();
    else
      loop_->wait(std::move(done), deadline, std::move(sleep));
  }

  [[nodiscard]] Admission& admission() const { return *admission_; }
  [[nodiscard]] transport::Loop& loop() const { return *loop_; }

  // sum of PeerOperation::weight() of the operations in flight
  std::atomic<std::size_t> under_way{0};

 private:
  const std::shared_ptr<transport::Loop> loop_;
  const std::shared_ptr<Admission> admission_;
  const bool polled_;
};

}  // namespace slime::agent
