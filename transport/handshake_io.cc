#include "transport/handshake_io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace slime::transport {

Status set_no_delay(int fd) {
  const int on = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return from_errno("TCP_NODELAY", errno);
  return {};
}

Result<UniqueFd> make_tcp_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.valid()) return from_errno("socket", errno);
  if (Status set = set_no_delay(fd.get()); !set.ok()) return set;
  return fd;
}

HandshakeIo::HandshakeIo(Loop& loop, UniqueFd socket, Handshake handshake, Decide decide, Finish finish)
    : loop_(loop),
      socket_(std::move(socket)),
      handshake_(std::move(handshake)),
      decide_(std::move(decide)),
      finish_(std::move(finish)) {}

HandshakeIo::~HandshakeIo() {
  loop_.cancel_timer(timer_);
  if (watched_) loop_.unwatch(socket_.get());
}

Status HandshakeIo::start(TimePoint deadline, TimePoint first_proof) {
  // The event loop sends the output: the socket is writable at once. So start() never calls Decide
  // or Finish itself.
  awaited_events_ = handshake_.output().empty() ? EPOLLIN : EPOLLOUT;
  SLIME_TRY(loop_.watch(socket_.get(), awaited_events_, *this));
  watched_ = true;
  deadline_ = deadline;
  end_at(std::min(deadline, first_proof));
  loop_.expect_soon();
  return {};
}

void HandshakeIo::end_at(TimePoint when) {
  timer_ = loop_.add_timer(when, [this, when] {
    timer_ = TimerId{};
    if (when < deadline_ && handshake_.proved()) return end_at(deadline_);
    // The loop runs this timer late, and bytes have arrived: the peer gets as much additional time
    // as the timer was late, and the bytes are read in that time.
    const TimePoint now = loop_.now();
    if (when < deadline_ && when < now && has_unread())
      return end_at(std::min(deadline_, deadline_after(now, now - when)));
    end(Status(Code::kDeadlineExceeded, "the handshake took too long"));
  });
}

bool HandshakeIo::has_unread() const {
  int bytes = 0;
  return ::ioctl(socket_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

UniqueFd HandshakeIo::take_socket() {
  SLIME_CHECK(!watched_);  // only when it has finished
  return std::move(socket_);
}

// Reads nothing while Decide's answer is awaited. The kernel still reports the end of the
// connection, again and again, so the handshake ends then and the descriptor is unwatched.
void HandshakeIo::on_fd_events(std::uint32_t events) noexcept {
  if (asked_ && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    hung_up_ = true;
    return end(Status(Code::kUnavailable, "it closed the connection during the handshake"));
  }
  pump();
}

void HandshakeIo::answered() {
  if (asking_ || !std::exchange(asked_, false)) return;
  pump();
}

void HandshakeIo::pump() {
  for (;;) {
    if (!flush()) return;
    switch (handshake_.state()) {
      case Handshake::State::kReading:
        if (!read_some()) return;
        break;
      case Handshake::State::kDeciding:
        if (asked_) return;
        asked_ = asking_ = true;
        decide_(handshake_);
        asking_ = false;
        if (handshake_.state() == Handshake::State::kDeciding) return await(0);
        asked_ = false;
        break;
      case Handshake::State::kDone:
      case Handshake::State::kProbed:
        if (handshake_.output().empty()) return end({});
        break;
      case Handshake::State::kFailed:
        if (handshake_.output().empty()) return end(handshake_.error());
        break;
    }
  }
}

// Sends the output. Returns false if the socket takes no more now, or sending has failed and
// finished the handshake.
bool HandshakeIo::flush() {
  while (!handshake_.output().empty()) {
    const Bytes out = handshake_.output();
    const ssize_t n = ::send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      handshake_.sent(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(EPOLLOUT);
      return false;
    } else if (errno != EINTR) {
      const int error = errno;
      // A handshake that has failed finishes with its own error, even if its refusal cannot be
      // sent.
      const bool failed = handshake_.state() == Handshake::State::kFailed;
      hung_up_ = !failed && (error == ECONNRESET || error == EPIPE);
      end(failed ? handshake_.error() : Status(Code::kUnavailable, from_errno("send", error).text()));
      return false;
    }
  }
  return true;
}

bool HandshakeIo::read_some() {
  std::array<std::byte, limits::kHandshakeFrameBytes> buffer;
  const std::size_t most = std::min(buffer.size(), handshake_.wanted());
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), most, 0);
    if (n > 0) {
      handshake_.feed(Bytes(buffer).first(static_cast<std::size_t>(n)));
      return true;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      loop_.expect_soon();
      await(EPOLLIN);
    } else if (n == 0) {
      hung_up_ = true;
      end(Status(Code::kUnavailable, "it closed the connection during the handshake"));
    } else {
      hung_up_ = errno == ECONNRESET;
      end(Status(Code::kUnavailable, from_errno("recv", errno).text()));
    }
    return false;
  }
}

void HandshakeIo::await(std::uint32_t events) {
  if (events == awaited_events_) return;
  if (Status changed = loop_.change_watch(socket_.get(), events); !changed.ok())
    return end(std::move(changed));
  awaited_events_ = events;
}

void HandshakeIo::end(Status status) {
  loop_.cancel_timer(timer_);
  if (watched_) loop_.unwatch(socket_.get());
  watched_ = false;
  // Moves the function out of this object, because the function may destroy the object.
  Finish finish = std::move(finish_);
  finish(std::move(status));
}

}  // namespace slime::transport
