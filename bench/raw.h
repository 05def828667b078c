#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "bench/raw_ring.h"

namespace slime::bench {

// What loopback TCP can do without Slime, between the two processes of a measurement. Blocks.

struct TcpShape {
  std::uint64_t size = 0;      // of a message; of one send, and of one receive, of a stream
  std::uint32_t inflight = 1;  // messages of one window
  bool spin = false;           // else whoever waits blocks in the kernel
  int socket_bytes = 0;        // SO_SNDBUF and SO_RCVBUF; 0: what the kernel chooses
  std::size_t region_bytes =
      0;  // of a stream: the memory that it comes out of, and goes into; at least `size`
};

enum class TcpRole : std::uint8_t {
  kEcho,     // one connection, windows of messages there and back
  kReceive,  // one connection, bytes that are placed one behind the other in memory of region_bytes
  kAccept,   // connection after connection, one message there and back over each; for as long as we live
};

// Counts the threads that serve the other process right now: whoever else could take the cores from
// them waits until there is none.
using Busy = std::shared_ptr<std::atomic<int>>;

// Sockets of loopback with TCP_NODELAY. accept_loopback() returns none when the listener has ended.
struct LoopbackListener {
  UniqueFd fd;
  std::uint16_t port = 0;
};
Result<LoopbackListener> listen_loopback(const TcpShape& shape = {});
UniqueFd accept_loopback(int listener);
Result<UniqueFd> connect_loopback(std::uint16_t port, const TcpShape& shape = {});
// Sends or receives so many bytes. kUnavailable when the connection ends before.
Status transfer(int fd, std::byte* data, std::size_t size, bool sending, bool spin);

// Listens on a free port of loopback and serves it in a thread of its own, which ends with its
// connection or with the process. The port.
Result<std::uint16_t> serve_tcp(TcpRole role, const TcpShape& shape, const Busy& busy);

// The other end of kEcho: windows there and back for `span`.
Result<RawEcho> tcp_echo(std::uint16_t port, const TcpShape& shape, Nanos span);
// Of kReceive: GB/s, out of memory of region_bytes.
Result<double> tcp_stream(std::uint16_t port, const TcpShape& shape, Nanos span);
// Of kAccept: connects, sends a message and has it back. The time that took.
Result<Nanos> tcp_connect(std::uint16_t port, const TcpShape& shape);

}  // namespace slime::bench
