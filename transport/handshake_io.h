#pragma once

#include <string>

#include "base/function.h"
#include "base/unique_fd.h"
#include "transport/handshake.h"
#include "transport/loop.h"

namespace slime::transport {

// Runs one Handshake over one connected, non-blocking socket until it is over. Reads exactly the
// handshake's bytes: bytes that the peer sends after the handshake stay in the socket. Thread: the
// loop. The destructor closes the socket and calls neither Decide nor Finish.
class HandshakeIo final : private FdHandler {
 public:
  // Function called in kDeciding, inside an event, when all earlier output was sent. It answers the
  // handshake at once, or later: the caller then answers deciding() and calls answered().
  using Decide = UniqueFunction<void(Handshake&)>;
  // Function called once, last: with OK when the handshake is done and its bytes are sent
  // (take_socket() is allowed then), else with the error. It may destroy the HandshakeIo.
  using Finish = UniqueFunction<void(Status)>;

  HandshakeIo(Loop& loop, UniqueFd socket, Handshake handshake, Decide decide, Finish finish);
  ~HandshakeIo();
  // Starts the handshake. It finishes with kDeadlineExceeded at `deadline`, and already at
  // `first_proof` if the peer has not proved itself by then. If the loop is late at `first_proof`,
  // the bytes that have arrived are read first.
  Status start(TimePoint deadline, TimePoint first_proof = kNever);

  [[nodiscard]] const Handshake& handshake() const { return handshake_; }
  // Returns the handshake in kDeciding, to be answered; call answered() after the answer. Inside
  // Decide, answered() is not needed. answered() may finish the handshake, and so destroy this
  // object.
  [[nodiscard]] Handshake& deciding() { return handshake_; }
  void answered();
  // Returns whether the socket has unread bytes of the peer.
  [[nodiscard]] bool has_unread() const;
  // Returns true if the peer ended the connection without giving a reason.
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
  bool asked_ = false;  // Decide was called, and the handshake still waits for the answer
  bool asking_ = false;
};

// Makes a non-blocking, close-on-exec TCP socket with TCP_NODELAY.
Result<UniqueFd> make_tcp_socket(int family);
Status set_no_delay(int fd);

}  // namespace slime::transport
