#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "agent/fork_guard.h"
#include "base/status.h"
#include "base/str.h"

namespace slime::agent {

// Admits calls to an agent until the agent is closed. Admits none in a child of fork(), where the
// agent's threads do not exist. A call that drives the agent's loop needs no Pass, but must check
// open() while it drives: close() is followed by a task on the loop, which ends what the loop has.
// Thread: any.
class Admission {
 public:
  // Admits one call for the lifetime of the Pass, or refuses it. close() waits for admitted calls,
  // so calls must be short.
  class Pass {
   public:
    explicit Pass(Admission& admission) : admission_(admission.enter() ? &admission : nullptr) {}
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { leave(); }
    // Ends the admission before the Pass is destroyed, for a caller whose remaining work is long.
    void leave() {
      if (admission_ != nullptr) std::exchange(admission_, nullptr)->inside_.fetch_sub(1);
    }
    explicit operator bool() const { return admission_ != nullptr; }

   private:
    Admission* admission_;
  };

  explicit Admission(std::string agent_name) : agent_name_(std::move(agent_name)) {}

  // Refuses calls from now on. Returns once no admitted call is left.
  void close() {
    closed_.store(true);
    while (inside_.load() != 0) std::this_thread::yield();
  }
  [[nodiscard]] bool open() const { return !guard_.forked() && !closed_.load(); }
  [[nodiscard]] bool forked() const { return guard_.forked(); }
  [[nodiscard]] const ForkGuard& guard() const { return guard_; }
  // Returns kUnavailable once the agent is closed, and in a child of fork(); else OK.
  [[nodiscard]] Status refusal() const {
    if (guard_.forked()) return guard_.status();
    if (closed_.load()) return Status(Code::kUnavailable, str("agent ", agent_name_, " is closed"));
    return {};
  }

 private:
  bool enter() {
    if (guard_.forked()) return false;
    inside_.fetch_add(1);
    if (!closed_.load()) return true;
    inside_.fetch_sub(1);
    return false;
  }

  const std::string agent_name_;
  const ForkGuard guard_;
  std::atomic<bool> closed_{false};
  std::atomic<std::int64_t> inside_{0};
};

}  // namespace slime::agent
