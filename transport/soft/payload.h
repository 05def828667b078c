#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/soft/regions.h"

namespace slime::transport::soft {

// Destination of the payload of the current frame, and number of its bytes that are still to come.
// Thread: the loop.
class Payload {
 public:
  enum class Kind { kNone, kMessage, kWrite, kRead, kExpected, kFetch, kDiscard };

  // Begins the payload of a frame, of `bytes` bytes. The bytes have no destination before place().
  void begin(std::size_t bytes) { left_ = bytes; }
  void place(Kind kind, std::byte* to) {
    kind_ = kind;
    to_ = to;
  }
  // Sets the payload's destination: the byte at `offset` of a region. Hold pin() while placing
  // bytes there.
  void place(Kind kind, std::shared_ptr<RegionRecord> record, std::uint64_t offset) {
    record_ = std::move(record);
    place(kind, record_->data + offset);
  }
  // Throws the remaining bytes away.
  void discard() { kind_ = Kind::kDiscard; }
  // Ends the payload after its last byte. Returns its kind.
  Kind end() {
    record_.reset();
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
  // Returns how many bytes a read of the wire may place straight at to().
  [[nodiscard]] std::size_t direct_room() const { return kind_ == Kind::kDiscard ? 0 : left_; }
  [[nodiscard]] std::byte* to() const { return to_; }
  // Call after `bytes` bytes were placed at to(), or thrown away.
  void placed(std::size_t bytes) {
    if (kind_ != Kind::kDiscard) to_ += bytes;
    left_ -= bytes;
  }

 private:
  Kind kind_ = Kind::kNone;
  std::byte* to_ = nullptr;
  std::size_t left_ = 0;
  std::shared_ptr<RegionRecord> record_;
};

}  // namespace slime::transport::soft
