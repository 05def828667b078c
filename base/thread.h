#pragma once

#include <thread>
#include <utility>

#include "base/fork.h"

namespace slime {
namespace detail {
// Returns the mutex that make_thread() holds.
ForkMutex& thread_starts();
}  // namespace detail

// Makes a std::thread of these arguments, at no moment of a fork(). Every thread of Slime starts
// here. glibc takes an ended thread's stack for a new thread, and frees the stack's thread-local
// variables, without a lock that fork() holds: a child that was made meanwhile frees them again
// when it takes the same stack, which corrupts its heap (seen with glibc 2.36, in plain C).
// Throws what std::thread throws. Thread: any.
template <class... Arguments>
std::thread make_thread(Arguments&&... arguments) {
  const MutexLock lock(detail::thread_starts());
  return std::thread(std::forward<Arguments>(arguments)...);
}

}  // namespace slime
