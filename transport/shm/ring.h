#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/limits.h"

namespace slime::transport::shm {

// The control fields of one direction, shared by two processes. Each field has cache lines of its
// own, so that a write of one field does not take the line of another field from the processor that
// reads it.
struct RingControl {
  static constexpr std::size_t kApart = 128;  // two lines: processors fetch them in pairs

  // written by the reader: number of bytes of the ring that it has freed since the beginning
  alignas(kApart) std::atomic<std::uint64_t> head{0};
  // written by the reader: 1 if it has parked, so that the writer must ring its bell
  alignas(kApart) std::atomic<std::uint32_t> parked{0};
  // written by the writer: 1 if it waits, so that the reader rings its bell when there is room
  alignas(kApart) std::atomic<std::uint32_t> full{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// A ring of `bytes` bytes (a power of two) carries a stream of bytes as records. A record begins at
// a multiple of 64 bytes with a word that has its length; its data follow, never across the end of
// the ring. The word is 0 until the record is complete: before completing a record, the writer
// clears the word after it. So a reader that waits looks at one cache line, which also has the
// first data bytes. While there is room, the writer touches no line that the reader writes.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
};

inline constexpr std::uint32_t kRingLine = 64;
inline constexpr std::uint32_t kRingWord = sizeof(std::uint64_t);
static_assert(limits::kRingRecordBytes % kRingLine == 0 &&
              limits::kRingRecordBytes <= limits::kRingBytes / 2);

// The only writer of a ring. Checks all values that the peer writes to the shared memory. Thread:
// one.
class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  // Writes as many of the gathered bytes as there is room for, from the beginning, and returns
  // their number; 0: the ring is full. kCorrupt if the peer's control fields have impossible
  // values.
  Result<std::size_t> write(std::span<const iovec> parts);
  // Returns whether there is room.
  Result<bool> has_room();
  // Returns true if the reader has parked, so that its bell must be rung. Call after writes, though
  // not after each write: the call waits until all written bytes are visible to the reader, which
  // takes longer than writing.
  [[nodiscard]] bool reader_parked() const;
  // Asks the reader to ring the bell when there is room, and returns true. If there is room
  // already, returns false and asks nothing.
  Result<bool> await_room();
  // If the ring is empty, gives its pages back to the kernel; the next use allocates them again.
  // Returns false if the ring is not empty.
  bool trim();

 private:
  Status look();
  template <class F>
  void put(std::uint32_t length, F fill);
  Result<std::size_t> write_pieces(std::span<const iovec> parts, std::size_t all);
  [[nodiscard]] std::uint32_t room() const;
  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t place) const;

  const RingMemory memory_;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;  // as last seen
};

// The only reader of a ring. Thread: one.
class RingReader {
 public:
  explicit RingReader(RingMemory memory) : memory_(memory) {}

  [[nodiscard]] bool readable() const { return left_ > 0 || word().load(std::memory_order_acquire) != 0; }
  // Reads into the parts from the beginning, as many bytes as there are, and returns their number;
  // 0: the ring is empty. kCorrupt if a record is impossible.
  Result<std::size_t> read(std::span<const iovec> parts);
  // Returns the unread rest of the first record. Empty if there is none, and if the record is
  // impossible, which read() then reports.
  Bytes peek();
  // Consumes `bytes` bytes of peek().
  void skip(std::size_t bytes);
  // Tells the writer to ring the bell from now on, because the reader stops looking. Returns false
  // if a record has arrived meanwhile: the reader then goes on looking.
  bool park();
  void unpark() { memory_.control->parked.store(0, std::memory_order_relaxed); }
  // Returns true, once for each time that the writer waits for room, when the writer must be told
  // that there may be room.
  bool writer_waits();

 private:
  [[nodiscard]] std::atomic_ref<std::uint64_t> word() const;
  bool begin_record(std::uint64_t length);
  void take(std::size_t bytes);
  void publish_head();

  const RingMemory memory_;
  std::uint64_t head_ = 0;
  const std::byte* from_ = nullptr;
  std::uint32_t left_ = 0;    // of the current record
  std::uint32_t record_ = 0;  // bytes of the ring that the current record takes
};

}  // namespace slime::transport::shm
