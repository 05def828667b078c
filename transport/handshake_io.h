#pragma once

#include <string>

#include "base/function.h"
#include "base/unique_fd.h"
#include "transport/handshake.h"
#include "transport/loop.h"

namespace slime::transport {

// Runs one Handshake over one connected, non-blocking socket until it is over. Reads exactly the
// handshake's bytes, so what the peer sends behind them stays in the socket. Thread: the loop.
// Destroying it closes the socket and ends everything without a call.
class HandshakeIo final : private FdHandler {
 public:
  // Called in kDeciding, inside an event, when all earlier output has been handed to the kernel.
  // Answers the handshake now, or arranges a later answer through answered().
  using Decide = UniqueFunction<void(Handshake&)>;
  // Called once, last: OK when the handshake is done and its bytes are sent (the socket may be
  // taken), else why not. May destroy the HandshakeIo.
  using Finish = UniqueFunction<void(Status)>;

  HandshakeIo(Loop& loop, UniqueFd socket, Handshake handshake, Decide decide, Finish finish);
  ~HandshakeIo();
  // Finishes with kDeadlineExceeded at `deadline`, or at `first_proof` if the peer has not proved
  // itself. A loop that is late at `first_proof` first reads the bytes that have arrived.
  Status start(TimePoint deadline, TimePoint first_proof = kNever);

  [[nodiscard]] const Handshake& handshake() const { return handshake_; }
  // Returns the handshake in kDeciding, for an answer. Call answered() after the answer; inside
  // Decide it takes effect when Decide returns. answered() may finish the handshake, and so destroy
  // this object.
  [[nodiscard]] Handshake& deciding() { return handshake_; }
  void answered();
  // Returns whether the socket has unread bytes of the peer.
  [[nodiscard]] bool has_unread() const;
  // Returns whether the peer ended the connection without a reason.
  [[nodiscard]] bool hung_up() const { return hung_up_; }
  UniqueFd take_socket();

 private:
  void on_fd_events(std::uint32_t events) noexcept override;
  void pump();
  bool flush();
  bool read_some();
  void await(std::uint32_t events);
  void end_at(TimePoint when);
  void end(Status status);

  Loop& loop_;
  UniqueFd socket_;
  Handshake handshake_;
  Decide decide_;
  Finish finish_;
  TimePoint deadline_ = kNever;
  TimerId timer_;
  std::uint32_t awaited_events_ = 0;
  bool watched_ = false;
  bool hung_up_ = false;
  bool asked_ = false;  // Decide was called for the handshake's current state
  bool asking_ = false;
};

// A non-blocking, close-on-exec TCP socket without Nagle's delay.
Result<UniqueFd> make_tcp_socket(int family);
Status set_no_delay(int fd);

}  // namespace slime::transport
