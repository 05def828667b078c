#include "base/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/str.h"

namespace slime {
namespace {

constexpr std::size_t kHostBytes = 253;  // the longest DNS name

Status bad_address(std::string_view text, std::string_view why) {
  constexpr std::size_t kShown = 80;
  return Status(Code::kInvalidArgument, str("'", text.substr(0, kShown), "' is not an address: ", why,
                                            "; write host:port, such as 127.0.0.1:7000 or [::1]:7000"));
}

in_addr mapped_v4(const in6_addr& address) {
  in_addr out;
  std::memcpy(&out, address.s6_addr + 12, sizeof out);
  return out;
}

bool is_loopback_v4(in_addr address) { return (ntohl(address.s_addr) >> 24) == 127; }

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const auto odd = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), odd)) return bad_address(text, "it has blanks in it");
  if (text.find("://") != std::string_view::npos) return bad_address(text, "it is a URL");
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad_address(text, "the bracket is not closed");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.starts_with(':')) return bad_address(text, "it has no port");
    port.remove_prefix(1);
    if (host.find(':') == std::string_view::npos) return bad_address(text, "brackets are for IPv6");
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad_address(text, "it has no port");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos)
      return bad_address(text, "an IPv6 address needs brackets around it");
    if (host.find_first_of("[]") != std::string_view::npos) return bad_address(text, "a stray bracket");
  }
  if (host.empty()) return bad_address(text, "it has no host");
  if (host.size() > kHostBytes) return bad_address(text, "the host is too long");
  std::uint16_t number = 0;
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc{} || stop != port.data() + port.size())
    return bad_address(text, "the port is not a number from 0 to 65535");
  return Address{std::string(host), number};
}

std::string Address::to_string() const {
  return host.find(':') == std::string::npos ? str(host, ":", port) : str("[", host, "]:", port);
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

Result<SocketAddress> SocketAddress::numeric(const Address& address) {
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Status(Code::kInvalidArgument, str("'", address.host, "' is not a numeric address"));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  return SocketAddress(found->ai_addr, found->ai_addrlen);
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  SocketAddress out;
  out.length_ = sizeof out.storage_;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage_), &out.length_) != 0)
    return from_errno("getsockname", errno);
  return out;
}

Result<SocketAddress> SocketAddress::of_peer(int fd) {
  SocketAddress out;
  out.length_ = sizeof out.storage_;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage_), &out.length_) != 0)
    return from_errno("getpeername", errno);
  return out;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &storage_, sizeof in);
    return is_loopback_v4(in.sin_addr);
  }
  if (family() == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &storage_, sizeof in);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) return is_loopback_v4(mapped_v4(in.sin6_addr));
    return IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
  }
  return false;
}

Address SocketAddress::to_address() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &storage_, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(in.sin_port)};
  }
  if (family() == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &storage_, sizeof in);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      const in_addr v4 = mapped_v4(in.sin6_addr);
      ::inet_ntop(AF_INET, &v4, text.data(), text.size());
      return {text.data(), ntohs(in.sin6_port)};
    }
    ::inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
    std::string host(text.data());
    // Adds the interface, without which a link-local address is useless.
    if (in.sin6_scope_id != 0) host += str("%", in.sin6_scope_id);
    return {std::move(host), ntohs(in.sin6_port)};
  }
  return {"unknown", 0};
}

}  // namespace slime
