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

// One registration as the engine sees it. Thread: any.
//
// Two kinds of use keep revocation final. A *pin* is held during one call to the wire that touches
// the memory, so it is short and never spans a callback. A *use* is held by an operation of ours
// from its post to its end. revoke() refuses new uses and all pins of peers; cut() refuses every
// pin. After cut() and wait_unpinned() no code here touches the memory any more. A *loan* lets a
// peer copy by itself; loans that are left are waited for last.
class RegionRecord {
 public:
  // `memory_fd`: the memfd of the memory, which must stay open until wait_unpinned() has returned;
  // -1 for memory that is not ours.
  RegionRecord(std::byte* data, std::uint64_t length_bytes, Rights rights, std::uint64_t key,
               int memory_fd = -1)
      : data(data), length_bytes(length_bytes), rights(rights), key(key), memory_fd(memory_fd) {}
  RegionRecord(const RegionRecord&) = delete;
  RegionRecord& operator=(const RegionRecord&) = delete;
  // May be called as soon as wait_unpinned() has returned.
  ~RegionRecord();

  std::byte* const data;
  const std::uint64_t length_bytes;
  const Rights rights;
  const std::uint64_t key;
  const int memory_fd;

  // Returns whether the kernel reads the memory for other processes, which it does not for a
  // device's memory. Asks the kernel once, for the whole memory.
  [[nodiscard]] bool fetchable();
  // Lends the memory to a peer, until revoke().
  Result<Lent> lend(std::shared_ptr<Loan> loan);
  // Call only after revoke(). Returns false if peers are inside copies at `deadline` of the steady
  // clock.
  bool wait_returned(TimePoint deadline);
  // Call only after revoke(): the memory has other pages, and no thread waits for those peers any
  // more.
  void let_go();

  // Return false once the region is revoked (for peers) or cut (for own operations): then the
  // memory must not be touched.
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

// The regions of one device that peers may name. Thread: any.
class RegionTable final : public Lender {
 public:
  // Returns kResourceExhausted if the device has too many regions.
  Result<Handle> add(std::shared_ptr<RegionRecord> record);
  void remove(Handle id);
  Result<Lent> lend(Handle id, std::uint64_t key, std::shared_ptr<Loan> loan) override;
  // Returns the record of a region that a peer uses with `need`, or the reason of a refusal:
  // kNotFound, kPermissionDenied.
  std::shared_ptr<RegionRecord> find(Handle id, std::uint64_t key, Rights need, std::uint64_t offset,
                                     std::uint64_t length, Code& why) const;

 private:
  mutable Mutex mutex_;
  SlotMap<std::shared_ptr<RegionRecord>> records_ SLIME_GUARDED_BY(mutex_){limits::kMaxRegions};
};

// Holds one pin; empty if the region refused it.
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
