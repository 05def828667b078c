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

// Gets the events of a wire; the engine implements it. Called on the loop, never from inside a call
// to the wire. on_readable() and on_writable() are level triggered: on_readable() is called again,
// in a later turn, while bytes or the end of the stream are unread.
class WireHandler {
 public:
  virtual void on_readable() noexcept = 0;
  virtual void on_writable() noexcept = 0;  // only after want_write(true)
  // Called when PeerMemory::reach() would now give another answer than kAsked for a region.
  virtual void on_peer_memory() noexcept {}
  // Called when the wire is broken: nothing more can be read or written. Called at most once, as
  // the last call.
  virtual void on_broken(Status reason) noexcept = 0;

 protected:
  ~WireHandler() = default;
};

// The byte streams under the software engine: one in each direction between two engines, reliable,
// ordered, non-blocking. tcp implements it with a socket, sim with simulated pipes, shm with rings.
// Thread: the loop.
class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  // closes the wire; not to be called inside the wire's own events; no event follows
  virtual ~Wire() = default;

  virtual void start(WireHandler& handler) = 0;
  // Writes bytes from the beginning of `parts`, as many as the wire takes now, and returns their
  // number. 0: the wire is full; after want_write(true), on_writable() follows. The bytes are
  // copied before this returns. After an error, which is also the reason of the break, nothing can
  // be written.
  virtual Result<std::size_t> write(std::span<const iovec> parts) = 0;
  // Reads bytes into `parts`, as many as are there, and returns their number; 0: no bytes are there
  // now. Returns kUnavailable at the end of the stream.
  virtual Result<std::size_t> read(std::span<const iovec> parts) = 0;
  // shows() returns true if peek() gives access to the wire's bytes in memory. peek() returns the
  // next bytes of the stream that lie in one piece; they stay there until skip() or read(). The
  // peer may still change them, so read each byte once. Empty: no bytes are there, or read() would
  // return an error.
  [[nodiscard]] virtual bool shows() const { return false; }
  virtual Bytes peek() { return {}; }
  virtual void skip(std::size_t) {}
  virtual void want_write(bool wanted) = 0;
  // Returns true if a write costs less than gathering several messages for one write.
  [[nodiscard]] virtual bool cheap_writes() const { return false; }
  // Returns true if the bytes of a message that is larger than a receive slot go over the wire in
  // less time than the receiver reads them from the sender's memory. Both sides say the same.
  [[nodiscard]] virtual bool takes_long_messages() const { return false; }
  // Returns the access to the peer's memory without the wire, valid as long as the wire; null:
  // there is none. `Lender` decides which memory of this side the peer may use in the same way.
  // Call once, before start().
  virtual PeerMemory* peer_memory(Lender&) { return nullptr; }
  // Revokes all regions that were lent to the peer. Returns the loan under which the peer may still
  // be inside a copy; null: none.
  virtual std::shared_ptr<const Loan> take_back() { return nullptr; }
  // Returns how many bytes the wire has taken that the peer's host has not acknowledged; 0 if this
  // is unknown.
  [[nodiscard]] virtual std::uint64_t backlog_bytes() const { return 0; }
  // Tells the wire whether work waits for the peer: a socket then switches keepalive on.
  virtual void set_waiting(bool waiting) = 0;
  // For people: "tcp 127.0.0.1:40112 -> 127.0.0.1:7000".
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Makes a wire over a connected, non-blocking TCP socket. Any provider with such a connection may
// use it. `outage`: how long the peer may be unreachable while work waits for it.
Result<std::unique_ptr<Wire>> make_socket_wire(Loop& loop, UniqueFd socket, Nanos outage);

}  // namespace slime::transport
