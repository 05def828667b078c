#pragma once

namespace slime {

// Lowers this thread's priority to nice 19, for work that must not slow down other work. On a busy
// machine the thread may hold a lock for long. Threads that this thread starts inherit it. Needs no
// rights; undoing it does.
void run_in_background();

// Makes the time slices of this thread short, for work that is brief and urgent: Linux 6.12 and
// newer then run the thread earlier when it wakes up beside busy threads. The thread's share of the
// processor stays the same. Threads that this thread starts inherit it. Needs no rights. An older
// kernel ignores it.
void run_in_short_slices();

}  // namespace slime
