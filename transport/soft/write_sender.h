#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/soft/frame_queue.h"
#include "transport/soft/ways.h"

namespace slime::transport::soft {

// The writes of this side that are sent as frames, and their acks. Frames carry the bytes, or
// addresses from which the target reads them: copied once, under the checks that the target makes
// of every write. Thread: the loop.
class WriteSender {
 public:
  WriteSender(Link& link, FrameQueue& frames, WayFinder& ways) : link_(link), frames_(frames), ways_(ways) {}

  // Stages the next part. Returns false if there is none, if it has to wait, or if the link is
  // broken.
  bool stage();
  void on_ack(const FrameHeader& header);
  // The peer has handled this many bytes of fetches. Returns false if that is impossible: then the
  // link broke.
  bool on_fetched(std::uint64_t done);

 private:
  void stage_imm(Handle handle, OneSided& operation);
  void stage_bytes(Handle handle, OneSided& operation);
  bool stage_fetch(Handle handle, OneSided& operation);
  bool patient_write();

  Link& link_;
  FrameQueue& frames_;
  WayFinder& ways_;
  std::size_t patient_writes_ = 0;  // writes since the last one whose ack was wanted at once
  std::uint64_t patient_bytes_ = 0;
  std::uint64_t fetch_asked_ = 0;  // bytes that the peer was asked to read, since the beginning
  std::uint64_t fetch_done_ = 0;   // of these, bytes that the peer has handled
};

}  // namespace slime::transport::soft
