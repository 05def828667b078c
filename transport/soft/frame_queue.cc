#include "transport/soft/frame_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/str.h"

namespace slime::transport::soft {
namespace {

// Sent in place of the bytes of an answer whose region was revoked while the answer was being sent.
constexpr std::array<std::byte, limits::kChunkBytes> kZeros{};

// The parts of a burst: two for each frame, and one for each listed block.
constexpr std::size_t kBurstParts = 2 * limits::kBurstFrames + limits::kBurstBlocks + limits::kListedBlocks;

// Collects the parts of one write to the wire.
class Parts {
 public:
  void add(const void* data, std::size_t bytes) { parts_[count_++] = {const_cast<void*>(data), bytes}; }
  // Adds the payload of a kWriteBlocks frame without its first `sent` bytes.
  void add_list(const Staged& frame, std::size_t sent) {
    const std::size_t count = frame.header.value;
    const std::size_t table = count * sizeof(ListedBlock);
    if (sent < table) add(frame.data + sent, table - sent);
    sent -= std::min(sent, table);
    for (std::size_t i = 0; i < count; ++i) {
      ListedBlock block;
      const std::byte* source = nullptr;
      std::memcpy(&block, frame.data + i * sizeof block, sizeof block);
      std::memcpy(&source, frame.data + table + i * sizeof source, sizeof source);
      if (sent < block.length) add(source + sent, block.length - sent);
      sent -= std::min<std::size_t>(sent, block.length);
    }
  }
  [[nodiscard]] std::span<const iovec> all() const { return {parts_.data(), count_}; }

 private:
  std::array<iovec, kBurstParts> parts_;
  std::size_t count_ = 0;
};

// Pins the regions that one write to the wire reads from, until the write has returned.
class PinSet {
 public:
  PinSet() = default;
  PinSet(const PinSet&) = delete;
  PinSet& operator=(const PinSet&) = delete;
  ~PinSet() {
    for (std::size_t i = 0; i < count_; ++i) records_[i]->unpin();
  }
  bool add(RegionRecord& record, bool own) {
    if (count_ > 0 && records_[count_ - 1] == &record && own_ == own) return true;
    if (!(own ? record.pin_for_own() : record.pin_for_peer())) return false;
    records_[count_++] = &record;
    own_ = own;
    return true;
  }

 private:
  std::array<RegionRecord*, limits::kBurstFrames> records_;
  std::size_t count_ = 0;
  bool own_ = false;
};

}  // namespace

Staged& FrameQueue::push(FrameHeader header) {
  Staged& frame = staged_.emplace_back();
  frame.header = header;
  return frame;
}

Staged& FrameQueue::push_bulk(FrameHeader header, const std::byte* data,
                              std::shared_ptr<RegionRecord> record) {
  Staged& frame = push(header);
  frame.data = data;
  frame.record = std::move(record);
  bulk_ += header.payload_bytes;
  link_.port->pace.note_bulk(header.payload_bytes);
  return frame;
}

void FrameQueue::push_list(FrameHeader header, ByteVector list, std::shared_ptr<RegionRecord> record) {
  Staged& frame = push_bulk(header, list.data(), std::move(record));
  frame.message.bytes = std::move(list);
  listed_ += header.value;
}

void FrameQueue::push_goodbye() {
  FrameHeader header;
  header.type = FrameType::kGoodbye;
  push(header);
  goodbye_staged_ = true;
}

std::size_t FrameQueue::send() {
  std::size_t offered = 0;
  for (std::size_t i = 0; i < staged_.size(); ++i) offered += staged_[i].size() - staged_[i].sent;
  const Result<std::size_t> taken = write();
  if (!link_.working()) return 0;
  if (!taken) {
    lost(taken.error());
    return 0;
  }
  link_.counters.bytes_sent += *taken;
  consume(*taken);
  wire_full_ = wire_full_ || *taken < offered;
  return *taken;
}

void FrameQueue::ask_for_room() {
  if (wire_asked_ != wire_full_) link_.wire->want_write(wire_asked_ = wire_full_);
}

// Writes all staged frames to the wire in one call. Bulk data is written straight from the
// registered memory, which is pinned meanwhile.
Result<std::size_t> FrameQueue::write() {
  Parts parts;
  PinSet pins;
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.record != nullptr) {
      const bool own = frame.is_write();
      if (!pins.add(*frame.record, own)) {
        if (own) {
          link_.break_now(Status(Code::kUnavailable, "a local region was closed while a write used it"));
          return std::size_t{0};
        }
        zero_answer(i);
      }
    }
    const std::size_t header_sent = std::min(frame.sent, kHeaderBytes);
    if (header_sent < kHeaderBytes) {
      parts.add(reinterpret_cast<const std::byte*>(&frame.header) + header_sent, kHeaderBytes - header_sent);
    }
    const std::size_t data_sent = frame.sent - header_sent;
    if (frame.header.type == FrameType::kWriteBlocks) {
      parts.add_list(frame, data_sent);
    } else if (data_sent < frame.header.payload_bytes) {
      parts.add(frame.payload() + (data_sent - frame.skipped), frame.header.payload_bytes - data_sent);
    }
  }
  return link_.wire->write(parts.all());
}

