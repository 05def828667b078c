#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "bench/pages.h"

namespace slime::bench {

// What two processes can say to each other through shared memory, without Slime: each side has one slot for
// each message under way. A slot is a line with a number, and the bytes of the message in it and behind it.
// With one slot and no bytes it is the ping-pong of two cache lines.
struct RingShape {
  std::uint64_t size = 0;  // of a message
  std::uint32_t slots = 1;
  bool spin = true;  // else whoever waits sleeps in a futex
  [[nodiscard]] std::uint64_t slot_bytes() const;
  [[nodiscard]] std::uint64_t memory_bytes() const { return 2 * slots * slot_bytes(); }
};

struct RawEcho {
  double p50_us = 0;
  double ops_per_s = 0;
};

// Sends back what comes, until the other side ends. Blocks.
void serve_ring(const Pages& memory, const RingShape& shape);

// Keeps all slots under way for `span`, and compares what comes back. Blocks.
Result<RawEcho> ring_echo(const Pages& memory, const RingShape& shape, Nanos span);

}  // namespace slime::bench
