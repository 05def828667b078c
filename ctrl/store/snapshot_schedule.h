#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

namespace slime::ctrl {

// When to write a snapshot: after so many entries, or bytes of entries, or this long after the last
// snapshot if something changed. Each engine adds a random delay of up to half of that, so that
// mostly one engine writes it.
struct SnapshotPolicy {
  std::uint64_t entries = 20'000;
  std::uint64_t bytes = std::uint64_t{32} << 20;
  Nanos interval = std::chrono::seconds(60);
};

// Decides when this engine writes the next snapshot of the log. Thread: one at a time.
class SnapshotSchedule {
 public:
  SnapshotSchedule(SnapshotPolicy policy, std::uint64_t seed) : policy_(policy), rng_(seed) {}

  // Begins anew with a registry that was loaded, from this snapshot, up to `entries` entries.
  void restart(const SnapshotHead& head, std::uint64_t entries);
  // Notes that the registry changed with entry number `entries`.
  void note_change(std::uint64_t entries) { changed_ = entries; }
  // Notes that `bytes` of entries were read, and the snapshot that was in Redis then. `replay` is
  // the position in the log now.
  void note_batch(const SnapshotHead& head, std::uint64_t bytes, const Replay& replay);
  [[nodiscard]] bool due() const { return due_; }
  // Notes that a snapshot is being written, or was written: none is due until the next batch.
  void clear() { due_ = false; }
  // Returns how many entries the newest known snapshot contains.
  [[nodiscard]] std::uint64_t entries() const { return head_.entries; }

 private:
  SnapshotPolicy policy_;
  Rng rng_;
  SnapshotHead head_;          // the snapshot in Redis, as far as known
  std::uint64_t changed_ = 0;  // number of the last entry that changed the registry
  std::uint64_t bytes_ = 0;    // of the entries since that snapshot
  std::uint64_t jitter_ = 0;   // percent of the policy
  bool due_ = false;
};

}  // namespace slime::ctrl
