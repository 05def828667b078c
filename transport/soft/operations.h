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
// How the bytes of an operation move: over the wire, copied by this side, or read by the peer from
// this side's memory. kOpen: the peer has not said yet which of these are possible.
enum class Way { kOpen, kWire, kDirect, kFetch };

// A posted one-sided operation.
struct OneSided {
  // Constructs by member. As an aggregate, the record would first be cleared as a whole, with an
  // instruction that waits for the copy before.
  explicit OneSided(Kind kind, std::span<const CopyBlock> copies = {}) : kind(kind), copies(copies) {}

  Operation* operation = nullptr;
  TimeBounds bounds;
  std::uint64_t sequence = 0;
  Kind kind;
  Way way = Way::kOpen;
  std::span<const CopyBlock> copies;  // of a read or a write
  std::optional<CopyBlock> number;    // of an atomic: its 8 bytes at both sides
  std::uint64_t value = 0;            // of an atomic: the number to add or to store
  std::uint64_t expected = 0;         // operand of a compare_swap
  std::size_t next_copy = 0;          // the first copy that is not completely sent, asked for, or made
  std::uint64_t copy_offset = 0;      // bytes of that copy that are
  std::uint32_t asked = 0;            // requests without a complete answer
  std::uint32_t imm = 0;
  bool has_imm = false;
  bool started = false;  // the peer may know of it
  bool sent = false;     // all frames of a write are handed to the wire: its ack may come
  bool starved = false;
  bool fetched = false;  // of a read: the kernel copied a part from memory that is not mapped
  Code failure = Code::kOk;

  [[nodiscard]] bool atomic() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }
  // Valid until the record moves.
  [[nodiscard]] std::span<const CopyBlock> blocks() const { return number ? std::span(&*number, 1) : copies; }
  [[nodiscard]] Rights need() const {
    if (atomic()) return Rights::kReadWrite;
    return kind == Kind::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
  }
  // Goes on to the next copy that has bytes. Returns true if there is none.
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

// Returns the status of an operation that the peer has refused with `failure`.
Status refused_by_peer(const OneSided& operation, std::string_view peer_name);

// The record of the local region of a copy.
RegionRecord& record_of(const CopyBlock& copy);
const std::shared_ptr<RegionRecord>& shared_record_of(const CopyBlock& copy);

// The posted one-sided operations, and their order. Thread: the loop.
class OneSidedTable {
 public:
  // Adds an operation; the uses of its regions are counted already.
  void add(OneSided& record);
  // Returns null for an operation that has completed.
  OneSided* find(Handle handle) { return records_.find(handle); }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  SlotMap<OneSided>& records() { return records_; }
  // Removes an operation and releases its regions. The caller completes it.
  Operation& take(Handle handle);
  // Releases the regions of all operations, and drops the callers' lists of copies.
  void let_go();
  // Returns whether an operation uses the region.
  bool use(const RegionUses& uses);

  // Operations that are not completely staged or asked for, in order. May contain completed ones.
  Queue<Handle>& writes() { return writes_; }
  Queue<Handle>& requests() { return requests_; }

  // Returns a barrier behind the operations posted so far.
  [[nodiscard]] std::uint64_t barrier() const { return next_sequence_; }
  // Returns whether all writes before the barrier are staged, and all requests completed.
  bool barrier_passed(std::uint64_t barrier) { return barrier == 0 || none_before(barrier); }

 private:
  bool none_before(std::uint64_t barrier);

  SlotMap<OneSided> records_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
  Queue<Handle> writes_;
  Queue<Handle> requests_;
  Queue<Handle> open_requests_;  // not completed, in order; completed ones are skipped
};

}  // namespace slime::transport::soft
