#pragma once

namespace slime {

// From now on this thread has what other threads leave of the processors, and a little more (nice 10): for
// work that may take its time beside work that may not. Needs no rights; cannot be undone without some.
void run_in_background();

}  // namespace slime
