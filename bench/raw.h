#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "bench/pages.h"

namespace slime::bench {

// The limits of messages through shared memory. Each side has a slot for each message in flight: a
// line with a number, and the bytes of the message from this line on. One slot without bytes is a
// ping-pong of two cache lines.
struct RingShape {
  std::uint64_t size = 0;  // of a message
  std::uint32_t slots = 1;
  bool spin = true;  // otherwise a wait sleeps in a futex
  [[nodiscard]] std::uint64_t slot_bytes() const;
  [[nodiscard]] std::uint64_t memory_bytes() const { return 2 * slots * slot_bytes(); }
};

struct RawEcho {
  double p50_us = 0;
  double ops_per_s = 0;
};

// Sends each message back, until the other side ends. Blocks.
void serve_ring(const Pages& memory, const RingShape& shape);

// Keeps all slots under way for `span`, and compares the replies. Blocks.
Result<RawEcho> ring_echo(const Pages& memory, const RingShape& shape, Nanos span);

// The limits of TCP, between the two processes of a measurement. The functions block.

struct TcpShape {
  std::uint64_t size = 0;          // bytes of a message, or of one send and one receive of a stream
  std::uint32_t inflight = 1;      // messages of one window
  bool spin = false;               // otherwise a wait blocks in the kernel
  int socket_bytes = 0;            // SO_SNDBUF and SO_RCVBUF; 0: the kernel chooses
  std::string host = "127.0.0.1";  // of the server, as a number
  std::uint64_t pass = 0;          // the client sends it first; 0: nothing, on loopback
  // of a stream: bytes of its source memory, and of its target memory
  std::size_t region_bytes = 0;
};

enum class TcpRole : std::uint8_t {
  kEcho,     // one connection, windows of messages there and back
  kReceive,  // one connection, bytes into memory of region_bytes
  kAccept,   // connection after connection, one message there and back over each, until the process ends
};

// Counts the threads that serve the other process now. Other threads wait for zero, to leave the
// cores to them.
using Busy = std::shared_ptr<std::atomic<int>>;

// Sockets of the shape's host with TCP_NODELAY. accept_tcp() returns no socket when the listener
// has ended.
struct TcpListener {
  UniqueFd fd;
  std::uint16_t port = 0;
};
Result<TcpListener> listen_tcp(const TcpShape& shape = {});
UniqueFd accept_tcp(int listener, const TcpShape& shape = {});
Result<UniqueFd> connect_tcp(std::uint16_t port, const TcpShape& shape = {});
// Sends or receives `size` bytes. kUnavailable when the connection ends before.
Status transfer(int fd, std::byte* data, std::size_t size, bool sending, bool spin);

// Serves a free port of the shape's host in a thread, which ends with its connection or with the
// process. Returns the port.
Result<std::uint16_t> serve_tcp(TcpRole role, const TcpShape& shape, const Busy& busy);

// Client of kEcho: sends windows there and back for `span`.
Result<RawEcho> tcp_echo(std::uint16_t port, const TcpShape& shape, Nanos span);
// Client of kReceive: sends from memory of region_bytes. Returns GB/s.
Result<double> tcp_stream(std::uint16_t port, const TcpShape& shape, Nanos span);
// Client of kAccept: connects `count` times, sends a message and receives it. Returns the median of
// the times of all that, in us.
Result<double> tcp_connections(std::uint16_t port, const TcpShape& shape, std::uint32_t count);

}  // namespace slime::bench
