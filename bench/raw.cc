#include "bench/raw.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/histogram.h"

namespace slime::bench {
namespace {

constexpr std::size_t kStreamRead = 1 << 20;

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

void no_delay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void serve_connection(int fd, std::uint64_t size, std::uint32_t inflight, bool spin) {
  std::byte role{};
  if (!transfer(fd, &role, 1, false, false).ok()) return;
  if (role == std::byte{'s'}) {
    std::vector<std::byte> buffer(kStreamRead);
    while (::recv(fd, buffer.data(), buffer.size(), 0) > 0) {
    }
    return;
  }
  std::vector<std::byte> window(size * inflight);
  while (transfer(fd, window.data(), window.size(), false, spin).ok() &&
         transfer(fd, window.data(), window.size(), true, spin).ok()) {
  }
}

Result<UniqueFd> connect_raw(std::uint16_t port, char role) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return from_errno("socket", errno);
  const sockaddr_in address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return from_errno("connect", errno);
  }
  no_delay(fd.get());
  auto byte = static_cast<std::byte>(role);
  SLIME_TRY(transfer(fd.get(), &byte, 1, true, false));
  return fd;
}

}  // namespace

Result<std::uint16_t> serve_raw(std::uint64_t size, std::uint32_t inflight, bool spin) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return from_errno("socket", errno);
  sockaddr_in address = loopback(0);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return from_errno("bind", errno);
  if (listen(listener.get(), 1) != 0) return from_errno("listen", errno);
  socklen_t length = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return from_errno("getsockname", errno);
  }
  // Detached: it ends with its connection, or with the process, which lives for one measurement.
  std::thread([listener = std::move(listener), size, inflight, spin] {
    UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) return;
    no_delay(fd.get());
    serve_connection(fd.get(), size, inflight, spin);
  }).detach();
  return ntohs(address.sin_port);
}

Result<RawEcho> raw_echo(std::uint16_t port, std::uint64_t size, std::uint32_t inflight, bool spin,
                         Nanos span) {
  auto fd = connect_raw(port, 'e');
  if (!fd) return std::move(fd).error();
  std::vector<std::byte> window(size * inflight);
  Histogram latency;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    const TimePoint start = now;
    SLIME_TRY(transfer(fd->get(), window.data(), window.size(), true, spin));
    SLIME_TRY(transfer(fd->get(), window.data(), window.size(), false, spin));
    now = steady_clock().now();
    latency.add(static_cast<std::uint64_t>((now - start).count()));
  }
  const double seconds = std::chrono::duration<double>(now - begin).count();
  return RawEcho{latency.quantile(0.5) / 1000, static_cast<double>(latency.count()) * inflight / seconds};
}

Result<double> raw_stream(std::uint16_t port, std::size_t chunk, std::size_t buffer_bytes, Nanos span) {
  auto fd = connect_raw(port, 's');
  if (!fd) return std::move(fd).error();
  std::vector<std::byte> buffer(std::max(chunk, buffer_bytes), std::byte{1});
  std::size_t offset = 0;
  std::uint64_t total = 0;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    if (offset + chunk > buffer.size()) offset = 0;
    SLIME_TRY(transfer(fd->get(), buffer.data() + offset, chunk, true, false));
    offset += chunk;
    total += chunk;
    now = steady_clock().now();
  }
  return static_cast<double>(total) / static_cast<double>((now - begin).count());
}

double memcpy_speed(std::size_t size, std::size_t buffer_bytes, Nanos span) {
  const std::size_t bytes = std::max(size, buffer_bytes);
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  std::uint64_t total = 0;
  std::size_t offset = 0;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    for (int i = 0; i < 16; ++i) {
      if (offset + size > bytes) offset = 0;
      std::memcpy(to.data() + offset, from.data() + offset, size);
      asm volatile("" : : "r"(to.data()) : "memory");  // the copy is the point: keep it
      offset += size;
      total += size;
    }
    now = steady_clock().now();
  }
  return static_cast<double>(total) / static_cast<double>((now - begin).count());
}

}  // namespace slime::bench
