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

// Gets the events of a wire: the engine. Called on the loop, never from inside a call to the wire.
// on_readable and on_writable are level triggered: on_readable comes again, in a later turn, while
// something (bytes, or the end of the stream) is unread.
class WireHandler {
 public:
  virtual void on_readable() noexcept = 0;
  virtual void on_writable() noexcept = 0;  // only after want_write(true)
  // PeerMemory::reach() gives another answer now for a region that was asked for.
  virtual void on_peer_memory() noexcept {}
  // The wire is broken: nothing more can be read or written. Called at most once, as the last
  // call.
  virtual void on_broken(Status reason) noexcept = 0;

 protected:
  ~WireHandler() = default;
};

// The stream under the software engine: reliable, ordered, non-blocking, one in each direction
// between two engines. tcp is a socket, sim a seeded pipe, shm a ring. Thread: the loop.
class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;  // closes, never from inside its own events; no event follows

  virtual void start(WireHandler& handler) = 0;
  // Takes a prefix of the gathered bytes and returns its length; 0: full, and on_writable follows
  // after want_write(true). Copies the bytes before it returns. An error is final, and also the
  // reason of the break.
  virtual Result<std::size_t> write(std::span<const iovec> parts) = 0;
  // Fills a prefix of the parts and returns its length; 0: nothing is there now. The end of the
  // stream is the error kUnavailable.
  virtual Result<std::size_t> read(std::span<const iovec> parts) = 0;
  // Return true if the bytes of the wire lie in memory, where peek() shows them: the next bytes of
  // the stream, in one piece, which stay there until skip() of some of them or read(). The peer
  // may still change them: look at each byte once. Empty: nothing is there, or read() returns an
  // error.
  [[nodiscard]] virtual bool shows() const { return false; }
  virtual Bytes peek() { return {}; }
  virtual void skip(std::size_t) {}
  virtual void want_write(bool wanted) = 0;
  // Returns true if a write costs less than gathering messages for fewer writes.
  [[nodiscard]] virtual bool cheap_writes() const { return false; }
  // Returns how to reach the memory of the peer beside the wire, for as long as the wire lives;
  // null: not at all. The peer reaches memory of this side as the lender permits. Call once,
  // before start().
  virtual PeerMemory* peer_memory(Lender&) { return nullptr; }
  // Takes back the memory that was lent to the peer. Returns the loan under which the peer may
  // still be inside of a copy; null: none.
  virtual std::shared_ptr<const Loan> take_back() { return nullptr; }
  // Returns how many bytes the wire has taken that the host of the peer has not acknowledged; 0
  // where that cannot be told.
  [[nodiscard]] virtual std::uint64_t backlog_bytes() const { return 0; }
  // Says whether work waits for the peer: then a socket arms its keepalive.
  virtual void set_waiting(bool waiting) = 0;
  // For people: "tcp 127.0.0.1:40112 -> 127.0.0.1:7000".
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Makes a wire over a connected, non-blocking TCP socket. Any provider may use it for a connection
// that was made that way. While work waits, `outage` is how long the peer may be unreachable.
Result<std::unique_ptr<Wire>> make_socket_wire(Loop& loop, UniqueFd socket, Nanos outage);

}  // namespace slime::transport
