#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "agent/admission.h"
#include "base/future.h"
#include "transport/loop.h"

namespace slime::agent {

// Lets waiting threads drive the agent's loop. Never drives in a child of fork(): the loop's
// descriptors and thread belong to the parent. Futures keep it alive: it holds what they may still
// use once the agent is gone. Thread: any.
class AgentDriver final : public Driver {
 public:
  AgentDriver(std::shared_ptr<transport::Loop> loop, std::shared_ptr<Admission> admission)
      : loop_(std::move(loop)), admission_(std::move(admission)) {}

  void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) override {
    if (admission_->forked()) return;
    loop_->wait(std::move(done), deadline, std::move(sleep));
  }

  [[nodiscard]] Admission& admission() const { return *admission_; }
  [[nodiscard]] transport::Loop& loop() const { return *loop_; }

  // Operations that the loop has taken and that have not ended, without those that may wait without
  // end. The loop changes the number; any thread may read it.
  std::atomic<std::size_t> under_way{0};

 private:
  const std::shared_ptr<transport::Loop> loop_;
  const std::shared_ptr<Admission> admission_;
};

}  // namespace slime::agent
