#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slime {

// A network address as people write it: "127.0.0.1:7000", "[::1]:7000", "node7.example:7000".
struct Address {
  std::string host;  // a name or a numeric address, without brackets
  std::uint16_t port = 0;

  // Parses `text`. Errors: kInvalidArgument, whose text names the problem and shows a valid
  // address.
  static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  bool operator==(const Address&) const = default;
};

// The address of a socket, IPv4 or IPv6. Cheap to copy.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  // Makes the address of a numeric host, or of "localhost", which is 127.0.0.1. Returns
  // kInvalidArgument for any other name: a look-up may block, so the caller must do it where
  // blocking is allowed.
  static Result<SocketAddress> numeric(const Address& address);
  static Result<SocketAddress> of_socket(int fd);  // the local end
  static Result<SocketAddress> of_peer(int fd);    // the remote end

  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const { return length_; }
  // Returns true for 127.0.0.0/8, ::1 and their mapped forms, which cannot be reached from other
  // machines.
  [[nodiscard]] bool is_loopback() const;
  // Converts the address. An IPv4-mapped IPv6 address (::ffff:10.0.0.1) becomes the IPv4 address.
  [[nodiscard]] Address to_address() const;
  [[nodiscard]] std::string to_string() const { return to_address().to_string(); }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace slime
