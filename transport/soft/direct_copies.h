#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/soft/ways.h"

namespace slime::transport::soft {

// Reads and writes of peer memory that is mapped here, or that the kernel copies for this side.
// Each is copied once, without the peer's program. They keep their place in the queues, so that
// notifications and barriers have the same meaning as on the wire. Thread: the loop.
class DirectCopies {
 public:
  DirectCopies(Link& link, WayFinder& ways) : link_(link), ways_(ways) {}

  // Copies a batch within the post, if it is short and nothing is in front of it. `most_moved`:
  // most bytes that the kernel may move. Returns false if nothing was copied: the batch is posted
  // like any other.
  bool copy_now(OneSided& operation, std::uint64_t most_moved);
  // Copies operations at the head of the queues, up to the end of this turn's step.
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
