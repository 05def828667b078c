#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/soft/ways.h"

namespace slime::transport::soft {

// Reads and writes of memory that the peer lets us map, and of what the kernel reads and writes for
// us: copied here, once, without the peer's program. They keep their place in the queues, so that
// notifications and barriers mean what they mean on the wire. Thread: the loop.
class DirectCopies {
 public:
  DirectCopies(Link& link, WayFinder& ways) : link_(link), ways_(ways) {}

  // Copies within the post: a batch that is short and has nothing in front of it; `most_moved`: bytes
  // that the kernel may move. False: the batch is posted like any other.
  bool copy_now(OneSided& operation, std::uint64_t most_moved);
  // Copies what is at the head of the queues, up to the end of this turn's step.
  void run();
  void begin_turn() { left_ = limits::kCopyStepBytes; }

 private:
  void count(const OneSided& operation);
  Code copy_blocks(OneSided& operation);
  std::size_t copy_together(Queue<Handle>& queue);
  void copy_head(Queue<Handle>& queue);
  bool end_copy(Queue<Handle>& queue, Handle handle, Code code);

  Link& link_;
  WayFinder& ways_;
  std::uint64_t left_ = limits::kCopyStepBytes;  // of this turn
  bool reads_first_ = false;
};

}  // namespace slime::transport::soft
