#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "agent/fork_guard.h"
#include "agent/limits.h"
#include "base/future.h"
#include "transport/loop.h"

namespace slime::agent {

// Has those who wait drive the loop, where that is better than to sleep; never in a child after fork(), as
// the loop's descriptors and its thread are the parent's. Thread: any.
class AgentDriver final : public Driver {
 public:
  // `polled`: who waits for a moment drives in any case.
  AgentDriver(std::shared_ptr<transport::Loop> loop, ForkGuard guard, bool polled)
      : loop_(std::move(loop)), guard_(guard), polled_(polled) {}

  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override {
    if (guard_.forked()) return;
    // With many under way the thread and the one that waits do more than the one alone.
    if (loop_->has_thread() && !polled_ &&
        under_way.load(std::memory_order_relaxed) > limits::kHelpOperations)
      sleep();
    else
      loop_->wait(std::move(done), deadline, std::move(sleep));
  }

  std::atomic<std::size_t> under_way{0};  // weights of the operations that were begun and have not ended

 private:
  const std::shared_ptr<transport::Loop> loop_;
  const ForkGuard guard_;
  const bool polled_;
};

}  // namespace slime::agent
