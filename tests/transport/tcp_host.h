#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/unique_fd.h"
#include "transport/connect.h"

namespace slime::transport::testing {

// A device and port on a loop of its own, which the test drives; tcp unless another provider is
// named.
struct TcpHost {
  explicit TcpHost(std::string name, std::string token = {}, const Clock& clock = steady_clock(),
                   PortOptions port_options = {}, const std::string& provider_name = "tcp") {
    auto made_loop = Loop::create({.clock = &clock});
    REQUIRE(made_loop.has_value());
    loop = *made_loop;
    auto provider = make_provider(provider_name);
    REQUIRE(provider.has_value());
    auto made_device = (*provider)->open_device();
    REQUIRE(made_device.has_value());
    device = std::move(*made_device);
    auto made_port = device->open_port(*loop, port_options);
    REQUIRE(made_port.has_value());
    port = std::move(*made_port);
    options.self = {std::move(name), InstanceId::random()};
    options.token = std::move(token);
    options.provider = provider_name;
  }

  // Drives the loop until `done()`; false after 20 s.
  template <class F>
  bool until(F done) {
    const TimePoint end = steady_clock().now() + std::chrono::seconds(20);
    while (!done()) {
      if (steady_clock().now() >= end) return false;
      loop->poll(std::chrono::milliseconds(1));
    }
    return true;
  }

  std::shared_ptr<Loop> loop;
  std::unique_ptr<Device> device;
  std::unique_ptr<Port> port;
  HandshakeOptions options;
};

// Keeps what a listener brings.
struct TestAcceptor final : Acceptor {
  Status on_hello(const PeerIdentity& peer) noexcept override {
    hellos.push_back(peer.name);
    return answer;
  }
  void on_connected(Connected one) noexcept override {
    connected.push_back(std::move(one));
    if (hook) hook();
  }
  Status answer;
  std::vector<std::string> hellos;
  std::vector<Connected> connected;
  UniqueFunction<void()> hook;
};

// A listening host.
struct TcpServer : TcpHost {
  explicit TcpServer(std::string token = {}, const Clock& clock = steady_clock(),
                     PortOptions port_options = {}, const std::string& provider_name = "tcp")
      : TcpHost("server", std::move(token), clock, port_options, provider_name) {
    listen("127.0.0.1:0");
  }
  ~TcpServer() {
    acceptor.connected.clear();
    listener.reset();
  }
  void listen(const std::string& at) {
    auto made = Listener::listen(*loop, *port, at, false, options, acceptor);
    REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
    listener = std::move(*made);
  }
  TestAcceptor acceptor;
  std::unique_ptr<Listener> listener;
};

// One connect() and how it ended.
struct Attempt {
  // Uses the loop and port of `host`, so that one loop drives both ends.
  Attempt(TcpHost& host, const std::string& address, HandshakeOptions options, PeerIdentity expected = {}) {
    connecting = connect(*host.loop, *host.port, address, std::move(expected), std::move(options),
                         [this](Result<Connected> r) {
                           ++calls;
                           result = std::make_unique<Result<Connected>>(std::move(r));
                         });
  }
  [[nodiscard]] bool done() const { return result != nullptr; }
  [[nodiscard]] bool connected() const { return done() && result->has_value(); }
  [[nodiscard]] Code code() const { return result ? result->status().code() : Code::kOk; }
  [[nodiscard]] std::string text() const { return result ? result->status().text() : std::string(); }

  int calls = 0;
  std::unique_ptr<Result<Connected>> result;
  std::unique_ptr<Connecting> connecting;
};

inline HandshakeOptions as(std::string name, std::string token = {}) {
  HandshakeOptions out;
  out.self = {std::move(name), InstanceId::random()};
  out.token = std::move(token);
  out.provider = "tcp";
  return out;
}

// A plain non-blocking socket of a client that follows no protocol.
class RawClient {
 public:
  // `from`: local address to connect from; empty: the kernel chooses.
  explicit RawClient(const std::string& address, const std::string& from = {}) {
    auto parsed = Address::parse(address);
    REQUIRE(parsed.has_value());
    auto target = SocketAddress::numeric(*parsed);
    REQUIRE(target.has_value());
    fd_ = UniqueFd(::socket(target->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(fd_.valid());
    if (!from.empty()) {
      auto source = SocketAddress::numeric({from, 0});
      REQUIRE(source.has_value());
      REQUIRE(::bind(fd_.get(), source->data(), source->length()) == 0);
    }
    REQUIRE(::connect(fd_.get(), target->data(), target->length()) == 0);
    REQUIRE(::fcntl(fd_.get(), F_SETFL, O_NONBLOCK) == 0);
  }
  // How many bytes were taken, -1 when the other end is gone.
  ssize_t send(Bytes bytes) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return n < 0 && errno == EAGAIN ? 0 : n;
  }
  // Takes in what is there now. True once the other end has closed.
  bool read() {
    char chunk[4096];
    for (;;) {
      const ssize_t n = ::recv(fd_.get(), chunk, sizeof chunk, 0);
      if (n > 0)
        received.append(chunk, static_cast<std::size_t>(n));
      else
        return n == 0 || errno != EAGAIN;
    }
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  std::string received;

 private:
  UniqueFd fd_;
};

}  // namespace slime::transport::testing
