#pragma once

#include <cstddef>

#include "base/function.h"

namespace slime {

// Runs `task` on a detached thread: ends an object that joins threads, when one of these threads drops the
// last reference to it. No task waits for another one. If no thread can be started, the task waits until the
// next call of reap(). Thread: any.
void reap(Task task);

// The same at once, or not at all: false where no thread can be started, and the task is still the caller's.
// For calls that block, of whoever must not.
bool try_reap(Task& task);

// Tasks given to either that have not ended.
std::size_t reaping();

}  // namespace slime
