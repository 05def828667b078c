#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "transport/copy_checks.h"
#include "transport/memory.h"
#include "transport/peer_memory.h"
#include "transport/region_uses.h"

namespace slime::transport::soft {

// One registration, as the software engine uses it. Thread: any.
//
// Each access to the memory holds a pin, a use or a loan, so that closing the region can wait for
// its end. A *pin* is held during one call to the wire that touches the memory; it is short and
// spans no callback. A *use* is held by an operation of this side from its post to its end. A
// *loan* lets a peer on the same host copy by itself. revoke() refuses new uses and loans, and the
// pins of peers; cut() refuses all pins. After cut() and wait_unpinned() this process no longer
// touches the memory. Loans are waited for last.
class RegionRecord {
 public:
  // `memory_fd`: the memfd of the memory, which must stay open until wait_unpinned() has returned;
  // -1 for memory that the caller owns.
  RegionRecord(std::byte* data, std::uint64_t length_bytes, Rights rights, std::uint64_t key,
               int memory_fd = -1)
      : data(data), length_bytes(length_bytes), rights(rights), key(key), memory_fd(memory_fd) {}
  RegionRecord(const RegionRecord&) = delete;
  RegionRecord& operator=(const RegionRecord&) = delete;
  // The destructor may be called as soon as wait_unpinned() has returned.
  ~RegionRecord();

  std::byte* const data;
  const std::uint64_t length_bytes;
  const Rights rights;
  const std::uint64_t key;
  const int memory_fd;

  // Returns whether the kernel reads the memory for other processes, which it does not for the
  // memory of a device. Asks the kernel only the first time.
  [[nodiscard]] bool fetchable();
  // Lends the memory to a peer on the same host, until revoke().
  Result<Lent> lend(std::shared_ptr<Loan> loan);
  // Waits until no peer is inside a copy of the memory; call only after revoke(). Returns false if
  // some still are at `deadline` of the steady clock.
  bool wait_returned(TimePoint deadline);
  // Ends the remaining loans; call only after revoke(), when the memory has got other pages. The
  // peers that are still inside a copy are not waited for any more.
  void let_go();

  // Pin the memory for a call to the wire. Return false after revoke() (pin_for_peer) or cut()
  // (both): then the memory must not be touched.
  bool pin_for_peer() { return pin(kRevoked | kCut); }
  bool pin_for_own() { return pin(kCut); }
  void unpin();

  RegionUses uses;

  void revoke();
  void cut();
  void wait_unpinned();
  [[nodiscard]] bool revoked() const { return uses.revoked(); }

 private:
  static constexpr std::uint64_t kRevoked = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kCut = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kCount = kCut - 1;

  bool pin(std::uint64_t refusing);

  std::atomic<std::uint64_t> pins_{0};  // the count and the two flags
  std::atomic<int> fetchable_{-1};      // -1: not asked yet
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Loan>> loans_ SLIME_GUARDED_BY(mutex_);
};

// The regions of one device, by handle. Peers may name them. Thread: any.
class RegionTable final : public Lender {
 public:
  // Adds a region. Returns kResourceExhausted if the device has too many regions.
  Result<Handle> add(std::shared_ptr<RegionRecord> record);
  void remove(Handle id);
  Result<Lent> lend(Handle id, std::uint64_t key, std::shared_ptr<Loan> loan) override;
  // Returns the record of the region that a peer wants to use with the right `need`. If this is
  // refused, returns null and sets `why`: kNotFound, or kPermissionDenied (key, rights or bounds).
  std::shared_ptr<RegionRecord> find(Handle id, std::uint64_t key, Rights need, std::uint64_t offset,
                                     std::uint64_t length, Code& why) const;

 private:
  mutable Mutex mutex_;
  SlotMap<std::shared_ptr<RegionRecord>> records_ SLIME_GUARDED_BY(mutex_){limits::kMaxRegions};
};

// Holds one pin of a region, and releases it at the end. Empty if the region refused the pin.
class Pin {
 public:
  Pin() = default;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  Pin(Pin&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      reset();
      record_ = std::exchange(other.record_, nullptr);
    }
    return *this;
  }
  ~Pin() { reset(); }
  static Pin for_peer(RegionRecord& record) { return Pin(record.pin_for_peer() ? &record : nullptr); }
  static Pin for_own(RegionRecord& record) { return Pin(record.pin_for_own() ? &record : nullptr); }
  explicit operator bool() const { return record_ != nullptr; }

 private:
  explicit Pin(RegionRecord* record) : record_(record) {}
  void reset() {
    if (record_ != nullptr) record_->unpin();
    record_ = nullptr;
  }
  RegionRecord* record_ = nullptr;
};

}  // namespace slime::transport::soft
