#pragma once

#include <cstdint>

#include "transport/soft/frame_queue.h"
#include "transport/soft/payload.h"
#include "transport/soft/ways.h"

namespace slime::transport::soft {

// Sends the reads and atomics of this side that go over the wire, and handles their answers, which
// come in the order of the requests. Thread: the loop.
class RequestSender {
 public:
  RequestSender(Link& link, FrameQueue& frames, WayFinder& ways)
      : link_(link), frames_(frames), ways_(ways) {}

  void stage();
  // Handles the header of a kReadData frame: the local region of the oldest request becomes the
  // destination of the frame's payload.
  void begin_data(const FrameHeader& header, Payload& payload);
  void end_data(const FrameHeader& header) { asked_.front().received += header.payload_bytes; }
  void on_read_done(const FrameHeader& header);
  void on_atomic_reply(const FrameHeader& header);

 private:
  // A request without a complete answer.
  struct Asked {
    std::uint64_t request = 0;
    Handle operation;
    const CopyBlock* copy = nullptr;  // null: an atomic
    std::uint64_t received = 0;
  };

  void stage_read(Handle handle, OneSided& operation);
  void stage_atomic(Handle handle, OneSided& operation);
  [[nodiscard]] bool is_oldest(const FrameHeader& header, bool atomic);

  Link& link_;
  FrameQueue& frames_;
  WayFinder& ways_;
  Queue<Asked> asked_;
  std::uint64_t next_request_ = 1;
};

}  // namespace slime::transport::soft
