#pragma once

#include <cstdint>
#include <memory>

#include "transport/soft/frame_queue.h"

namespace slime::transport::soft {

// Handles the peer's reads and atomics. An atomic is executed when its request arrives. Answers are
// sent in the order of the requests. Thread: the loop.
class Answers {
 public:
  Answers(Link& link, FrameQueue& frames) : link_(link), frames_(frames) {}

  void on_read_request(const FrameHeader& header);
  // `expected`: the operand of a compare_swap.
  void on_atomic_request(const FrameHeader& header, std::uint64_t expected);
  // Stages the next frame of the oldest answer. Returns false if there is no answer to send.
  bool stage();
  // Fails the oldest answer with kNotFound, because its region was revoked while it was being sent.
  void cut() { answers_.front().code = Code::kNotFound; }

 private:
  struct Answer {
    std::uint64_t request = 0;
    std::shared_ptr<RegionRecord> record;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t staged = 0;
    Code code = Code::kOk;
    bool atomic = false;
    std::uint64_t old_value = 0;
  };

  bool take_request(const FrameHeader& header);
  Code execute(const FrameHeader& header, std::uint64_t expected, std::uint64_t& old_value);

  Link& link_;
  FrameQueue& frames_;
  Queue<Answer> answers_;
  std::uint64_t last_request_ = 0;  // the peer's newest
};

}  // namespace slime::transport::soft
