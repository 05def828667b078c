#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/soft/frame_queue.h"
#include "transport/soft/payload.h"

namespace slime::transport::soft {

// The peer's writes, and their acks. Frames carry the bytes, or addresses from which this side
// reads them in the peer's memory; frames with addresses keep their place among the others. Thread:
// the loop.
class WriteReceiver {
 public:
  WriteReceiver(Link& link, FrameQueue& frames) : link_(link), frames_(frames) {}

  // Begins a frame with bytes; places them in the region, or throws them away.
  void begin_bytes(const FrameHeader& header, Payload& payload);
  // The region refuses the bytes: the write fails.
  void refuse() { current_code_ = Code::kNotFound; }
  void end_bytes(const FrameHeader& header);
  // Handles a notification, which ends a write or stands alone. Returns whether it is to be
  // delivered. kCorrupt: it came inside another write, and the link is broken.
  Code end_with_imm(const FrameHeader& header);

  // Begins a frame with addresses.
  void begin_fetch(const FrameHeader& header, Payload& payload);
  // All addresses have come: at most a chunk of bulk data, to be read together with others.
  void end_fetch(const FrameHeader& header);
  // Reads the fetches that wait: before any later frame is handled, and before any answer.
  void fetch_awaited();
  [[nodiscard]] bool awaits() const { return !awaited_.empty(); }
  // Returns the bytes of fetches that were handled since the beginning.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }

  void queue_ack(std::uint64_t operation, Code code, bool patient = false);
  void stage_acks();
  // Stages acks that wait for others, together with the next ack.
  void hurry_acks() { acks_due_ = true; }
  [[nodiscard]] bool acked() const { return acks_.empty(); }

 private:
  using FetchBlocks = std::array<FetchBlock, limits::kFetchBlocks>;
  struct Ack {
    std::uint64_t operation = 0;
    Code code = Code::kOk;
  };

  bool enter(const FrameHeader& header);
  void end_write();
  bool await_fetch(const FrameHeader& header);
  Code fetch(const FrameHeader& write, std::span<const FetchBlock> blocks);
  std::uint64_t take_fetched() { return std::exchange(fetched_told_, fetched_) == fetched_ ? 0 : fetched_; }

  Link& link_;
  FrameQueue& frames_;
  std::uint64_t current_ = 0;  // the write whose last frame has not come
  Code current_code_ = Code::kOk;
  bool current_fetched_ = false;
  std::unique_ptr<FetchBlocks> blocks_;  // made when the peer has sent the first fetch
  // parts of writes, to be read together; value: number of blocks
  std::vector<FrameHeader> awaited_;
  std::vector<FetchBlock> awaited_blocks_;  // the blocks of these parts, in order
  std::uint64_t fetched_ = 0;
  std::uint64_t fetched_told_ = 0;
  Queue<Ack> acks_;
  bool acks_due_ = false;  // all acks that are there now
};

}  // namespace slime::transport::soft
