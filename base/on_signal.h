#pragma once

#include "base/status.h"

namespace slime {

// Makes this process call `task` at each signal `number`, on a thread of its own. Several signals
// during one call of `task` cause one more call. The interrupted code continues. Permanent; a
// further call with the same arguments does nothing. Errors: kAlreadyExists if the signal has a
// handler or is ignored, which then stays; kInvalidArgument if the signal cannot be handled. A
// child of fork() ignores the signal until it calls this function itself. Thread: any.
Status on_signal(int number, void (*task)());

}  // namespace slime
