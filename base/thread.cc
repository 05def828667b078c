#include "base/thread.h"

namespace slime {
namespace {
// Made before main(): a fork() would not hold a mutex that a thread makes at that moment.
[[maybe_unused]] const ForkMutex& made_early = detail::thread_starts();
}  // namespace

ForkMutex& detail::thread_starts() {
  static ForkMutex& mutex = *new ForkMutex;
  return mutex;
}

}  // namespace slime
