#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "transport/limits.h"
#include "transport/memory.h"
#include "transport/operation.h"
#include "transport/queue.h"
#include "transport/soft/regions.h"
#include "transport/time_bounds.h"

namespace slime::transport::soft {

enum class Kind { kWrite, kRead, kFetchAdd, kCompareSwap };
// How an operation's bytes get there: over the wire, copied by this side, or by the peer out of this
// side's memory; open: the peer has not said yet which of them can be.
enum class Way { kOpen, kWire, kDirect, kFetch };

// A posted one-sided operation.
struct OneSided {
  // By member: as an aggregate it is cleared as a whole first, with an instruction that waits for the copy
  // before.
  explicit OneSided(Kind kind, std::span<const CopyBlock> copies = {}) : kind(kind), copies(copies) {}

  Operation* operation = nullptr;
  TimeBounds bounds;
  std::uint64_t sequence = 0;
  Kind kind;
  Way way = Way::kOpen;
  std::span<const CopyBlock> copies;  // of a read or a write
  std::optional<CopyBlock> number;    // of an atomic: its 8 bytes on both sides
  std::uint64_t value = 0;            // of an atomic: what to add, or to store
  std::uint64_t expected = 0;         // of a compare_swap
  std::size_t next_copy = 0;          // the first copy that is not wholly sent, asked for, or made
  std::uint64_t copy_offset = 0;      // bytes of it that are
  std::uint32_t asked = 0;            // requests that are not answered wholly
  std::uint32_t imm = 0;
  bool has_imm = false;
  bool started = false;  // the peer may know of it
  bool sent = false;     // all frames of a write are handed over: its ack may come
  bool starved = false;
  bool fetched = false;  // of a read: some of it was, and not mapped
  Code failure = Code::kOk;

  [[nodiscard]] bool atomic() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }
  // Valid until the record moves.
  [[nodiscard]] std::span<const CopyBlock> blocks() const { return number ? std::span(&*number, 1) : copies; }
  [[nodiscard]] Rights need() const {
    if (atomic()) return Rights::kReadWrite;
    return kind == Kind::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
  }
  // Goes on to the next copy that has bytes. True: there is none.
  bool skip_empty() {
    while (next_copy < copies.size() && copies[next_copy].length_bytes == 0) ++next_copy;
    return next_copy == copies.size();
  }
  // Goes back to the first copy.
  void restart() {
    next_copy = 0;
    copy_offset = 0;
  }
};

// What an operation with a `failure` of the peer's ends with.
Status refused_by_peer(const OneSided& operation, std::string_view peer_name);

// The record of the local region of a copy.
RegionRecord& record_of(const CopyBlock& copy);
const std::shared_ptr<RegionRecord>& shared_record_of(const CopyBlock& copy);

// The posted one-sided operations, and their order. Thread: the loop.
class OneSidedTable {
 public:
  // Takes in an operation whose regions' uses are counted.
  void add(OneSided& record);
  // Null for an operation that has completed.
  OneSided* find(Handle handle) { return records_.find(handle); }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  SlotMap<OneSided>& records() { return records_; }
  // Forgets an operation and lets go of its regions; to be completed.
  Operation& take(Handle handle);
  // All operations let go of their regions, and of the caller's copies.
  void let_go();
  // Returns whether an operation uses the region.
  bool use(const RegionUses& uses);

  // Not wholly staged or asked for, in order; entries of completed operations may be among them.
  Queue<Handle>& writes() { return writes_; }
  Queue<Handle>& requests() { return requests_; }

  // The operations posted so far come before this barrier.
  [[nodiscard]] std::uint64_t barrier() const { return next_sequence_; }
  // Returns whether all writes before the barrier are staged, and all requests completed.
  bool barrier_passed(std::uint64_t barrier) { return barrier == 0 || none_before(barrier); }

 private:
  bool none_before(std::uint64_t barrier);

  SlotMap<OneSided> records_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
  Queue<Handle> writes_;
  Queue<Handle> requests_;
  Queue<Handle> open_requests_;  // those not completed, in order; stale ones are skipped
};

}  // namespace slime::transport::soft
