#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slime {

// Where something listens, as people write it: "127.0.0.1:7000", "[::1]:7000", "node7.example:7000".
struct Address {
  std::string host;  // a name or a numeric address, without brackets
  std::uint16_t port = 0;

  // kInvalidArgument with what is wrong and what would be right.
  static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  bool operator==(const Address&) const = default;
};

// The address of a socket, IPv4 or IPv6. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  // Of a numeric host, or of "localhost", which is 127.0.0.1. kInvalidArgument for any other name: looking
  // one up may block, so it is the caller's decision where.
  static Result<SocketAddress> numeric(const Address& address);
  static Result<SocketAddress> of_socket(int fd);  // our end
  static Result<SocketAddress> of_peer(int fd);    // the other end

  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const { return length_; }
  // True for 127.0.0.0/8, ::1 and their mapped forms: nobody outside this machine gets there.
  [[nodiscard]] bool is_loopback() const;
  // An IPv4 address in IPv6 clothes (::ffff:10.0.0.1) is written as the IPv4 address that it is.
  [[nodiscard]] Address to_address() const;
  [[nodiscard]] std::string to_string() const { return to_address().to_string(); }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace slime
