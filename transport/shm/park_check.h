#pragma once

#include <cstdint>

namespace slime::transport::shm {

// Decides when a writer checks whether its reader has parked, so that the writer must ring the
// bell. The first write after a look of the hub, if it is outside of a look, is checked at once.
// All other writes share one check at the end of the hub's next look, because checking after each
// short write would take longer than writing.
class ParkCheck {
 public:
  enum class Next { kNow, kLater, kPlanned };

  // Returns when to check for the reader after a write; kPlanned: the write shares a check that is
  // planned already. `looking`: the write happens inside a look of the hub. `looks`: number of
  // looks that have begun, never 0.
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
  std::uint64_t checked_in_ = 0;  // value of `looks` at the last check that was made at once
};

}  // namespace slime::transport::shm
