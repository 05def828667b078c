#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/copy.h"
#include "transport/soft/frames.h"
#include "transport/soft/regions.h"

namespace slime::transport::soft {

// Destination of the payload of the current frame, which may be many blocks of a region, and number
// of its bytes that are still to come. Thread: the loop.
class Payload {
 public:
  enum class Kind { kNone, kMessage, kWrite, kRead, kExpected, kFetch, kTable, kDiscard };

  // Begins the payload of a frame, of `bytes` bytes. The bytes have no destination before place().
  void begin(std::size_t bytes) { left_ = bytes; }
  void place(Kind kind, std::byte* to) {
    kind_ = kind;
    to_ = to;
    room_ = left_;
  }
  // Sets the payload's destination: the byte at `offset` of a region. Hold pin() while placing
  // bytes there.
  void place(Kind kind, std::shared_ptr<RegionRecord> record, std::uint64_t offset) {
    record_ = std::move(record);
    place(kind, record_->data + offset);
  }
  // Sets the payload's destination: these blocks of a region, which have left() bytes together, and
  // must stay where they are until end().
  void place(Kind kind, std::shared_ptr<RegionRecord> record, std::span<const ListedBlock> blocks) {
    record_ = std::move(record);
    kind_ = kind;
    blocks_ = blocks;
    next_block();
  }
  // Throws the remaining bytes away.
  void discard() { kind_ = Kind::kDiscard; }
  // Ends the payload after its last byte. Returns its kind.
  Kind end() {
    record_.reset();
    blocks_ = {};
    return std::exchange(kind_, Kind::kNone);
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] bool in_region() const { return kind_ == Kind::kWrite || kind_ == Kind::kRead; }
  // Pins the region that the payload goes into. Returns an empty pin if the region was revoked, or
  // the payload does not go into a region.
  [[nodiscard]] Pin pin() const {
    if (!in_region()) return {};
    return kind_ == Kind::kWrite ? Pin::for_peer(*record_) : Pin::for_own(*record_);
  }
  // Returns how many bytes a read of the wire may place straight at their destination.
  [[nodiscard]] std::size_t direct_room() const { return kind_ == Kind::kDiscard ? 0 : left_; }
  // Writes the places of these bytes to `out`. Returns how many places there are: kListedBlocks at
  // most.
  std::size_t places(std::span<iovec> out) const {
    if (direct_room() == 0) return 0;
    std::size_t count = 0;
    out[count++] = {to_, room_};
    for (const ListedBlock& block : blocks_) out[count++] = {record_->data + block.offset, block.length};
    return count;
  }
  // Call after `bytes` bytes were placed at their destination, or thrown away.
  void placed(std::size_t bytes) {
    left_ -= bytes;
    if (kind_ == Kind::kDiscard) return;
    for (; bytes >= room_ && !blocks_.empty(); next_block()) bytes -= room_;
    to_ += bytes;
    room_ -= bytes;
  }
  // Copies bytes to their destination, or throws them away: left() at most.
  void take(Bytes bytes) {
    if (kind_ == Kind::kDiscard) return placed(bytes.size());
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), room_);
      copy_bytes(to_, bytes.data(), part);
      placed(part);
      bytes = bytes.subspan(part);
    }
  }

 private:
  void next_block() {
    to_ = record_->data + blocks_.front().offset;
    room_ = blocks_.front().length;
    blocks_ = blocks_.subspan(1);
  }

  Kind kind_ = Kind::kNone;
  std::byte* to_ = nullptr;
  std::size_t room_ = 0;  // bytes that belong at `to_`
  std::size_t left_ = 0;
  std::shared_ptr<RegionRecord> record_;
  std::span<const ListedBlock> blocks_;  // those behind `to_`
};

}  // namespace slime::transport::soft
