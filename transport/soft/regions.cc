#include "transport/soft/regions.h"

#include "base/str.h"

namespace slime::transport::soft {

bool RegionRecord::pin(std::uint64_t refusing) {
  if ((pins_.fetch_add(1) & refusing) == 0) return true;
  unpin();
  return false;
}

// Notifies under the mutex, so that a waiter cannot miss it between its check and its wait.
void RegionRecord::unpin() {
  const std::uint64_t before = pins_.fetch_sub(1);
  if ((before & kCount) != 1 || (before & (kRevoked | kCut)) == 0) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RegionRecord::revoke() {
  uses.revoke();
  pins_.fetch_or(kRevoked);
}

void RegionRecord::cut() {
  uses.revoke();
  pins_.fetch_or(kRevoked | kCut);
}

void RegionRecord::wait_unpinned() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (pins_.load() & kCount) == 0; });
}

Result<Handle> RegionTable::add(std::shared_ptr<RegionRecord> record) {
  const std::lock_guard lock(mutex_);
  const std::optional<Handle> id = records_.insert(std::move(record));
  if (!id)
    return Status(Code::kResourceExhausted,
                  str("this device has ", limits::kMaxRegions, " regions; close some"));
  return *id;
}

void RegionTable::remove(Handle id) {
  std::optional<std::shared_ptr<RegionRecord>> gone;  // freed outside the lock
  const std::lock_guard lock(mutex_);
  gone = records_.take(id);
}

std::shared_ptr<RegionRecord> RegionTable::find(Handle id, std::uint64_t key, Rights need,
                                                std::uint64_t offset, std::uint64_t length, Code& why) const {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<RegionRecord>* record = records_.find(id);
  if (record == nullptr) {
    why = Code::kNotFound;
    return nullptr;
  }
  if ((*record)->key != key || !allows((*record)->rights, need) ||
      !in_bounds(offset, length, (*record)->length_bytes)) {
    why = Code::kPermissionDenied;
    return nullptr;
  }
  return *record;
}

}  // namespace slime::transport::soft
