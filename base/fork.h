#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace slime {
namespace detail {
extern std::atomic<std::uint64_t> forks;
}  // namespace detail

// Returns how many forks lie between the program's first process and this one: 0 in the first
// process, 1 in its child. Costs one load.
inline std::uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

// Holds a process-wide object that is guarded by locks. In a child of fork() get() makes a new T,
// since a thread of the parent may have held the locks of the old one. No T is ever destroyed.
// Thread: any.
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
    Node* const parents;  // keeps the parent's T reachable for leak checkers
    T value{};
  };
  std::atomic<Node*> current_{nullptr};
};

// A mutex that fork() holds, so that no child inherits it locked. For objects that cannot be a
// PerProcess, such as the locks inside a library. Make it before main(), while there is one thread:
// a fork() that has begun does not hold a mutex made meanwhile. Never destroyed. While holding it,
// do not take other locks and do not log. Thread: any.
class ForkMutex final : public Mutex {
 public:
  ForkMutex();

 private:
  friend struct HeldInFork;
  ForkMutex* next_ = nullptr;  // set once, before other threads see this mutex
};

}  // namespace slime
