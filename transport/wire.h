#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/loop.h"
#include "transport/peer_memory.h"

namespace slime::transport {

// Who gets a wire's events: the engine. Called on the loop, never from inside a call to the wire. Both are
// level triggered: on_readable comes again, in a later turn, while something (bytes, or the end of the
// stream) is unread.
class WireHandler {
 public:
  virtual void on_readable() noexcept = 0;
  virtual void on_writable() noexcept = 0;  // only after want_write(true)
  // What PeerMemory::reach() says of a region that was asked for has changed.
  virtual void on_peer_memory() noexcept {}
  // The wire is gone: nothing more can be read or written. At most once; then no other call.
  virtual void on_broken(Status reason) noexcept = 0;

 protected:
  ~WireHandler() = default;
};

// What the software engine runs over: one reliable, ordered, non-blocking stream of bytes in each direction
// between two engines. tcp is a socket, sim a seeded pipe, shm a ring. Thread: the loop.
class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;  // closes, never from inside its own events; no event follows

  virtual void start(WireHandler& handler) = 0;
  // Takes a prefix of the gathered bytes and returns its length; 0 means full: on_writable follows after
  // want_write(true). The bytes are copied before it returns. An error is final and also the reason of the
  // break.
  virtual Result<std::size_t> write(std::span<const iovec> parts) = 0;
  // Fills a prefix of the parts and returns its length; 0 means that nothing is there now. The peer's end of
  // stream is the error kUnavailable.
  virtual Result<std::size_t> read(std::span<const iovec> parts) = 0;
  // A wire whose bytes lie in memory shows them: what peek() returns is the next of the stream, in one piece,
  // and stays there until skip() of some of it or read(). Whatever it shows may still be changed by the peer:
  // look at each byte once. Empty: nothing is there, or read() says why.
  [[nodiscard]] virtual bool shows() const { return false; }
  virtual Bytes peek() { return {}; }
  virtual void skip(std::size_t) {}
  virtual void want_write(bool wanted) = 0;
  // A write costs less than gathering messages for fewer of them would.
  [[nodiscard]] virtual bool cheap_writes() const { return false; }
  // How to reach the peer's memory beside the wire, where that is possible; it lives as long as the wire. The
  // peer reaches ours as the lender lets it. Once, before start().
  virtual PeerMemory* peer_memory(Lender&) { return nullptr; }
  // Takes back what was lent to the peer. The loan under which it may still be inside of a copy; null: none.
  virtual std::shared_ptr<const Loan> take_back() { return nullptr; }
  // Bytes that it has taken and that the peer's host has not acknowledged. 0 where nobody can tell.
  [[nodiscard]] virtual std::uint64_t backlog_bytes() const { return 0; }
  // Work waits for the peer (or not): a socket arms its keepalive.
  virtual void set_waiting(bool waiting) = 0;
  // For people: "tcp 127.0.0.1:40112 -> 127.0.0.1:7000".
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Over a connected TCP socket, non-blocking. For what is connected that way, whatever moves its bulk data.
// While work waits, `outage` is how long the peer may be unreachable.
Result<std::unique_ptr<Wire>> make_socket_wire(Loop& loop, UniqueFd socket, Nanos outage);

}  // namespace slime::transport
