#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "transport/queue.h"
#include "transport/soft/link.h"

namespace slime::transport::soft {

// A message that was accepted and that the wire has not taken completely.
struct OutMessage {
  // null if the operation ended early (at its deadline); the bytes must still be sent
  Operation* operation = nullptr;
  TimePoint deadline = kNever;
  // the message follows all one-sided operations with a smaller sequence number
  std::uint64_t barrier = 0;
  FrameHeader header;
  ByteVector bytes;
};

// A staged frame: its place in the stream is fixed.
struct Staged {
  FrameHeader header;
  const std::byte* data = nullptr;
  std::size_t sent = 0;     // header included
  std::size_t skipped = 0;  // first bytes of the payload, sent already, not in `data`
  // region of the bytes of a kWrite, kWriteBlocks or kReadData frame
  std::shared_ptr<RegionRecord> record;
  // message of a kMessage frame. In kFetch and kWriteBlocks frames only its bytes are used; those
  // of kWriteBlocks are the table, and then the address of each block.
  OutMessage message;
  std::uint64_t expected = 0;  // kCompareSwap: its payload
  [[nodiscard]] const std::byte* payload() const {
    return header.type == FrameType::kCompareSwap ? reinterpret_cast<const std::byte*>(&expected) : data;
  }
  [[nodiscard]] std::size_t size() const { return kHeaderBytes + header.payload_bytes; }
  [[nodiscard]] bool is_write() const {
    return header.type == FrameType::kWrite || header.type == FrameType::kWriteBlocks;
  }
  [[nodiscard]] bool is_bulk() const { return is_write() || header.type == FrameType::kReadData; }
};

// The outgoing end of the stream: keeps the staged frames in order and writes them to the wire in
// bursts, bulk data straight from the registered memory. Thread: the loop.
class FrameQueue {
 public:
  explicit FrameQueue(Link& link) : link_(link) {}

  // Appends a frame to the stream. The returned reference is valid until the next push.
  Staged& push(FrameHeader header);
  // Like push(), with a payload at `data`, which is bulk data of the registered memory of `record`.
  Staged& push_bulk(FrameHeader header, const std::byte* data, std::shared_ptr<RegionRecord> record);
  // Appends a kWriteBlocks frame. `list`: its table, and then the address of each block in the
  // registered memory of `record`.
  void push_list(FrameHeader header, ByteVector list, std::shared_ptr<RegionRecord> record);
  // Nothing follows it.
  void push_goodbye();

  [[nodiscard]] bool empty() const { return staged_.empty(); }
  // full(): no frame may be staged before some were sent. small_full(): no small frame may be.
  // bulk_full(): no frame with bulk data may be.
  [[nodiscard]] bool full() const {
    return staged_.size() >= limits::kBurstFrames || listed_ >= limits::kBurstBlocks;
  }
  [[nodiscard]] bool small_full() const { return staged_.size() >= limits::kBurstSmallFrames; }
  [[nodiscard]] bool bulk_full() const { return bulk_room() == 0 || full(); }
  // Returns how many bytes of bulk data may be staged before some were sent.
  [[nodiscard]] std::size_t bulk_room() const {
    const std::size_t most = link_.port->pace.chunk_bytes();
    return most - std::min(most, bulk_);
  }

  // Writes all staged frames to the wire in one call. Returns how many bytes the wire took. Breaks
  // the link if the wire fails.
  std::size_t send();
  // Returns whether the wire took fewer bytes than it was offered, and has not reported room since.
  [[nodiscard]] bool wire_full() const { return wire_full_; }
  void room_again() { wire_full_ = false; }
  // Asks the wire to report when it has room, if it is full.
  void ask_for_room();
  // Returns true, once, if the oldest answer must be failed: the region of one of its frames was
  // revoked, and zeros were sent instead.
  bool take_cut_answer() { return std::exchange(cut_answer_, false); }

  // Returns an empty buffer for `bytes` bytes of a message: the buffer of an earlier message if one
  // is kept.
  ByteVector take_buffer(std::size_t bytes);
  // Notes a long message that has to wait for the wire, or that waits no more.
  void note_long(const FrameHeader& header, bool waits) {
    if (!link_.is_long(header.payload_bytes)) return;
    link_.long_unsent += waits ? header.payload_bytes : std::uint64_t{0} - header.payload_bytes;
  }

  [[nodiscard]] bool goodbye_staged() const { return goodbye_staged_; }
  // Handles the end or failure of the wire. After our goodbye, this completes the close; otherwise
  // it breaks the link.
  void lost(const Status& cause);
  // Ends a close, because its bound has passed or because nothing is left to wait for. `leftover`:
  // status of operations that are still in flight.
  void finish_close(Status leftover);

  // Moves to `expired` the operations of staged messages that are past their deadline. The bytes of
  // these messages are still sent. Lowers `next` to the next deadline.
  void expire(TimePoint now, TimePoint& next, std::vector<Operation*>& expired);
  // Completes with `leftover` the operations of staged messages, which will not be sent.
  void drop(const Status& leftover);

 private:
  Result<std::size_t> write();
  void zero_answer(std::size_t index);
  void consume(std::size_t bytes);
  void on_sent(Staged& frame);
  void give_buffer(ByteVector buffer);
  [[nodiscard]] bool is_long_buffer(std::size_t bytes) const {
    return bytes > 2 * std::max(link_.peer.slot_bytes, limits::kSlotBytes);
  }
  void say_goodbye_now();

  Link& link_;
  Queue<Staged> staged_;
  std::size_t bulk_ = 0;
  std::size_t listed_ = 0;  // blocks in kWriteBlocks frames
  std::vector<ByteVector> buffers_;
  ByteVector long_buffer_;  // kept for long messages; without capacity: none
  bool wire_full_ = false;
  bool wire_asked_ = false;  // want_write(true) was called on the wire
  bool cut_answer_ = false;
  bool goodbye_staged_ = false;
  bool goodbye_sent_ = false;
};

}  // namespace slime::transport::soft
