#pragma once

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/address.h"

namespace slime::test {

// While it lives, cuts this process' connections from and to a port in both directions, like a
// pulled cable: a filter drops incoming packets before TCP sees them, so nothing is acknowledged.
// Connections made later are not cut.
class Blackhole {
 public:
  // `address`: "host:port" of either end of the connections.
  explicit Blackhole(const std::string& address) {
    const auto port = Address::parse(address);
    REQUIRE(port.has_value());
    sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &drop};
    constexpr int kDescriptors = 4096;
    for (int fd = 3; fd < kDescriptors; ++fd) {
      const auto ours = SocketAddress::of_socket(fd);
      const auto theirs = SocketAddress::of_peer(fd);
      if (!ours || !theirs) continue;
      if (ours->to_address().port != port->port && theirs->to_address().port != port->port) continue;
      REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
      sockets_.push_back(fd);
    }
    REQUIRE(sockets_.size() >= 2);
  }
  // A socket that was closed meanwhile has no filter to remove.
  ~Blackhole() {
    const int unused = 0;
    for (const int fd : sockets_) ::setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
  }
  Blackhole(const Blackhole&) = delete;
  Blackhole& operator=(const Blackhole&) = delete;

 private:
  std::vector<int> sockets_;
};

}  // namespace slime::test
