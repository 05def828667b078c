#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

namespace slime::agent {

// Lets work in until it is closed; closing waits for those inside. Work inside is short. Thread: any.
class Gate {
 public:
  // Holds the gate open for one piece of work; false when it was closed.
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate.enter() ? &gate : nullptr) {}
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { leave(); }
    void leave() {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->inside_.fetch_sub(1);
    }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    Gate* gate_;
  };

  void close() {
    closed_.store(true);
    while (inside_.load() != 0) std::this_thread::yield();
  }
  [[nodiscard]] bool closed() const { return closed_.load(); }

 private:
  bool enter() {
    inside_.fetch_add(1);
    if (!closed_.load()) return true;
    inside_.fetch_sub(1);
    return false;
  }
  std::atomic<bool> closed_{false};
  std::atomic<std::int64_t> inside_{0};
};

}  // namespace slime::agent
