#include "transport/tcp/tcp_wire.h"

#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/check.h"
#include "base/str.h"

namespace slime::transport::tcp {
namespace {

constexpr std::uint32_t kAlways = EPOLLIN | EPOLLRDHUP;
constexpr std::uint32_t kGone = EPOLLERR | EPOLLHUP;
// The socket option TCP_RTO_MAX_MS of Linux 6.15, which the C library does not define: the longest
// pause between two retransmissions, in ms.
constexpr int kLongestPause = 44;
// A congestion control that does not pace. Every kernel has it, and every user may choose it.
constexpr std::string_view kUnpaced = "reno";

// Returns whether the error ends the connection, rather than only one call.
bool is_end(int error) {
  return error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH ||
         error == ENETUNREACH;
}

// Returns whether the error means that the kernel gave up: the peer acknowledged no data, or did
// not answer keepalive.
bool is_silence(int error) { return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH; }

std::string explain(std::string_view call, int error) {
  std::string text = from_errno(call, error).text();
  if (is_silence(error)) text += ": the peer's host is silent; it is down, or the path to it is";
  return text;
}

bool nothing_there(const iovec& part) { return part.iov_len == 0; }

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // the call only reads it
  message.msg_iovlen = std::min<std::size_t>(parts.size(), IOV_MAX);
  return message;
}

// Copies small parts of one write into a buffer, one behind the other. Thread: one.
class PackedParts {
 public:
  // Returns the parts of the same bytes. Valid until the next call.
  std::span<const iovec> pack(std::span<const iovec> parts) {
    if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(limits::kPackedBytes);
    packed_.clear();
    std::byte* end = buffer_.get();
    std::size_t room = limits::kPackedBytes;
    for (const iovec& part : parts) {
      if (part.iov_len == 0) continue;  // may have no address
      if (part.iov_len > std::min(limits::kPackedPart, room)) {
        packed_.push_back(part);
        continue;
      }
      std::memcpy(end, part.iov_base, part.iov_len);
      iovec* const last = packed_.empty() ? nullptr : &packed_.back();
      if (last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == end)
        last->iov_len += part.iov_len;
      else
        packed_.push_back({end, part.iov_len});
      end += part.iov_len;
      room -= part.iov_len;
    }
    return packed_;
  }

