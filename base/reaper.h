#pragma once

#include <cstddef>

#include "base/function.h"

namespace slime {

// Runs `task` on a detached thread. Use it to destroy an object that joins threads when one of
// these threads drops the last reference. No task waits for another task. If no thread can be
// started, the task waits for the next call of reap(). Thread: any.
void reap(Task task);

// Runs `task`, which may block, on a detached thread at once. Returns false if no thread can be
// started; then the caller still owns the task. Thread: any.
bool try_reap(Task& task);

// Returns the number of tasks given to reap() and try_reap() that have not ended.
std::size_t reaping();

}  // namespace slime
