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
// How the bytes of an operation move. kWire: over the wire. kDirect: this side copies them. kFetch:
// the peer reads them from this side's memory. kOpen: not decided, because the peer has not said
// yet what is possible.
enum class Way { kOpen, kWire, kDirect, kFetch };

// A posted one-sided operation.
struct OneSided {
  // This constructor is faster than aggregate initialization, which would first clear the whole
  // record, with an instruction that waits until an earlier copy of data has finished.
  explicit OneSided(Kind kind, std::span<const CopyBlock> copies = {}) : kind(kind), copies(copies) {}

  Operation* operation = nullptr;
  TimeBounds bounds;
  std::uint64_t sequence = 0;
  Kind kind;
  Way way = Way::kOpen;
  std::span<const CopyBlock> copies;  // of a read or a write
  std::optional<CopyBlock> number;    // the 8 bytes of an atomic, on both sides
  std::uint64_t value = 0;            // number that an atomic adds or stores
  std::uint64_t expected = 0;         // operand of a compare_swap
  std::size_t next_copy = 0;          // first of `copies` that is not completely sent, requested, or copied
  std::uint64_t copy_offset = 0;      // bytes of copies[next_copy] that are sent or copied already
  std::uint32_t asked = 0;            // requests without a complete answer
  std::uint32_t imm = 0;
  bool one_pair = false;  // all of `copies` name the same two regions
  bool has_imm = false;
  bool started = false;  // the peer may know of it
  bool sent = false;     // the wire has taken all frames of this write, so its ack may come
  bool starved = false;
  bool fetched = false;  // the kernel has copied a part of this read from the peer's memory
  Code failure = Code::kOk;

  [[nodiscard]] bool atomic() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }
  // Valid until the record moves.
  [[nodiscard]] std::span<const CopyBlock> blocks() const { return number ? std::span(&*number, 1) : copies; }
  // Returns blocks that name all of its regions.
  [[nodiscard]] std::span<const CopyBlock> regions() const { return one_pair ? copies.first(1) : blocks(); }
  [[nodiscard]] Rights need() const {
    if (atomic()) return Rights::kReadWrite;
    return kind == Kind::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
  }
  // Skips copies without bytes. Returns true if no copy is left.
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

// Returns the error of an operation whose `failure` is the code of the peer's refusal.
Status refused_by_peer(const OneSided& operation, std::string_view peer_name);

// Return the record of the local region of `copy`.
RegionRecord& record_of(const CopyBlock& copy);
const std::shared_ptr<RegionRecord>& shared_record_of(const CopyBlock& copy);

// The posted one-sided operations, in order of their posts. Thread: the loop.
class OneSidedTable {
 public:
  // Adds an operation, and sets its sequence number. The uses of its regions must have been
  // counted.
  void add(OneSided& record);
  // Returns the operation, or null if it has completed.
  OneSided* find(Handle handle) { return records_.find(handle); }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  SlotMap<OneSided>& records() { return records_; }
  // Removes an operation and releases the uses of its regions. Returns the caller's Operation, to
  // be completed.
  Operation& take(Handle handle);
  // Releases the uses of all regions, and forgets the callers' lists of copies, which may then be
  // freed.
  void let_go();
  // Returns whether an operation uses the region.
  bool use(const RegionUses& uses);

  // writes(): writes that are not completely staged. requests(): reads and atomics that are not
  // completely requested. Both are in order, and may have handles of completed operations.
  Queue<Handle>& writes() { return writes_; }
  Queue<Handle>& requests() { return requests_; }

  // Returns a barrier that lies after all operations posted so far.
  [[nodiscard]] std::uint64_t barrier() const { return next_sequence_; }
  // Returns true if all writes before the barrier are staged, and all reads and atomics before it
  // have completed.
  bool barrier_passed(std::uint64_t barrier) { return barrier == 0 || none_before(barrier); }

 private:
  bool none_before(std::uint64_t barrier);

  SlotMap<OneSided> records_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
  Queue<Handle> writes_;
  Queue<Handle> requests_;
  // reads and atomics that have not completed, in order; completed ones are removed late
  Queue<Handle> open_requests_;
};

}  // namespace slime::transport::soft
