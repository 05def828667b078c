#include "transport/shm/ring.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/copy.h"
#include "base/fence.h"
#include "base/str.h"

#if SLIME_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace slime::transport::shm {
namespace {

// If both ends are in one process, the ring is mapped at two addresses, which the thread sanitizer
// takes for different memory. These functions tell the sanitizer that one end sees what the other
// end has published.
#if SLIME_THREAD_SANITIZER
char published;
void tell_published() { __tsan_release(&published); }
void tell_seen() { __tsan_acquire(&published); }
// The sanitizer does not know fences either.
constexpr std::memory_order kPublish = std::memory_order_seq_cst;
#else
void tell_published() {}
void tell_seen() {}
constexpr std::memory_order kPublish = std::memory_order_release;
#endif

// Returns the bytes of the ring that a record with `length` bytes of data takes.
std::uint32_t taken_by(std::uint32_t length) {
  return (length + kRingWord + kRingLine - 1) / kRingLine * kRingLine;
}

std::atomic_ref<std::uint64_t> word_at(const RingMemory& memory, std::uint64_t place) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.data + (place & (memory.bytes - 1))));
}

}  // namespace

// ----------------------------------------------------------------------------------------- writing

std::atomic_ref<std::uint64_t> RingWriter::word(std::uint64_t place) const { return word_at(memory_, place); }

Status RingWriter::look() {
  const std::uint64_t head = memory_.control->head.load(std::memory_order_seq_cst);
  if (head < head_ || head > tail_ || head % kRingLine != 0)
    return {Code::kCorrupt, str("the reader of a ring says that it has taken ", head, " of ", tail_)};
  head_ = head;
  tell_seen();
  return {};
}

// Returns the most data bytes that the next record can have now. One line stays free for the word
// after the record.
std::uint32_t RingWriter::room() const {
  const auto free = static_cast<std::uint32_t>(memory_.bytes - (tail_ - head_));
  if (free < 2 * kRingLine) return 0;
  const auto to_end = static_cast<std::uint32_t>(memory_.bytes - (tail_ & (memory_.bytes - 1)));
  return std::min({free - kRingLine, to_end, limits::kRingRecordBytes}) - kRingWord;
}

// Appends a record with `length` bytes, for which there must be room. fill(to) copies the bytes to
// `to`.
template <class F>
void RingWriter::put(std::uint32_t length, F fill) {
  fill(memory_.data + (tail_ & (memory_.bytes - 1)) + kRingWord);
  const std::uint64_t next = tail_ + taken_by(length);
  word(next).store(0, std::memory_order_relaxed);
  tell_published();
  word(tail_).store(length, kPublish);
  tail_ = next;
}

Result<std::size_t> RingWriter::write(std::span<const iovec> parts) {
  std::size_t all = 0;
  for (const iovec& part : parts) all += part.iov_len;
  if (room() < all) SLIME_TRY(look());
  if (all > room()) return write_pieces(parts, all);
  if (all == 0) return all;
  put(static_cast<std::uint32_t>(all), [&](std::byte* to) {
    for (const iovec& part : parts) {
      if (part.iov_len > 0) copy_bytes(to, part.iov_base, part.iov_len);
      to += part.iov_len;
    }
  });
  return all;
}

// Writes parts that need several records. Stops when the ring is full. Returns how many bytes it
// wrote.
Result<std::size_t> RingWriter::write_pieces(std::span<const iovec> parts, std::size_t all) {
  std::size_t done = 0;
  std::size_t in_part = 0;  // bytes of parts.front() that are written already
  while (done < all) {
    const auto wanted =
        static_cast<std::uint32_t>(std::min<std::size_t>(all - done, limits::kRingRecordBytes - kRingWord));
    if (room() < wanted) SLIME_TRY(look());
    const std::uint32_t length = std::min(wanted, room());
    if (length == 0) break;
    put(length, [&](std::byte* to) {
      for (std::size_t left = length; left > 0;) {
        const iovec& part = parts.front();
        const std::size_t now = std::min(left, part.iov_len - in_part);
        if (now > 0) copy_bytes(to, static_cast<const std::byte*>(part.iov_base) + in_part, now);
        to += now;
        left -= now;
        in_part += now;
        if (in_part < part.iov_len) continue;
        parts = parts.subspan(1);
        in_part = 0;
      }
    });
    done += length;
  }
  return done;
}

