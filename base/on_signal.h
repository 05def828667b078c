#pragma once

#include "base/status.h"

namespace slime {

// Has `task` called, on a thread of its own, when this process gets the signal; once for several that come
// while it runs. What the signal interrupts goes on. For good: asked again for the same signal and task it
// does nothing. kAlreadyExists: somebody else handles the signal, or ignores it on purpose, and that stays as
// it is. kInvalidArgument: no signal that can be handled. A child of fork() ignores the signal until it calls
// this itself. Thread: any.
Status on_signal(int number, void (*task)());

}  // namespace slime
