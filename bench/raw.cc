#include "bench/raw.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/address.h"
#include "bench/histogram.h"

namespace slime::bench {
namespace {

// Sets the buffers before connect() or listen(): later the window no longer grows with them.
Result<UniqueFd> make_socket(const TcpShape& shape, int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return from_errno("socket", errno);
  const int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (shape.socket_bytes > 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &shape.socket_bytes, sizeof shape.socket_bytes);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &shape.socket_bytes, sizeof shape.socket_bytes);
  }
  return fd;
}

void serve_connection(int fd, TcpRole role, const TcpShape& shape) {
  if (role == TcpRole::kReceive) {
    std::vector<std::byte> region(std::max<std::size_t>(shape.size, shape.region_bytes), std::byte{1});
    std::size_t offset = 0;
    for (ssize_t n = 1; n > 0; offset += static_cast<std::size_t>(n)) {
      if (offset + shape.size > region.size()) offset = 0;
      n = ::recv(fd, region.data() + offset, shape.size, 0);
    }
    return;
  }
  std::vector<std::byte> window(shape.size * shape.inflight);
  while (transfer(fd, window.data(), window.size(), false, shape.spin).ok() &&
         transfer(fd, window.data(), window.size(), true, shape.spin).ok()) {
  }
}

void serve_listener(int listener, TcpRole role, const TcpShape& shape) {
  do {
    const UniqueFd fd = accept_tcp(listener, shape);
    if (!fd.valid()) return;
    serve_connection(fd.get(), role, shape);
  } while (role == TcpRole::kAccept);
}

}  // namespace

Status transfer(int fd, std::byte* data, std::size_t size, bool sending, bool spin) {
  std::size_t done = 0;
  const int flags = (spin ? MSG_DONTWAIT : 0) | MSG_NOSIGNAL;
  while (done < size) {
    const ssize_t n =
        sending ? ::send(fd, data + done, size - done, flags) : ::recv(fd, data + done, size - done, flags);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return {Code::kUnavailable, "the raw connection ended"};
    } else if (errno != EAGAIN && errno != EINTR) {
      return from_errno("raw socket", errno);
    }
  }
  return {};
}

Result<UniqueFd> connect_tcp(std::uint16_t port, const TcpShape& shape) {
  const auto address = SocketAddress::numeric({shape.host, port});
  if (!address) return address.error();
  auto fd = make_socket(shape, address->family());
  if (!fd) return fd;
  if (::connect(fd->get(), address->data(), address->length()) != 0) return from_errno("connect", errno);
  if (shape.pass == 0) return fd;
  std::uint64_t pass = shape.pass;
  SLIME_TRY(transfer(fd->get(), reinterpret_cast<std::byte*>(&pass), sizeof pass, true, false));
  return fd;
}

Result<TcpListener> listen_tcp(const TcpShape& shape) {
  const auto address = SocketAddress::numeric({shape.host, 0});
  if (!address) return address.error();
  auto listener = make_socket(shape, address->family());
  if (!listener) return std::move(listener).error();
  if (bind(listener->get(), address->data(), address->length()) != 0) return from_errno("bind", errno);
  if (listen(listener->get(), SOMAXCONN) != 0) return from_errno("listen", errno);
  const auto bound = SocketAddress::of_socket(listener->get());
  if (!bound) return bound.error();
  return TcpListener{std::move(*listener), bound->to_address().port};
}

UniqueFd accept_tcp(int listener, const TcpShape& shape) {
  for (;;) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) return fd;
    const int one = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (shape.pass == 0) return fd;
    // A stranger that says nothing holds the port for this long.
    const timeval patience{.tv_sec = 1, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::uint64_t pass = 0;
    const bool whole = ::recv(fd.get(), &pass, sizeof pass, MSG_WAITALL) == sizeof pass;
    if (!whole || pass != shape.pass) continue;
    const timeval forever{};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    return fd;
  }
}

Result<std::uint16_t> serve_tcp(TcpRole role, const TcpShape& shape, const Busy& busy) {
  auto listener = listen_tcp(shape);
  if (!listener) return std::move(listener).error();
  const std::uint16_t port = listener->port;
  busy->fetch_add(1);
  // Detached: ends with its connection, or with the process, which lives for one measurement.
  std::thread([listener = std::move(listener->fd), role, shape, busy] {
    serve_listener(listener.get(), role, shape);
    busy->fetch_sub(1);
    busy->notify_all();
  }).detach();
  return port;
}

Result<RawEcho> tcp_echo(std::uint16_t port, const TcpShape& shape, Nanos span) {
  auto fd = connect_tcp(port, shape);
  if (!fd) return std::move(fd).error();
  std::vector<std::byte> window(shape.size * shape.inflight, std::byte{1});
  Histogram latency;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    const TimePoint start = now;
    SLIME_TRY(transfer(fd->get(), window.data(), window.size(), true, shape.spin));
    SLIME_TRY(transfer(fd->get(), window.data(), window.size(), false, shape.spin));
    now = steady_clock().now();
    latency.add(static_cast<std::uint64_t>((now - start).count()));
  }
  const double seconds = std::chrono::duration<double>(now - begin).count();
  return RawEcho{latency.quantile(0.5) / 1000,
                 static_cast<double>(latency.count()) * shape.inflight / seconds};
}

Result<double> tcp_stream(std::uint16_t port, const TcpShape& shape, Nanos span) {
  auto fd = connect_tcp(port, shape);
  if (!fd) return std::move(fd).error();
  std::vector<std::byte> buffer(std::max<std::size_t>(shape.size, shape.region_bytes), std::byte{1});
  std::size_t offset = 0;
  std::uint64_t total = 0;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    if (offset + shape.size > buffer.size()) offset = 0;
    SLIME_TRY(transfer(fd->get(), buffer.data() + offset, shape.size, true, false));
    offset += shape.size;
    total += shape.size;
    now = steady_clock().now();
  }
  // Bytes in a buffer of the kernel have not arrived: the other side closes when it has all bytes.
  shutdown(fd->get(), SHUT_WR);
  std::byte none{};
  while (::recv(fd->get(), &none, 1, 0) < 0 && errno == EINTR) {
  }
  now = steady_clock().now();
  return static_cast<double>(total) / static_cast<double>((now - begin).count());
}

Result<double> tcp_connections(std::uint16_t port, const TcpShape& shape, std::uint32_t count) {
  std::vector<std::byte> message(shape.size, std::byte{1});
  Histogram latency;
  for (std::uint32_t i = 0; i < count; ++i) {
    const TimePoint begin = steady_clock().now();
    auto fd = connect_tcp(port, shape);
    if (!fd) return std::move(fd).error();
    SLIME_TRY(transfer(fd->get(), message.data(), message.size(), true, false));
    SLIME_TRY(transfer(fd->get(), message.data(), message.size(), false, false));
    latency.add(static_cast<std::uint64_t>((steady_clock().now() - begin).count()));
  }
  return latency.quantile(0.5) / 1000;
}

}  // namespace slime::bench
