#pragma once

#include <cstdint>

namespace slime::transport::shm {

// Decides when a writer checks whether its reader has parked, and so needs the bell. The first
// write outside of the hub's looks has its check at once. All other writes share one check at the
// end of the hub's next look, because a check after each of many short writes would take most of
// their time.
class ParkCheck {
 public:
  enum class Next { kNow, kLater, kPlanned };

  // Returns when the check for a write is due; kPlanned: a later check is planned already.
  // `looking`: the write is inside of a look; `looks`: how many looks have begun, never 0.
  Next after_write(bool looking, std::uint64_t looks) {
    if (planned_) return Next::kPlanned;
    planned_ = looking || checked_in_ == looks;
    if (planned_) return Next::kLater;
    checked_in_ = looks;
    return Next::kNow;
  }
  // Call when the planned check is made.
  void begin() { planned_ = false; }

 private:
  bool planned_ = false;
  std::uint64_t checked_in_ = 0;  // `looks` at the last check outside of a look
};

}  // namespace slime::transport::shm
