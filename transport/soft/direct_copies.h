#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/soft/ways.h"

namespace slime::transport::soft {

// Makes those reads and writes that need no wire: the peer's memory is mapped here, or the kernel
// copies from or to it. Each byte is copied once, without the program of the peer. The operations
// keep their place in the queues, so that notifications and barriers mean the same as on the wire.
// Thread: the loop.
class DirectCopies {
 public:
  DirectCopies(Link& link, WayFinder& ways) : link_(link), ways_(ways) {}

  // Copies a batch within its post, if it is short and nothing is in front of it. `most_moved`:
  // most bytes that the kernel may copy. Returns false if the batch was not copied, or only in
  // part: it must then be posted.
  bool copy_now(OneSided& operation, std::uint64_t most_moved);
  // Copies operations from the heads of the queues, until the bytes of this turn are used up.
  void run();
  void begin_turn() { left_ = link_.port->pace.copy_bytes(); }

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
