#pragma once

namespace slime {

// Lowers this thread's priority to nice 10, for work that must not slow down other work. Needs no
// rights; raising the priority again does.
void run_in_background();

}  // namespace slime
