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

// What is before it happens before what is behind it, loads and stores alike. The thread sanitizer knows no
// fences: who counts on this one has sequentially consistent accesses on both sides of it there.
inline void full_fence() {
#if !SLIME_THREAD_SANITIZER
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Of loads only: those before it happen before those behind it, and before stores behind it.
inline void load_fence() {
#if !SLIME_THREAD_SANITIZER
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace slime
