#pragma once

#include <atomic>

#if defined(__SANITIZE_THREAD__)  // gcc
#define SLIME_THREAD_SANITIZER 1
#elif defined(__has_feature)  // clang
#define SLIME_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define SLIME_THREAD_SANITIZER 0
#endif

namespace slime {

// Orders all loads and stores before the fence before all loads and stores after it. The thread
// sanitizer does not model fences: under it the accesses on both sides must themselves be
// sequentially consistent.
inline void full_fence() {
#if !SLIME_THREAD_SANITIZER
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Orders loads before the fence before loads and stores after it.
inline void load_fence() {
#if !SLIME_THREAD_SANITIZER
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace slime
