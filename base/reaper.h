#pragma once

#include <cstddef>

#include "base/function.h"

namespace slime {

// Runs `task` on a detached thread: ends an object that joins threads, when one of these threads drops the
// last reference to it. No task waits for another one. If no thread can be started, the task waits until the
// next call of reap(). Thread: any.
void reap(Task task);

// Tasks given to reap() that have not ended.
std::size_t reaping();

}  // namespace slime
