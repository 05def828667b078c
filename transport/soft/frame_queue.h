#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "transport/queue.h"
#include "transport/soft/link.h"

namespace slime::transport::soft {

// A message that was accepted and is not completely handed to the wire.
struct OutMessage {
  // null: the operation completed early; the bytes must still be sent
  Operation* operation = nullptr;
  TimePoint deadline = kNever;
  std::uint64_t barrier = 0;  // sent after all one-sided operations with a smaller sequence
  FrameHeader header;
  ByteVector bytes;
};

// A frame whose place in the stream is fixed.
struct Staged {
  FrameHeader header;
  const std::byte* data = nullptr;
  std::size_t sent = 0;                  // header included
  std::shared_ptr<RegionRecord> record;  // the memory that kWrite and kReadData read from
  OutMessage message;                    // of kMessage; of kFetch, its bytes
  std::uint64_t expected = 0;            // kCompareSwap: its payload
  [[nodiscard]] const std::byte* payload() const {
    return header.type == FrameType::kCompareSwap ? reinterpret_cast<const std::byte*>(&expected) : data;
  }
  [[nodiscard]] std::size_t size() const { return kHeaderBytes + header.payload_bytes; }
};

// The outgoing end of the stream: frames in order, handed to the wire in bursts, straight from the
// registered memory. Thread: the loop.
class FrameQueue {
 public:
  explicit FrameQueue(Link& link) : link_(link) {}

  // Places a frame at the end of the stream. The reference is valid until the next push.
  Staged& push(FrameHeader header);
  // Like push(), with a payload that is a part of registered memory.
  void push_bulk(FrameHeader header, const std::byte* data, std::shared_ptr<RegionRecord> record);
  // Nothing follows it.
  void push_goodbye();

  [[nodiscard]] bool empty() const { return staged_.empty(); }
  // Returns true if some frames must be sent before more frames of any kind, small frames, or bulk
  // frames may be placed.
  [[nodiscard]] bool full() const { return staged_.size() >= limits::kBurstFrames; }
  [[nodiscard]] bool small_full() const { return staged_.size() >= limits::kBurstSmallFrames; }
  [[nodiscard]] bool bulk_full() const { return bulk_ >= limits::kChunkBytes || full(); }

  // Hands all frames to the wire in one write. Returns how many bytes the wire took. Breaks the
  // link if the wire is lost.
  std::size_t send();
  // Returns whether the wire took less than it was offered, and has not reported room since.
  [[nodiscard]] bool wire_full() const { return wire_full_; }
  void room_again() { wire_full_ = false; }
  // Asks the wire to report room, if it is full.
  void ask_for_room();
  // Returns true if the answer at the head of its queue was cut: the region of one of its frames
  // was revoked, and zeros went instead.
  bool take_cut_answer() { return std::exchange(cut_answer_, false); }

  // Returns memory for the bytes of a message.
  ByteVector take_buffer();

  [[nodiscard]] bool goodbye_staged() const { return goodbye_staged_; }
  // Handles the end of the stream. After our goodbye, the end is what this side waited for.
  void lost(const Status& cause);
  // Ends a close: its bound has passed, or nothing is left to wait for.
  void finish_close(Status leftover);

  // Takes out the operations of half sent messages that are past their deadline. Their bytes are
  // still sent.
  void expire(TimePoint now, TimePoint& next, std::vector<Operation*>& expired);
  // Completes the operations of messages that will not be sent.
  void drop(const Status& leftover);

 private:
  Result<std::size_t> write();
  void zero_answer(std::size_t index);
  void consume(std::size_t bytes);
  void on_sent(Staged& frame);
  void give_buffer(ByteVector buffer);
  void say_goodbye_now();

  Link& link_;
  Queue<Staged> staged_;
  std::size_t bulk_ = 0;
  std::vector<ByteVector> buffers_;
  bool wire_full_ = false;
  bool wire_asked_ = false;  // whether the wire was asked to report room
  bool cut_answer_ = false;
  bool goodbye_staged_ = false;
  bool goodbye_sent_ = false;
};

}  // namespace slime::transport::soft
