#include "ctrl/api/backup_pages.h"

#include <charconv>
#include <utility>

#include "base/ids.h"
#include "base/str.h"
#include "ctrl/limits.h"
#include "ctrl/store/backup.h"
#include "ctrl/store/records.h"

namespace slime::ctrl {

bool BackupPages::in_use(TimePoint now) const {
  return snapshot_ != nullptr && !ended_ && now - used_at_ < limits::kBackupIdle;
}

std::string BackupPages::page(const RegistryState& state, const std::string& id, std::size_t& index) {
  const std::size_t count = record_count(state);
  const bool from_first = index == 0;
  std::vector<Record> records;
  for (std::size_t bytes = 0; index < count && bytes < limits::kPageBytes; ++index) {
    records.push_back(encode_record_at(state, index));
    bytes += records.back().value.size();
  }
  if (index < count) return encode_backup_page(records, str(id, ":", index));
  return from_first ? encode_backup(records) : encode_backup_page(records, {});
}

Result<std::string> BackupPages::first(const std::function<RegistryState()>& take, TimePoint now) {
  const Status busy(Code::kUnavailable, "another backup is under way");
  if (!taking_.try_lock()) return busy;
  const MutexLock taking(taking_, std::adopt_lock);
  // declared before the lock: the old copy is freed after the unlock, because it may be large
  Snapshot old;
  {
    const MutexLock lock(mutex_);
    if (in_use(now)) return busy;
    old = std::exchange(snapshot_, nullptr);
  }
  old.reset();
  auto state = std::make_shared<RegistryState>(take());
  // Leaves the keys out: a restore makes new keys, and a leaked backup must not grant membership.
  state->keys.clear();
  const std::string id = InstanceId::random().to_string();
  std::size_t index = 0;
  std::string out = page(*state, id, index);
  if (index == record_count(*state)) return out;
  const MutexLock lock(mutex_);
  snapshot_ = std::move(state);
  id_ = id;
  used_at_ = now;
  ended_ = false;
  return out;
}

Result<std::string> BackupPages::next(std::string_view cursor, TimePoint now) {
  const std::size_t colon = cursor.find(':');
  const std::string_view number = colon == std::string_view::npos ? "" : cursor.substr(colon + 1);
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (number.empty() || error != std::errc() || end != number.data() + number.size())
    return Status(Code::kInvalidArgument,
                  "query parameter 'after' is not what a page of a backup has as 'next'");
  Snapshot snapshot;
  std::string id;
  {
    const MutexLock lock(mutex_);
    if (snapshot_ == nullptr || cursor.substr(0, colon) != id_)
      return Status(Code::kNotFound,
                    "this backup's pages were not asked for in time, or of another nanoctrl");
    if (index == 0 || index >= record_count(*snapshot_))
      return Status(Code::kInvalidArgument, "query parameter 'after' is beyond this backup");
    snapshot = snapshot_;
    id = id_;
    used_at_ = now;
  }
  std::string out = page(*snapshot, id, index);
  if (index == record_count(*snapshot)) {
    const MutexLock lock(mutex_);
    if (id_ == id) ended_ = true;
  }
  return out;
}

void BackupPages::expire(TimePoint now) {
  Snapshot old;
  const MutexLock lock(mutex_);
  if (snapshot_ != nullptr && now - used_at_ >= limits::kBackupIdle) old = std::exchange(snapshot_, nullptr);
}

}  // namespace slime::ctrl
