#pragma once

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>

#include "base/probe.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/ctrl/raw_http.h"

namespace slime::ctrl::test {

// Answers one probe with the given bytes. Empty: accepts, and sends nothing until the client
// closes.
class FakeAgent {
 public:
  explicit FakeAgent(std::string reply) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = loopback(0);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(fd_.get(), 1) == 0);
    socklen_t size = sizeof at;
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address = str("127.0.0.1:", ntohs(at.sin_port));
    if (reply.empty()) return;
    thread_ = std::thread([this, text = std::move(reply)] {
      const UniqueFd peer(::accept(fd_.get(), nullptr, nullptr));
      std::size_t got = 0;
      while (got < sizeof request) {
        const ssize_t n =
            ::recv(peer.get(), reinterpret_cast<char*>(&request) + got, sizeof request - got, 0);
        if (n <= 0) return;
        got += static_cast<std::size_t>(n);
      }
      ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL);
    });
  }
  ~FakeAgent() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::string address;
  ProbeRequest request;

 private:
  UniqueFd fd_;
  std::thread thread_;
};

}  // namespace slime::ctrl::test
