#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/soft/regions.h"

namespace slime::transport::soft {

// Where the payload of the frame that comes now goes, and how much of it is still to come.
// Thread: the loop.
class Payload {
 public:
  enum class Kind { kNone, kMessage, kWrite, kRead, kExpected, kFetch, kDiscard };

  // A frame begins, with so many bytes of payload; without place() there is none.
  void begin(std::size_t bytes) { left_ = bytes; }
  void place(Kind kind, std::byte* to) {
    kind_ = kind;
    to_ = to;
  }
  // Places the payload at `offset` in registered memory, which is pinned while bytes are placed.
  void place(Kind kind, std::shared_ptr<RegionRecord> record, std::uint64_t offset) {
    record_ = std::move(record);
    place(kind, record_->data + offset);
  }
  // Throws away what is left.
  void discard() { kind_ = Kind::kDiscard; }
  // The payload is placed: what it was.
  Kind end() {
    record_.reset();
    return std::exchange(kind_, Kind::kNone);
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] bool in_region() const { return kind_ == Kind::kWrite || kind_ == Kind::kRead; }
  // Holds the region; empty where the region refuses.
  [[nodiscard]] Pin pin() const {
    if (!in_region()) return {};
    return kind_ == Kind::kWrite ? Pin::for_peer(*record_) : Pin::for_own(*record_);
  }
  // Bytes that a read of the wire may place straight where they belong.
  [[nodiscard]] std::size_t direct_room() const { return kind_ == Kind::kDiscard ? 0 : left_; }
  [[nodiscard]] std::byte* to() const { return to_; }
  // So many bytes are placed, or thrown away.
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