 private:
  std::unique_ptr<std::byte[]> buffer_;
  std::vector<iovec> packed_;
};

void set_number(int fd, int level, int option, int value) {
  // Ignores failures, because no option is needed: if a kernel refuses one, its own tuning and the
  // engine's deadlines still work.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

Result<std::unique_ptr<TcpWire>> TcpWire::create(Loop& loop, UniqueFd socket, Nanos outage) {
  const auto ours = SocketAddress::of_socket(socket.get());
  if (!ours) return ours.error();
  // Goes on without the peer's address: the socket of a connection that the peer has reset has
  // none, but the peer's last bytes can still be read.
  const auto theirs = SocketAddress::of_peer(socket.get());
  // the socket never was connected
  if (!theirs && ours->to_address().port == 0) return theirs.error();
  const int on = 1;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return from_errno("TCP_NODELAY", errno);
  if (theirs && theirs->is_loopback()) {
    set_number(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, limits::kLoopbackUnsentBytes);
    set_number(socket.get(), IPPROTO_TCP, TCP_WINDOW_CLAMP, limits::kLoopbackWindowBytes);
    // Loopback has no congestion: an algorithm that paces (BBR) would only delay the data.
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
  }
  std::string text =
      str("tcp ", ours->to_string(), " -> ", theirs ? theirs->to_string() : "a peer that is gone");
  return std::unique_ptr<TcpWire>(new TcpWire(loop, std::move(socket), outage, std::move(text)));
}

TcpWire::TcpWire(Loop& loop, UniqueFd socket, Nanos outage, std::string text)
    : loop_(loop), socket_(std::move(socket)), keepalive_(keepalive_for(outage)), text_(std::move(text)) {
  set_number(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, keepalive_.idle_seconds);
  set_number(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, keepalive_.interval_seconds);
  set_number(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, keepalive_.probes);
  socklen_t length = sizeof longest_pause_ms_;
  if (::getsockopt(socket_.get(), IPPROTO_TCP, kLongestPause, &longest_pause_ms_, &length) != 0)
    longest_pause_ms_ = 0;
}

TcpWire::~TcpWire() {
  loop_.cancel_timer(linger_);
  loop_.cancel_timer(failing_);
  if (watched_) loop_.unwatch(socket_.get());
}

void TcpWire::start(WireHandler& handler) {
  SLIME_CHECK(handler_ == nullptr);
  handler_ = &handler;
  Status watched = loop_.watch(socket_.get(), kAlways, *this);
  if (!watched.ok()) return fail_later(std::move(watched));
  watched_ = true;
  watched_events_ = kAlways;
}

// ------------------------------------------------------------------------------------------- bytes

Result<std::size_t> TcpWire::write(std::span<const iovec> parts) {
  static thread_local PackedParts packed;
  if (parts.size() >= limits::kPackedLeast) parts = packed.pack(parts);
  const msghdr message = message_of(parts);
  for (;;) {
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n >= 0) {
      wrote_at_ = loop_.now();
      if (armed_ && !sends_bounded_) bound_sends(true);
      return static_cast<std::size_t>(n);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (is_end(errno)) {
      // Reports no error yet: bytes that the peer sent before it went may still be unread. The
      // reader finds the end after them.
      write_error_ = errno;
      update_watch();
      return std::size_t{0};
    }
    if (errno != EINTR) return broken("sendmsg", errno);
  }
}

Result<std::size_t> TcpWire::read(std::span<const iovec> parts) {
  if (std::all_of(parts.begin(), parts.end(), nothing_there)) return std::size_t{0};
  msghdr message = message_of(parts);
  for (;;) {
    const ssize_t n = ::recvmsg(socket_.get(), &message, 0);
    if (n > 0) {
      read_something_ = true;
      return static_cast<std::size_t>(n);
    }
    if (n == 0) {
      ended_ = true;
      update_watch();
      return end_of_stream();
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return broken("recvmsg", errno);
  }
}

Status TcpWire::end_of_stream() const {
  if (write_error_ == 0 || write_error_ == EPIPE)
    return {Code::kUnavailable, "the peer closed the connection"};
  return {Code::kUnavailable, explain("sendmsg", write_error_)};
}

std::uint64_t TcpWire::backlog_bytes() const {
  int bytes = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

// Returns the error for the engine's call. No event follows, because the engine gets this error.
Status TcpWire::broken(std::string_view call, int error) {
  ended_ = true;
  update_watch();
  return {Code::kUnavailable, explain(call, error)};
}

void TcpWire::want_write(bool wanted) {
  want_write_ = wanted;
  update_watch();
}

void TcpWire::update_watch() {
  if (!watched_) return;
  if (ended_) {
    // Unwatches a socket that has ended: it stays readable for ever, so the loop would call the
    // handler again and again.
    loop_.unwatch(socket_.get());
    watched_ = false;
    return;
  }
  const std::uint32_t events = want_write_ && write_error_ == 0 ? kAlways | EPOLLOUT : kAlways;
  if (events == watched_events_) return;
  Status changed = loop_.change_watch(socket_.get(), events);
  if (!changed.ok()) return fail_later(std::move(changed));
  watched_events_ = events;
}

void TcpWire::on_fd_events(std::uint32_t events) noexcept {
  if ((events & (kAlways | kGone)) != 0) {
    read_something_ = false;
    handler_->on_readable();
    if (ended_) return;
    // The engine has read nothing in on_readable(): reports the reset, or another end of the
    // connection, here. Otherwise unread data is read first.
    if ((events & kGone) != 0 && !read_something_) {
      int error = 0;
      socklen_t length = sizeof error;
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      return break_with(error == 0 ? end_of_stream() : broken("the connection broke", error));
    }
  }
  if ((events & EPOLLOUT) != 0 && want_write_ && !ended_) handler_->on_writable();
}

// Reports the failure in the next turn, because the handler must not be called from inside a call
// to the wire.
void TcpWire::fail_later(Status reason) {
  if (failing_) return;
  failing_ = loop_.add_timer(loop_.now(), [this, why = std::move(reason)] {
    failing_ = TimerId{};
    if (!ended_) break_with(why);
  });
}

void TcpWire::break_with(Status reason) {
  ended_ = true;
  update_watch();
  handler_->on_broken(std::move(reason));
}

// ----------------------------------------------------------------------------------- a silent peer

void TcpWire::set_waiting(bool waiting) {
  waiting_ = waiting;
  if (waiting) {
    if (!armed_) arm_keepalive(true);
    return;
  }
  idle_since_ = loop_.now();
  if (armed_ && !linger_)
    linger_ = loop_.add_timer(deadline_after(idle_since_, limits::kKeepaliveLinger), [this] { on_linger(); });
}

void TcpWire::on_linger() {
  linger_ = TimerId{};
  if (waiting_) return;  // the next set_waiting(false) does this
  const TimePoint due = deadline_after(idle_since_, limits::kKeepaliveLinger);
  if (loop_.now() >= due) return arm_keepalive(false);
  linger_ = loop_.add_timer(due, [this] { on_linger(); });
}

void TcpWire::arm_keepalive(bool on) {
  armed_ = on;
  set_number(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, on ? 1 : 0);
  bound_sends(on && loop_.now() - wrote_at_ < limits::kKeepaliveRecent);
}

// Bounds how long sent data may stay unacknowledged (TCP_USER_TIMEOUT): keepalive finds a silent
// peer, but not one that acknowledges no data.
//
// The user timeout also changes keepalive: the kernel then counts the time since anything arrived,
// not the unanswered probes, so that one lost probe ends a connection that was idle for longer. The
// user timeout is therefore set only after data was sent: the acknowledgement of that data starts
// the time anew.
//
// While sent data is unacknowledged, the kernel retransmits it and sends no keepalive. Each pause
// between retransmissions is twice the one before, so the last retransmission before the timeout
// might fall into the outage. This function therefore bounds the pause, too.
void TcpWire::bound_sends(bool on) {
  if (sends_bounded_ == on) return;
  sends_bounded_ = on;
  set_number(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, on ? keepalive_.silent_ms() : 0);
  if (longest_pause_ms_ == 0) return;
  const int pause = 1000 * keepalive_.interval_seconds;
  set_number(socket_.get(), IPPROTO_TCP, kLongestPause,
             on ? std::min(pause, longest_pause_ms_) : longest_pause_ms_);
}

}  // namespace slime::transport::tcp

namespace slime::transport {

Result<std::unique_ptr<Wire>> make_socket_wire(Loop& loop, UniqueFd socket, Nanos outage) {
  auto wire = tcp::TcpWire::create(loop, std::move(socket), outage);
  if (!wire) return std::move(wire).error();
  return std::unique_ptr<Wire>(std::move(*wire));
}

}  // namespace slime::transport
