#pragma once

#include <cstdint>
#include <memory>

#include "transport/soft/frame_queue.h"

namespace slime::transport::soft {

// The peer's reads and atomics. Atomics are executed when their request arrives; only their answer
// waits for its turn behind the answers of older requests. Thread: the loop.
class Answers {
 public:
  Answers(Link& link, FrameQueue& frames) : link_(link), frames_(frames) {}

  void on_read_request(const FrameHeader& header);
  // `expected`: the operand of a compare_swap.
  void on_atomic_request(const FrameHeader& header, std::uint64_t expected);
  // Stages the next part of the oldest answer. Returns false if there is none.
  bool stage();
  // Ends the oldest answer early, because its region is gone.
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