Result<bool> RingWriter::has_room() {
  if (room() == 0) SLIME_TRY(look());
  return room() > 0;
}

// A reader may park while a record is written. Each side first stores its own word and then loads
// the other's, in one total order, so at least one side sees the other. The same holds for `full`
// and `head`.
bool RingWriter::reader_parked() const {
  full_fence();
  return memory_.control->parked.load(std::memory_order_seq_cst) != 0;
}

Result<bool> RingWriter::await_room() {
  memory_.control->full.store(1, std::memory_order_seq_cst);
  SLIME_TRY(look());
  if (room() == 0) return true;
  memory_.control->full.store(0, std::memory_order_relaxed);
  return false;
}

// Pages that were given back read as zeros, which is the value that the word after the last record
// must have.
bool RingWriter::trim() {
  if (!look().ok() || head_ != tail_) return false;
  return ::madvise(memory_.data, memory_.bytes, MADV_REMOVE) == 0;
}

// ----------------------------------------------------------------------------------------- reading

std::atomic_ref<std::uint64_t> RingReader::word() const { return word_at(memory_, head_); }

// Begins to read a record of `length` bytes. Returns false if that length is impossible.
bool RingReader::begin_record(std::uint64_t length) {
  const std::uint64_t at = head_ & (memory_.bytes - 1);
  if (length > std::min<std::uint64_t>(limits::kRingRecordBytes, memory_.bytes - at) - kRingWord)
    return false;
  tell_seen();
  left_ = static_cast<std::uint32_t>(length);
  record_ = taken_by(left_);
  from_ = memory_.data + at + kRingWord;
  return true;
}

void RingReader::take(std::size_t bytes) {
  from_ += bytes;
  left_ -= static_cast<std::uint32_t>(bytes);
  if (left_ == 0) head_ += record_;
}

void RingReader::publish_head() {
  tell_published();
  memory_.control->head.store(head_, std::memory_order_release);
}

Bytes RingReader::peek() {
  if (left_ == 0) {
    const std::uint64_t length = word().load(std::memory_order_acquire);
    if (length == 0 || !begin_record(length)) return {};
  }
  return {from_, left_};
}

void RingReader::skip(std::size_t bytes) {
  take(bytes);
  if (left_ == 0) publish_head();
}

Result<std::size_t> RingReader::read(std::span<const iovec> parts) {
  const std::uint64_t before = head_;
  std::size_t all = 0;
  for (const iovec& part : parts) {
    std::size_t got = 0;
    while (got < part.iov_len) {
      if (left_ == 0) {
        const std::uint64_t length = word().load(std::memory_order_acquire);
        if (length == 0) break;
        if (!begin_record(length))
          return Status(Code::kCorrupt, str("a record of ", length, " bytes at ", head_ & (memory_.bytes - 1),
                                            " of a ring of ", memory_.bytes));
      }
      const std::size_t now = std::min<std::size_t>(left_, part.iov_len - got);
      copy_bytes(static_cast<std::byte*>(part.iov_base) + got, from_, now);
      got += now;
      take(now);
    }
    all += got;
    if (got < part.iov_len) break;
  }
  if (head_ != before) publish_head();
  return all;
}

bool RingReader::park() {
  memory_.control->parked.store(1, std::memory_order_seq_cst);
  memory_.control->head.store(head_, std::memory_order_seq_cst);  // before writer_waits() looks
  if (left_ == 0 && word().load(std::memory_order_seq_cst) == 0) return true;
  unpark();
  return false;
}

bool RingReader::writer_waits() {
  if (memory_.control->full.load(std::memory_order_seq_cst) == 0) return false;
  memory_.control->full.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace slime::transport::shm
