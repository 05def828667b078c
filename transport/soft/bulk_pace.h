#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/limits.h"

namespace slime::transport::soft {

// Decides how many bytes of bulk data one step moves on a port. A message waits for the step that
// is under way, so steps are short while messages and bulk data move at the same time. Otherwise
// steps are long: each step has a cost of its own. Reads no clock. Thread: the loop.
class BulkPace {
 public:
  // Notes a message that was sent or has arrived.
  void note_message() {
    if (bulk_ > 0) {
      mixed_ = std::min(mixed_ + 1, kMost);
      alone_ = 0;
    } else if (alone_ < kPlain) {
      ++alone_;
    } else {
      lower(1);
    }
    bulk_ = 0;
    if (mixed_ >= kEnough) shares_ = true;
  }
  // Notes bytes of one-sided operations that have moved, in either direction.
  void note_bulk(std::uint64_t bytes) {
    bulk_ += bytes;
    if (bulk_ < limits::kBulkAlone) return;
    bulk_ = 1;  // bulk data has moved since the last message
    lower(kAlone);
  }
  // Returns true while messages and bulk data move at the same time.
  [[nodiscard]] bool shares() const { return shares_; }

  // Most bytes of one turn over the wire.
  [[nodiscard]] std::size_t turn_bytes() const {
    return shares_ ? limits::kSharedTurnBytes : limits::kTurnBytes;
  }
  // Most bytes of one frame of bulk data.
  [[nodiscard]] std::uint32_t chunk_bytes() const {
    return shares_ ? limits::kSharedChunkBytes : limits::kChunkBytes;
  }
  // Most bytes of one turn of copies past the wire.
  [[nodiscard]] std::uint64_t copy_bytes() const {
    return shares_ ? limits::kSharedCopyBytes : limits::kCopyStepBytes;
  }
  // Most bytes of one turn for a block that does not fit into `left` bytes of that turn.
  [[nodiscard]] std::uint64_t piece_bytes(std::uint64_t left) const {
    return shares_ ? std::min(left, limits::kSharedPieceBytes) : left;
  }

 private:
  static constexpr int kEnough = 8;  // steps become short
  static constexpr int kMost = 64;
  // So many messages without bulk data between them say nothing: the caller of one call after the
  // other sends the next request as soon as it has the reply.
  static constexpr int kPlain = 4;
  static constexpr int kAlone = 4;  // subtracted for kBulkAlone bytes without a message

  // Steps become long again at 0 only, so that a pause of the messages does not end short steps.
  void lower(int by) {
    mixed_ = std::max(mixed_ - by, 0);
    if (mixed_ == 0) shares_ = false;
  }

  int mixed_ = 0;           // messages lately that came with bulk data, up to kMost
  int alone_ = 0;           // messages since bulk data has moved, up to kPlain
  std::uint64_t bulk_ = 0;  // bytes since the last message
  bool shares_ = false;
};

}  // namespace slime::transport::soft
