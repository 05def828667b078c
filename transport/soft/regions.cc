#include "transport/soft/regions.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/check.h"
#include "base/str.h"

namespace slime::transport::soft {

bool RegionRecord::pin(std::uint64_t refusing) {
  if ((pins_.fetch_add(1) & refusing) == 0) return true;
  unpin();
  return false;
}

// Waits for the thread that has dropped the last pin: it may still hold the mutex.
RegionRecord::~RegionRecord() { const MutexLock lock(mutex_); }

void RegionRecord::unpin() {
  std::uint64_t before = pins_.load();
  while ((before & (kRevoked | kCut)) == 0) {
    if (pins_.compare_exchange_weak(before, before - 1)) return;
  }
  // The mutex serves two purposes. A waiter cannot miss this change between its check and its wait.
  // And the destructor, which may run as soon as no pin is left, waits until this lock is released.
  const MutexLock lock(mutex_);
  if ((pins_.fetch_sub(1) & kCount) == 1) changed_.notify_all();
}

void RegionRecord::revoke() {
  uses.revoke();
  pins_.fetch_or(kRevoked);
  const MutexLock lock(mutex_);
  for (const std::shared_ptr<Loan>& loan : loans_) loan->revoke();
}

Result<Lent> RegionRecord::lend(std::shared_ptr<Loan> loan) {
  if (rights == Rights::kLocal)
    return Status(Code::kPermissionDenied, "a region that is for its owner alone");
  if (memory_fd < 0 && !fetchable())
    return Status(Code::kUnimplemented, "memory that the kernel reads for nobody");
  const Pin pin = Pin::for_peer(*this);
  if (!pin) return Status(Code::kNotFound, "a region that is closed");
  Lent out;
  out.length_bytes = length_bytes;
  out.rights = rights;
  if (memory_fd < 0) {
    out.address = reinterpret_cast<std::uintptr_t>(data);
  } else {
    // Opens the memfd anew, because a duplicated descriptor would have all rights of the original
    // one.
    const int access = allows(rights, Rights::kRemoteWrite) ? O_RDWR : O_RDONLY;
    out.memory = UniqueFd(::open(str("/proc/self/fd/", memory_fd).c_str(), access | O_CLOEXEC));
    if (!out.memory.valid()) return from_errno("opening a memfd once more", errno);
  }
  const MutexLock lock(mutex_);
  if (revoked()) return Status(Code::kNotFound, "a region that is closed");
  std::erase_if(loans_, [](const std::shared_ptr<Loan>& old) { return old->over(); });
  loans_.push_back(std::move(loan));
  return out;
}

// Tests only the first and the last byte: one mapping is readable as a whole or not at all. If the
// region has several mappings and one between the ends is not readable, the peer's copy fails
// later.
bool RegionRecord::fetchable() {
  int known = fetchable_.load(std::memory_order_relaxed);
  if (known < 0) {
    std::array<std::byte, 2> ends;
    const iovec here{ends.data(), ends.size()};
    const std::array there{iovec{data, 1}, iovec{data + length_bytes - 1, 1}};
    known = ::process_vm_readv(::getpid(), &here, 1, there.data(), there.size(), 0) == 2 ? 1 : 0;
    fetchable_.store(known, std::memory_order_relaxed);
  }
  return known == 1;
}

bool RegionRecord::wait_returned(TimePoint deadline) {
  SLIME_CHECK(revoked());
  for (;;) {
    {
      const MutexLock lock(mutex_);
      std::erase_if(loans_, [](const std::shared_ptr<Loan>& loan) { return !loan->busy(); });
      if (loans_.empty()) return true;
    }
    if (steady_clock().now() >= deadline) return false;
    // Polls, because the peer sends no event at the end of its copy, which takes less time than a
    // wake-up.
    std::this_thread::sleep_for(limits::kLoanLook);
  }
}

void RegionRecord::let_go() {
  SLIME_CHECK(revoked());
  const MutexLock lock(mutex_);
  for (const std::shared_ptr<Loan>& loan : loans_) loan->let_go();
  loans_.clear();
}

void RegionRecord::cut() {
  uses.revoke();
  pins_.fetch_or(kRevoked | kCut);
}

void RegionRecord::wait_unpinned() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this] { return (pins_.load() & kCount) == 0; });
}

Result<Handle> RegionTable::add(std::shared_ptr<RegionRecord> record) {
  const MutexLock lock(mutex_);
  const std::optional<Handle> id = records_.insert(std::move(record));
  if (!id)
    return Status(Code::kResourceExhausted,
                  str("this device has ", limits::kMaxRegions, " regions; close some"));
  return *id;
}

Result<Lent> RegionTable::lend(Handle id, std::uint64_t key, std::shared_ptr<Loan> loan) {
  Code why = Code::kOk;
  const std::shared_ptr<RegionRecord> record = find(id, key, Rights::kLocal, 0, 0, why);
  if (record == nullptr) return Status(why, "a region that the peer cannot name");
  return record->lend(std::move(loan));
}

void RegionTable::remove(Handle id) {
  std::optional<std::shared_ptr<RegionRecord>> gone;  // freed outside the lock
  const MutexLock lock(mutex_);
  gone = records_.take(id);
}

std::shared_ptr<RegionRecord> RegionTable::find(Handle id, std::uint64_t key, Rights need,
                                                std::uint64_t offset, std::uint64_t length, Code& why) const {
  const MutexLock lock(mutex_);
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