// The region of the answer in frame `index` was revoked: sends zeros instead of the promised bytes,
// and fails the peer's request.
void FrameQueue::zero_answer(std::size_t index) {
  const std::uint64_t request = staged_[index].header.operation;
  bool done_staged = false;
  for (std::size_t i = index; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.header.operation != request) continue;
    if (frame.header.type == FrameType::kReadData) {
      frame.data = kZeros.data();
      frame.record.reset();
    } else if (frame.header.type == FrameType::kReadDone) {
      frame.header.code = static_cast<std::uint8_t>(Code::kNotFound);
      done_staged = true;
    }
  }
  cut_answer_ = cut_answer_ || !done_staged;
}

void FrameQueue::consume(std::size_t bytes) {
  while (bytes > 0 && link_.working()) {
    Staged& front = staged_.front();
    const std::size_t part = std::min(bytes, front.size() - front.sent);
    front.sent += part;
    bytes -= part;
    if (front.is_write()) link_.note_progress();
    if (front.sent < front.size()) return;
    if (front.is_bulk()) {  // calls nothing back
      on_sent(front);
      staged_.drop_front();
      continue;
    }
    Staged frame = staged_.pop_front();
    on_sent(frame);
  }
}

void FrameQueue::on_sent(Staged& frame) {
  switch (frame.header.type) {
    case FrameType::kMessage:
      ++link_.counters.messages_sent;
      link_.port->pace.note_message();
      note_long(frame.header, false);
      give_buffer(std::move(frame.message.bytes));
      // The operation is null if it has ended already, at the deadline of its message.
      if (frame.message.operation != nullptr) link_.complete_message(*frame.message.operation, {});
      return;
    case FrameType::kWriteBlocks:
      listed_ -= frame.header.value;
      give_buffer(std::move(frame.message.bytes));
      [[fallthrough]];
    case FrameType::kWrite:
      bulk_ -= frame.header.payload_bytes;
      if ((frame.header.flags & kFlagLast) == 0) return;
      [[fallthrough]];
    case FrameType::kImm:
      link_.operations.find(Handle::unpack(frame.header.operation))->sent = true;
      return;
    case FrameType::kFetch:
      give_buffer(std::move(frame.message.bytes));
      if (frame.header.flags == kFlagLast)
        link_.operations.find(Handle::unpack(frame.header.operation))->sent = true;
      return;
    case FrameType::kReadData:
      bulk_ -= frame.header.payload_bytes;
      return;
    case FrameType::kGoodbye:
      goodbye_sent_ = true;
      return;
    default:
      return;
  }
}

ByteVector FrameQueue::take_buffer(std::size_t bytes) {
  ByteVector out;
  if (is_long_buffer(bytes)) {
    out.swap(long_buffer_);
  } else if (!buffers_.empty()) {
    out = std::move(buffers_.back());
    buffers_.pop_back();
  }
  out.clear();
  out.reserve(bytes);
  return out;
}

// Keeps one buffer for long messages: most of them are written at once, and need none.
void FrameQueue::give_buffer(ByteVector buffer) {
  if (is_long_buffer(buffer.capacity())) {
    if (buffer.capacity() > long_buffer_.capacity()) long_buffer_.swap(buffer);
  } else if (buffers_.size() < limits::kSpareMessageBuffers)
    buffers_.push_back(std::move(buffer));
}

void FrameQueue::lost(const Status& cause) {
  if (!link_.working()) return;
  if (goodbye_sent_) return finish_close({});
  link_.break_now(Status(
      cause.code() == Code::kOk ? Code::kUnavailable : cause.code(),
      str("lost the connection to ", link_.who.peer_name, " (", link_.wire_text, "): ", cause.text())));
}

void FrameQueue::finish_close(Status leftover) {
  SLIME_CHECK(link_.working());
  link_.life.leave(std::move(leftover));
  say_goodbye_now();
  link_.break_now(Status(Code::kCancelled, "closed"));
}

// Tries once to send a goodbye. Does nothing if a frame is half sent: no other frame can go before
// its rest.
void FrameQueue::say_goodbye_now() {
  if (goodbye_sent_) return;
  if (!staged_.empty() && staged_.front().sent > 0) return;
  FrameHeader header;
  header.type = FrameType::kGoodbye;
  const iovec part{&header, sizeof header};
  goodbye_sent_ = true;
  link_.wire->write(std::span(&part, 1)).status().ignore();
}

void FrameQueue::expire(TimePoint now, TimePoint& next, std::vector<Operation*>& expired) {
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.message.operation == nullptr) continue;
    if (frame.message.deadline > now)
      next = std::min(next, frame.message.deadline);
    else
      expired.push_back(std::exchange(frame.message.operation, nullptr));
  }
}

void FrameQueue::drop(const Status& leftover) {
  while (!staged_.empty()) {
    Operation* operation = staged_.pop_front().message.operation;
    if (operation != nullptr) link_.complete_message(*operation, leftover);
  }
}

}  // namespace slime::transport::soft
