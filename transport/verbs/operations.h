#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/status.h"
#include "transport/limits.h"
#include "transport/memory.h"
#include "transport/operation.h"
#include "transport/region_uses.h"
#include "transport/time_bounds.h"

namespace slime::transport::verbs {

enum class Kind : std::uint8_t { kRead, kWrite, kFetchAdd, kCompareSwap };

// Returns the rights that the peer's region must give for an operation of this kind.
[[nodiscard]] inline Rights rights_for(Kind kind) {
  if (kind >= Kind::kFetchAdd) return Rights::kReadWrite;
  return kind == Kind::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
}

// A posted one-sided operation, and how much of it was handed to the device.
struct OneSided {
  // Sets the members that have initializers, and no other byte: a defaulted constructor would zero
  // the whole record before.
  OneSided() {}  // NOLINT(modernize-use-equals-default)

  Handle self;
  Operation* operation = nullptr;
  TimeBounds bounds;
  std::uint64_t sequence = 0;
  std::span<const CopyBlock> batch;  // of a read or a write
  struct Atomic {
    CopyBlock copy;  // the 8 bytes of the atomic: local and remote place
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
  };
  std::optional<Atomic> atomic;
  std::size_t next_copy = 0;      // index of the first copy that is not completely posted
  std::uint64_t copy_offset = 0;  // bytes of that copy that are posted
  std::uint32_t in_flight = 0;    // work requests
  std::uint32_t imm = 0;
  Kind kind = Kind::kWrite;
  bool has_imm = false;
  bool striped = false;
  // A batch of many small reads goes to the data queue pairs in chunks of this many work requests,
  // one chunk after the other; 0: to one queue pair.
  std::uint32_t chunk = 0;
  std::uint32_t chunk_left = 0;  // of the current chunk, still to be posted
  std::uint32_t chunk_lane = 0;  // the data queue pair that has the current chunk
  bool flush_read = false;       // still to be posted: the flushing read
  bool has_imm_posted = false;
  bool moved = false;     // a byte was posted
  bool started = false;   // the device knows of it
  bool posted = false;    // wholly
  bool reported = false;  // as stuck
  bool left = false;      // the device has finished with it, and its regions are released
  Status failure;

  [[nodiscard]] bool succeeded() const { return posted && in_flight == 0 && failure.ok(); }
  // Valid until the record moves.
  [[nodiscard]] std::span<const CopyBlock> copies() const {
    if (left) return {};
    return atomic ? std::span(&atomic->copy, 1) : batch;
  }
  // Gives the lane the next chunk if no lane has one. Returns whether the current chunk is the
  // lane's. Only for operations with chunks.
  bool claim_chunk(std::uint32_t lane) {
    if (chunk_left == 0) {
      chunk_left = chunk;
      chunk_lane = lane;
    }
    return chunk_lane == lane;
  }
  // Moves next_copy to the next copy that has bytes. Returns true if no copy is left.
  bool skip_empty() {
    const std::span<const CopyBlock> all = copies();
    while (next_copy < all.size() && all[next_copy].length_bytes == 0) ++next_copy;
    return next_copy == all.size();
  }
};

// The posted one-sided operations. Thread: the loop.
class OneSidedTable {
 public:
  // Adds an operation, for which the caller has counted the uses of its regions. Pointers to the
  // records of other operations become invalid.
  OneSided& add(Operation& operation, Kind kind, std::span<const CopyBlock> copies);
  // Returns the record of an operation; null if the operation has completed.
  OneSided* find(Handle handle) { return records_.find(handle); }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  SlotMap<OneSided>& records() { return records_; }
  // Removes the record `done` and releases the regions of its operation. The caller completes the
  // returned Operation.
  Operation& take(OneSided& done);
  // Releases the regions of all operations, and stops using the callers' lists of copies.
  void let_go();
  // Returns whether an operation uses the region.
  [[nodiscard]] bool use(const RegionUses* uses);
  // Returns whether the device may still access memory of any operation.
  [[nodiscard]] bool at_device();

  // Returns a mark behind all operations posted so far, for barrier_passed().
  [[nodiscard]] std::uint64_t barrier() const { return next_sequence_; }
  // Returns whether all operations that were posted before the mark `barrier` have completed. True
  // for 0.
  [[nodiscard]] bool barrier_passed(std::uint64_t barrier) { return barrier == 0 || none_before(barrier); }

 private:
  bool none_before(std::uint64_t barrier);

  SlotMap<OneSided> records_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
};

}  // namespace slime::transport::verbs
