#include "ctrl/store/snapshot_schedule.h"

#include <algorithm>

namespace slime::ctrl {

void SnapshotSchedule::restart(const SnapshotHead& head, std::uint64_t entries) {
  changed_ = entries;
  head_ = head;
  bytes_ = 0;
}

void SnapshotSchedule::note_batch(const SnapshotHead& head, std::uint64_t bytes, const Replay& replay) {
  bytes_ += bytes;
  if (head_.entries != head.entries) {
    jitter_ = rng_.below(50);
    head_ = head;
    bytes_ = 0;
  }
  const std::uint64_t percent = 100 + jitter_;
  const std::uint64_t since = replay.entries() - std::min(replay.entries(), head.entries);
  const Nanos age = replay.at().time() - head.at.time();
  const bool old = changed_ > head.entries && age >= policy_.interval / 100 * static_cast<int>(percent);
  const bool many = since >= policy_.entries * percent / 100 || bytes_ >= policy_.bytes * percent / 100;
  due_ = since > 0 && (many || old);
}

}  // namespace slime::ctrl
