#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace slime {
namespace detail {
extern std::atomic<std::uint64_t> forks;
}  // namespace detail

// How many fork()s lie between the process that was started and this one. Costs one load.
inline std::uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

// What all of a process shares and guards with locks: a child of fork() gets a T of its own, since its
// parent's may be locked there for ever. None is ever destroyed. Thread: any.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  T& get() {
    Node* node = current_.load(std::memory_order_acquire);
    while (node == nullptr || node->generation != fork_generation()) {
      auto* const made = new Node{fork_generation(), node};
      if (current_.compare_exchange_strong(node, made, std::memory_order_acq_rel)) return made->value;
      delete made;
    }
    return node->value;
  }

 private:
  struct Node {
    const std::uint64_t generation;
    Node* const parents;  // still reachable, so that nobody takes it for a leak
    T value{};
  };
  std::atomic<Node*> current_{nullptr};
};

// A mutex that fork() holds, so that no child inherits it locked: for what can't be a PerProcess, such as the
// locks inside a library. Never destroyed. Its holder takes no other lock, and does not log. Thread: any.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct HeldInFork;
  std::mutex mutex_;
  ForkMutex* next_ = nullptr;  // set once, before others see this
};

}  // namespace slime
