#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

// The objects of the null verbs library (README.md). One lock guards all of them, except for the
// number of completions that a completion queue holds.
namespace slime::bench::null_verbs {

struct Channel : ibv_comp_channel {
  Channel() : ibv_comp_channel{} {}
  std::deque<struct CompletionQueue*> events;  // the descriptor is readable once for each
};

struct Context : ibv_context {
  Context() : ibv_context{} {}
  std::deque<ibv_async_event> events;  // the descriptor is readable once for each
};

struct Entry {
  ibv_wc wc;
  std::uint64_t due_ns;
};
struct CompletionQueue : ibv_cq {
  CompletionQueue() : ibv_cq{} {}
  std::vector<Entry> ring;  // a power of two
  std::uint32_t begin = 0;
  std::atomic<std::uint32_t> size{0};  // written under the lock, read by polls without it
  bool armed = false;
};

struct Receive {
  std::uint64_t id;
  ibv_sge place;
};
struct ReceiveQueue : ibv_srq {
  ReceiveQueue() : ibv_srq{} {}
  std::vector<Receive> ring;  // a power of two
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
};

struct Memory : ibv_mr {
  Memory() : ibv_mr{} {}
  unsigned access = 0;
};

struct QueuePair : ibv_qp {
  QueuePair() : ibv_qp{} {}
  std::uint32_t peer_number = 0;
  std::uint32_t max_inline = 0;
};

// Holds the library's lock. A spin lock, because it is held for nanoseconds, and because its cost
// is part of each figure.
class Lock {
 public:
  Lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed)) relax();
    }
  }
  ~Lock() { locked_.store(false, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  static inline std::atomic<bool> locked_{false};
};

}  // namespace slime::bench::null_verbs
