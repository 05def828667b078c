#include "base/scheduling.h"

#include <sys/resource.h>

namespace slime {

void run_in_background() {
  constexpr int kNice = 10;
  // Linux has a nice value for each thread; 0 is the calling thread. Without the right to change it
  // the thread keeps its value.
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace slime
