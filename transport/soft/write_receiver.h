#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/soft/frame_queue.h"
#include "transport/soft/payload.h"

namespace slime::transport::soft {

// The peer's writes, and their acks. The bytes come with the frames, or are read out of the peer's
// memory by addresses that come instead: those keep their place among the frames. Thread: the loop.
class WriteReceiver {
 public:
  WriteReceiver(Link& link, FrameQueue& frames) : link_(link), frames_(frames) {}

  // A frame with bytes begins; places them in the region, or throws them away.
  void begin_bytes(const FrameHeader& header, Payload& payload);
  // The region of the bytes refuses: the write fails.
  void refuse() { current_code_ = Code::kNotFound; }
  void end_bytes(const FrameHeader& header);
  // The notification that ends a write, or stands alone, has come. Returns whether it is to be
  // delivered; kCorrupt: inside another write, and the link broke.
  Code end_with_imm(const FrameHeader& header);

  // A frame with addresses begins.
  void begin_fetch(const FrameHeader& header, Payload& payload);
  // The addresses are there: at most a chunk of bulk data, to be read with others.
  void end_fetch(const FrameHeader& header);
  // Reads what awaits that: before whatever comes behind these parts of writes, and before anything
  // is answered.
  void fetch_awaited();
  [[nodiscard]] bool awaits() const { return !awaited_.empty(); }
  // Bytes of fetches that are dealt with since the beginning.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }

  void queue_ack(std::uint64_t operation, Code code, bool patient = false);
  void stage_acks();
  // Acks that wait for others are staged with the next.
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
  std::unique_ptr<FetchBlocks> blocks_;     // once the peer has sent some
  std::vector<FrameHeader> awaited_;        // parts of writes, to be read together; the value: of blocks
  std::vector<FetchBlock> awaited_blocks_;  // of these, in their order
  std::uint64_t fetched_ = 0;
  std::uint64_t fetched_told_ = 0;
  Queue<Ack> acks_;
  bool acks_due_ = false;  // all that are there now
};

}  // namespace slime::transport::soft
