#include "base/fork.h"

#include <pthread.h>

namespace slime {

constinit std::atomic<std::uint64_t> detail::forks{0};

namespace {

// In the child, which has one thread.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { detail::forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace
}  // namespace slime
