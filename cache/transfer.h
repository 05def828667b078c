#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "agent/peer_agent.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "cache/checksum.h"
#include "cache/store.h"

namespace slime::cache {

// Registered buffers of one size, allocated when first needed and kept. Thread: any.
class StagingPool {
 public:
  // A buffer of the pool, to which the destructor returns it.
  class Buffer {
   public:
    Buffer(StagingPool& pool, std::size_t index) : pool_(&pool), index_(index) {}
    Buffer(Buffer&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
      if (pool_ != nullptr) pool_->give_back(index_);
    }
    [[nodiscard]] const MemoryRegion& region() const { return pool_->buffers_[index_]; }

   private:
    StagingPool* pool_;
    std::size_t index_;
  };

  StagingPool(PeerAgent& agent, std::size_t buffers, std::size_t buffer_bytes)
      : agent_(agent), limit_(buffers), buffer_bytes_(buffer_bytes) {
    buffers_.reserve(limit_);  // elements never move
  }
  // Waits up to `bound` for a free buffer. A zero `bound` never waits: returns kResourceExhausted
  // if no buffer is free. A thread that holds a buffer must not wait for another.
  Result<Buffer> acquire(Nanos bound);
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_bytes_; }

 private:
  void give_back(std::size_t index);

  PeerAgent& agent_;
  const std::size_t limit_;
  const std::size_t buffer_bytes_;
  Mutex mutex_;
  CondVar freed_;
  std::vector<MemoryRegion> buffers_;  // grows under the lock
  std::vector<std::size_t> free_ SLIME_GUARDED_BY(mutex_);
  std::size_t made_ SLIME_GUARDED_BY(mutex_) = 0;
};

// One object to copy between local memory and the arena.
struct Haul {
  // In.
  std::string_view space;
  std::string_view key;
  std::uint64_t version = 0;
  const std::byte* source = nullptr;  // for a write
  std::byte* target = nullptr;        // for a read
  // the region of source or target; null: the bytes go through staging
  const MemoryRegion* region = nullptr;
  std::vector<Extent> extents;
  std::uint64_t length = 0;
  // Out: the checksum of the copied bytes, if the status is OK.
  std::uint64_t checksum = 0;
  Status status;
};

// Copies the bytes of many objects with few one-sided operations. While operations are in flight,
// this thread copies and checksums the bytes of earlier and later operations. run() returns when no
// operation is in flight. Thread: the caller's, which waits.
class Transfer {
 public:
  enum class Direction : std::uint8_t { kWrite, kRead };
  Transfer(Peer peer, StagingPool& staging, Nanos timeout)
      : peer_(std::move(peer)), staging_(staging), timeout_(timeout) {}

  void run(Direction direction, const RemoteRegion& arena, std::span<Haul> hauls);

 private:
  // A part of an object within one extent.
  struct Piece {
    Haul* haul = nullptr;
    std::uint64_t at = 0;  // offset in the object
    std::uint64_t remote = 0;
    std::uint64_t length = 0;
    std::optional<std::uint64_t> staged;  // offset in the staging buffer
  };
  // One posted operation.
  struct Flight {
    std::optional<StagingPool::Buffer> buffer;
    std::vector<Piece> pieces;
    Future<None> done;
  };

  Flight load();
  bool get_buffer(Flight& flight);
  void post(Flight flight);
  void land();
  void add_up(const Piece& piece, const std::byte* bytes);

  Peer peer_;
  StagingPool& staging_;
  const Nanos timeout_;
  Direction direction_ = Direction::kWrite;
  const RemoteRegion* arena_ = nullptr;
  std::span<Haul> rest_;    // hauls that are not fully loaded yet
  std::size_t extent_ = 0;  // of the first haul of rest_
  std::uint64_t in_extent_ = 0;
  std::uint64_t at_ = 0;
  std::deque<Flight> in_flight_;
  Checksum sum_;
  Status error_;  // the first error: no operation is posted after it
};

}  // namespace slime::cache
