#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/str.h"
#include "base/unique_fd.h"
#include "ctrl/server.h"
#include "tests/support/eventually.h"

namespace slime::ctrl::test {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(port);
  return out;
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A TCP connection for raw HTTP bytes.
class RawConnection {
 public:
  // Connects from 127.0.0.`own`.
  explicit RawConnection(std::uint16_t port, std::uint32_t own = 1)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{30, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in from = loopback(0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + own);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
    const sockaddr_in to = loopback(port);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  // Returns false when the server has closed.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Reads until the server closes.
  std::string read_all() {
    while (receive()) {
    }
    return std::exchange(input_, {});
  }
  // Reads one reply, with its body unless `head`. Returns the bytes so far when the server closes.
  std::string read_reply(bool head = false) {
    std::size_t end = std::string::npos;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return std::exchange(input_, {});
    }
    end += 4;
    const std::size_t length = input_.find("Content-Length: ");
    if (!head && length < end) end += std::stoul(input_.substr(length + 16));
    while (input_.size() < end) {
      if (!receive()) return std::exchange(input_, {});
    }
    std::string out = input_.substr(0, end);
    input_.erase(0, end);
    return out;
  }
  // Ends the sending direction; reading remains possible.
  void finish() { ::shutdown(fd_.get(), SHUT_WR); }
  // Returns whether data or the end of the stream can be read; does not wait.
  [[nodiscard]] bool readable() const {
    pollfd look{fd_.get(), POLLIN, 0};
    return !input_.empty() || ::poll(&look, 1, 0) == 1;
  }
  // Waits until the server closes or sends; returns whether it closed.
  bool closed() { return !receive(); }

 private:
  bool receive() {
    std::array<char, 4096> buffer;
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    REQUIRE_MESSAGE((n >= 0 || errno != EAGAIN), "the server neither answers nor closes");
    if (n <= 0) return false;
    input_.append(buffer.data(), static_cast<std::size_t>(n));
    return true;
  }
  UniqueFd fd_;
  std::string input_;
};

// Returns the options of a server whose peers outlive a test that the machine held up.
inline ServerOptions small_server() {
  ServerOptions options;
  options.port = 0;
  options.registry.ttl = std::chrono::minutes(10);
  options.threads = 4;
  return options;
}

// A server in this process.
struct HttpServer {
  explicit HttpServer(ServerOptions options = small_server()) {
    Result<std::unique_ptr<Server>> bound = Server::bind(std::move(options));
    REQUIRE_MESSAGE(bound, bound.status().to_string());
    server = std::move(*bound);
    REQUIRE(server->start().ok());
  }
  // Sends the text on a new connection; returns the complete reply.
  [[nodiscard]] std::string exchange(const std::string& request) const {
    RawConnection connection(server->port());
    connection.send(request);
    return connection.read_all();
  }
  [[nodiscard]] bool has_watchers(std::size_t count) const {
    return slime::test::eventually([&] {
      ApiRequest request{"GET", "/v1/status", {}, {}};
      return has(server->api().handle(request).body, str("\"watchers\":", count));
    });
  }
  std::unique_ptr<Server> server;
};

inline std::string get(std::string_view target, std::string_view headers = {}) {
  return str("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n");
}
inline std::string post(std::string_view target, std::string_view body, std::string_view headers = {}) {
  return str("POST ", target,
             " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ",
             body.size(), "\r\n", headers, "\r\n", body);
}
// Returns a request that registers a peer of that name.
inline std::string enroll(std::string_view name) {
  return post("/v1/peers",
              str(R"({"name":")", name,
                  R"(","instance":"00000000000000000000000000000001","address":"127.0.0.1:1"})"));
}
inline const std::string kClose = "Connection: close\r\n";

}  // namespace slime::ctrl::test
