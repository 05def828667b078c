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

// The control fields that two processes share for one direction. Each field has its own cache
// lines: a write of one field must not take the line of another field from its reader.
struct RingControl {
  static constexpr std::size_t kApart = 128;  // two lines: processors fetch them in pairs

  // by the reader: number of bytes that it has taken
  alignas(kApart) std::atomic<std::uint64_t> head{0};
  alignas(kApart) std::atomic<std::uint32_t> parked{0};  // by the reader: it has parked; ring its bell
  alignas(kApart) std::atomic<std::uint32_t> full{
      0};  // by the writer: it waits; ring its bell when there is room
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// A ring of `bytes` (a power of two) carries a stream of bytes as records. A record begins at a
// multiple of 64: a word with its length, then so many bytes, never across the end of the ring.
// The word is 0 until the record is complete; before the writer completes a record, it clears the
// word behind it. So the reader looks at one line, which has the first bytes, too, and the writer
// at no line of the reader while there is room.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
};

inline constexpr std::uint32_t kRingLine = 64;
inline constexpr std::uint32_t kRingWord = sizeof(std::uint64_t);
static_assert(limits::kRingRecordBytes % kRingLine == 0 &&
              limits::kRingRecordBytes <= limits::kRingBytes / 2);

// The only writer of a ring. Checks everything that the side of the peer says in the memory.
// Thread: one.
class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  // Takes a prefix of the gathered bytes, as much as there is room for; 0: full. kCorrupt when the
  // control fields of the peer are impossible.
  Result<std::size_t> write(std::span<const iovec> parts);
  // Returns whether there is room.
  Result<bool> has_room();
  // Returns true if the reader has parked: then ring its bell. Ask after a write, though not after
  // each: the call waits until all written bytes are visible to the reader, which takes longer
  // than writing.
  [[nodiscard]] bool reader_parked() const;
  // Asks the reader to ring when there is room. Returns false, without asking, if there is room.
  Result<bool> await_room();
  // Gives the pages of the ring back to the kernel if the ring is empty; they come again at the
  // next use. Returns false if the ring is not empty.
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
  // Fills a prefix of the parts; 0: nothing is there. kCorrupt when a record is impossible.
  Result<std::size_t> read(std::span<const iovec> parts);
  // Returns the rest of the first record; empty also if that record is impossible, which read()
  // reports.
  Bytes peek();
  // Takes so many bytes of peek().
  void skip(std::size_t bytes);
  // Says that the reader stops looking. Returns false if something has come: then keep looking.
  bool park();
  void unpark() { memory_.control->parked.store(0, std::memory_order_relaxed); }
  // Returns true, once for each time, if the writer waits for room and there is room now.
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
  std::uint32_t record_ = 0;  // the room that it takes in the ring
};

}  // namespace slime::transport::shm
