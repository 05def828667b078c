#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

namespace slime::ctrl {

// The next snapshot is due after `entries` entries, after `bytes` bytes of entries, or `interval`
// after the last snapshot if the registry has changed. Each engine adds a random part of up to half
// to these values, so that usually one engine writes for all.
struct SnapshotPolicy {
  std::uint64_t entries = 20'000;
  std::uint64_t bytes = std::uint64_t{32} << 20;
  Nanos interval = std::chrono::seconds(60);
};

// Decides when this engine should write a snapshot of the log. Thread: one at a time.
class SnapshotSchedule {
 public:
  SnapshotSchedule(SnapshotPolicy policy, std::uint64_t seed) : policy_(policy), rng_(seed) {}

  // Starts again after the registry was loaded from the snapshot `head` and applied up to the log's
  // entry number `entries`.
  void restart(const SnapshotHead& head, std::uint64_t entries);
  // Notes that entry number `entries` of the log has changed the registry.
  void note_change(std::uint64_t entries) { changed_ = entries; }
  // Notes that a batch with `bytes` bytes of entries was read. `head` is the snapshot in Redis at
  // that time; `replay` is the position after the batch.
  void note_batch(const SnapshotHead& head, std::uint64_t bytes, const Replay& replay);
  [[nodiscard]] bool due() const { return due_; }
  // Notes that a snapshot is being written or was written. due() is false until the next
  // note_batch().
  void clear() { due_ = false; }
  // Returns the number of entries that the newest known snapshot includes.
  [[nodiscard]] std::uint64_t entries() const { return head_.entries; }

 private:
  SnapshotPolicy policy_;
  Rng rng_;
  // the newest snapshot in Redis that is known here
  SnapshotHead head_;
  // number of the last entry that has changed the registry
  std::uint64_t changed_ = 0;
  std::uint64_t bytes_ = 0;   // of the entries since that snapshot
  std::uint64_t jitter_ = 0;  // percent of the policy
  bool due_ = false;
};

}  // namespace slime::ctrl
