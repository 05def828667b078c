#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace slime::transport {

class Loop;

// Counts the posted operations of this process that use a region, so that a thread that closes the
// region can wait for their end. Thread: any. Lifetime: may be destroyed as soon as unused() is
// true.
class RegionUses {
 public:
  RegionUses() = default;
  RegionUses(const RegionUses&) = delete;
  RegionUses& operator=(const RegionUses&) = delete;
  ~RegionUses();

  // Returns false once revoked.
  bool add_use() {
    std::uint64_t before = state_.load();
    do {
      if ((before & kRevoked) != 0) return false;
    } while (!state_.compare_exchange_weak(before, before + 1));
    return true;
  }
  void drop_use() {
    std::uint64_t before = state_.load();
    while ((before & kRevoked) == 0) {
      SLIME_CHECK(before != 0);
      if (state_.compare_exchange_weak(before, before - 1)) return;
    }
    drop_revoked();
  }
  // Refuses new uses.
  void revoke() { state_.fetch_or(kRevoked); }
  [[nodiscard]] bool revoked() const { return (state_.load() & kRevoked) != 0; }
  [[nodiscard]] bool unused() const { return (state_.load() & ~kRevoked) == 0; }
  // Waits until the region is unused; call only after revoke(). Returns false if it is still in use
  // at `deadline` of the steady clock.
  bool wait_unused(TimePoint deadline);

 private:
  static constexpr std::uint64_t kRevoked = std::uint64_t{1} << 63;

  void drop_revoked();

  std::atomic<std::uint64_t> state_{0};  // the count and the flag
  Mutex mutex_;
  CondVar changed_;
};

// Waits until no operation uses the revoked region. The operations end on `loops` (null entries are
// ignored); this call drives those loops that have no thread. Returns false if operations are left
// at `deadline` of the steady clock, or cannot end because no loop has a thread or a clock that
// moves by itself. Must not be called on any of the loops.
bool wait_unused(RegionUses& uses, std::span<const std::shared_ptr<Loop>> loops, TimePoint deadline);

}  // namespace slime::transport
