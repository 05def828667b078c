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

// What two processes share of one direction. Each field has its own lines: whoever writes one must not take
// the line away from whoever reads the next.
struct RingControl {
  static constexpr std::size_t kApart = 128;  // two lines: processors fetch them in pairs

  alignas(kApart) std::atomic<std::uint64_t> head{0};    // by the reader: what it has taken out
  alignas(kApart) std::atomic<std::uint32_t> parked{0};  // by the reader: it does not look, ring its bell
  alignas(kApart) std::atomic<std::uint32_t> full{0};    // by the writer: ring its bell when there is room
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// A ring of `bytes` (a power of two) carries a stream of bytes as records. A record begins at a multiple of
// 64: a word with its length, then so many bytes, never across the end of the ring. The word is 0 until the
// record is complete, and whoever completes one has cleared the word behind it before. So the reader looks at
// one line, where the first bytes are as well, and the writer at none of the reader's while it has room.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
};

inline constexpr std::uint32_t kRingLine = 64;
inline constexpr std::uint32_t kRingWord = sizeof(std::uint64_t);
static_assert(limits::kRingRecordBytes % kRingLine == 0 &&
              limits::kRingRecordBytes <= limits::kRingBytes / 2);

// The only writer of a ring. What the peer's side of the memory says is checked, never trusted. Thread: one.
class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  // Takes a prefix of the gathered bytes, as much as there is room for; 0: full. kCorrupt when the peer says
  // what cannot be.
  Result<std::size_t> write(std::span<const iovec> parts);
  // There is room for something again.
  Result<bool> has_room();
  // The reader has parked and must hear of what was written. Has to be asked after a write, though not after
  // each: it waits until all that was written is there for the reader, which takes longer than writing.
  [[nodiscard]] bool reader_parked() const;
  // Asks to hear of room. False: there is some, and nothing was asked.
  Result<bool> await_room();
  // Gives the ring's pages back to the kernel, if nothing is in it; they come again when they are used.
  // False: something is.
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
  // Fills a prefix of the parts; 0: nothing is there. kCorrupt when a record cannot be.
  Result<std::size_t> read(std::span<const iovec> parts);
  // What is left of the first record; empty also when that cannot be, which read() then says.
  Bytes peek();
  // Takes so many bytes of that.
  void skip(std::size_t bytes);
  // Says that nobody looks any more. False: something has come, and somebody still has to.
  bool park();
  void unpark() { memory_.control->parked.store(0, std::memory_order_relaxed); }
  // The writer waits for the room that there is now; true once for each time it does.
  bool writer_waits();

 private:
  [[nodiscard]] std::atomic_ref<std::uint64_t> word() const;
  bool begin_record(std::uint64_t length);
  void take(std::size_t bytes);
  void publish_head();

  const RingMemory memory_;
  std::uint64_t head_ = 0;
  const std::byte* from_ = nullptr;
  std::uint32_t left_ = 0;    // of the record that was begun
  std::uint32_t record_ = 0;  // what it takes of the ring
};

}  // namespace slime::transport::shm
