#include "transport/region_uses.h"

#include <algorithm>

#include "base/check.h"
#include "transport/loop.h"

namespace slime::transport {

// Waits for the thread that dropped the last use, which may still hold the mutex.
RegionUses::~RegionUses() { const MutexLock lock(mutex_); }

// Drops a use of a region that is revoked, for which a thread may wait.
void RegionUses::drop_revoked() {
  // The mutex serves two purposes. A waiter cannot miss this change between its check and its wait.
  // And the destructor, which may run as soon as the count is zero, waits until this lock is
  // released.
  const MutexLock lock(mutex_);
  SLIME_CHECK((state_.fetch_sub(1) & ~kRevoked) != 0);
  if (unused()) changed_.notify_all();
}

bool RegionUses::wait_unused(TimePoint deadline) {
  SLIME_CHECK(revoked());
  const MutexLock lock(mutex_);
  const auto done = [this] { return unused(); };
  if (deadline == kNever) {
    changed_.wait(mutex_, done);
    return true;
  }
  return changed_.wait_until(mutex_, deadline, done);
}

bool wait_unused(RegionUses& uses, std::span<const std::shared_ptr<Loop>> loops, TimePoint deadline) {
  while (!uses.unused()) {
    const TimePoint now = steady_clock().now();
    if (now >= deadline) return false;
    const TimePoint turn = std::min(deadline, deadline_after(now, limits::kLoopWaitTurn));
    bool driven = false;
    bool may_change = false;
    for (const std::shared_ptr<Loop>& loop : loops) {
      if (loop == nullptr) continue;
      if (loop->has_thread()) {
        may_change = true;
        continue;
      }
      driven = true;
      if (loop->manual_clock()) {
        // Polls only as long as there is work: the manual clock stands still meanwhile, so timers
        // that are not due now do not become due.
        while (!uses.unused() && loop->poll(Nanos::zero())) {
        }
      } else {
        may_change = true;
        loop->wait_until([&uses] { return uses.unused(); }, turn);
      }
    }
    if (!may_change) return uses.unused();
    if (!driven) uses.wait_unused(turn);
  }
  return true;
}

}  // namespace slime::transport
