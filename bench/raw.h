#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::bench {

// What the machine can do without Slime, measured between the same two processes and in the same wait mode:
// the limit that a figure is set against. Loopback TCP, one connection. Blocks.

// Accepts one connection on a free port and serves it in a thread until it ends: first byte 'e' echoes
// windows of `inflight` messages of `size` bytes, 's' swallows. The port.
Result<std::uint16_t> serve_raw(std::uint64_t size, std::uint32_t inflight, bool spin);

struct RawEcho {
  double p50_us = 0;
  double ops_per_s = 0;
};
// Windows of `inflight` messages there and back for `span`.
Result<RawEcho> raw_echo(std::uint16_t port, std::uint64_t size, std::uint32_t inflight, bool spin,
                         Nanos span);

// GB/s of one stream, in writes of `chunk` bytes out of a buffer of `buffer_bytes`.
Result<double> raw_stream(std::uint16_t port, std::size_t chunk, std::size_t buffer_bytes, Nanos span);

// GB/s of memcpy of blocks of `size` out of and into buffers of `buffer_bytes`.
double memcpy_speed(std::size_t size, std::size_t buffer_bytes, Nanos span);

}  // namespace slime::bench
