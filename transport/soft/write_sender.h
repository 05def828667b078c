#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/soft/frame_queue.h"
#include "transport/soft/ways.h"

namespace slime::transport::soft {

// Sends those writes of this side that need frames, and handles their acks. A kWrite frame has the
// bytes of one block, a kWriteBlocks frame those of many short ones. A kFetch frame has addresses,
// from which the peer reads the bytes: they are copied once, and the peer makes the same checks as
// for other writes. Thread: the loop.
class WriteSender {
 public:
  WriteSender(Link& link, FrameQueue& frames, WayFinder& ways) : link_(link), frames_(frames), ways_(ways) {}

  // Stages the next frame of a write. Returns false if no write has one, if the write has to wait,
  // or if the link is broken.
  bool stage();
  void on_ack(const FrameHeader& header);
  // Notes that the peer has handled `done` of the bytes that kFetch frames have named since the
  // beginning. Returns false, and breaks the link, if that number is impossible.
  bool on_fetched(std::uint64_t done);

 private:
  void stage_imm(Handle handle, OneSided& operation);
  void stage_bytes(Handle handle, OneSided& operation);
  bool stage_list(Handle handle, OneSided& operation);
  [[nodiscard]] std::span<const CopyBlock> listed_copies(const OneSided& operation) const;
  std::uint8_t end_flags(OneSided& operation);
  bool stage_fetch(Handle handle, OneSided& operation);
  bool patient_write();

  Link& link_;
  FrameQueue& frames_;
  WayFinder& ways_;
  std::size_t patient_writes_ = 0;  // writes since the last write whose ack was asked for at once
  std::uint64_t patient_bytes_ = 0;
  std::uint64_t fetch_asked_ = 0;  // bytes that the peer was asked to read since the beginning
  std::uint64_t fetch_done_ = 0;   // bytes of fetch_asked_ that the peer has handled
};

}  // namespace slime::transport::soft
