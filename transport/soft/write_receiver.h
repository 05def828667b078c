#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/soft/frame_queue.h"
#include "transport/soft/payload.h"

namespace slime::transport::soft {

// Handles the peer's writes, and stages their acks. A kWrite frame has the bytes of one block, a
// kWriteBlocks frame those of many. A kFetch frame has addresses, from which this side reads the
// bytes in the peer's memory, in the order of the frames. Thread: the loop.
class WriteReceiver {
 public:
  WriteReceiver(Link& link, FrameQueue& frames) : link_(link), frames_(frames) {}

  // Handles the header of a kWrite frame: its payload goes into the region, or is thrown away.
  void begin_bytes(const FrameHeader& header, Payload& payload);
  // Handles the header of a kWriteBlocks frame: the table is received first.
  void begin_list(const FrameHeader& header, Payload& payload);
  // Call when the table has been received. Checks all of its blocks before a byte is placed: the
  // rest of the payload goes into them, or is thrown away.
  void end_table(const FrameHeader& header, Payload& payload);
  // Call if the region does not take the payload because it was revoked: the current write fails.
  void refuse() { current_code_ = Code::kNotFound; }
  void end_bytes(const FrameHeader& header);
  // Handles a kImm frame, which ends a write or stands alone. Returns OK if the notification is to
  // be delivered, else the error of its write. kCorrupt: the frame came inside another write, and
  // the link is broken.
  Code end_with_imm(const FrameHeader& header);

  // Begins a frame with addresses.
  void begin_fetch(const FrameHeader& header, Payload& payload);
  // Call when the addresses of a kFetch frame have been received. Their bytes (kChunkBytes at most)
  // are read later, together with those of further frames.
  void end_fetch(const FrameHeader& header);
  // Reads the bytes of all kFetch frames that wait. Called before a later frame of another type is
  // handled, and before acks are staged.
  void fetch_awaited();
  [[nodiscard]] bool awaits() const { return !awaited_.empty(); }
  // Returns how many bytes that kFetch frames named were handled since the beginning.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }

  void queue_ack(std::uint64_t operation, Code code, bool patient = false);
  void stage_acks();
  // Makes stage_acks() stage also those acks that may wait for later ones.
  void hurry_acks() { acks_due_ = true; }
  [[nodiscard]] bool acked() const { return acks_.empty(); }

 private:
  using ListedBlocks = std::array<ListedBlock, limits::kListedBlocks>;
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
  std::uint64_t current_ = 0;  // operation of the write whose last frame has not arrived; 0: none
  Code current_code_ = Code::kOk;
  bool current_fetched_ = false;
  std::unique_ptr<ListedBlocks> listed_;  // of the current kWriteBlocks frame; allocated at the first one
  std::unique_ptr<FetchBlocks> blocks_;   // allocated at the peer's first kFetch frame
  // headers of kFetch frames that are to be read together; value: number of blocks
  std::vector<FrameHeader> awaited_;
  std::vector<FetchBlock> awaited_blocks_;  // the blocks of these parts, in order
  std::uint64_t fetched_ = 0;
  std::uint64_t fetched_told_ = 0;
  Queue<Ack> acks_;
  bool acks_due_ = false;  // all acks that are there now
};

}  // namespace slime::transport::soft
