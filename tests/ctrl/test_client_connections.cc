#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/http/front.h"
#include "ctrl/http/replies.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/samples.h"

// How the client uses its connection, its addresses and its token.
namespace slime::ctrl::client_connections_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::has;
using test::HttpServer;
using test::loopback;

std::unique_ptr<Client> client_of(ClientOptions options) {
  options.timeout = 20s;
  Result<std::unique_ptr<Client>> made = Client::create(std::move(options));
  REQUIRE_MESSAGE(made, made.status().to_string());
  return std::move(*made);
}
std::unique_ptr<Client> client_of(const std::string& url) { return client_of(ClientOptions{.url = url}); }

// Accepts one connection after another, answers a given number of requests on each, and closes it
// instead of answering the next request.
class FakeServer {
 public:
  explicit FakeServer(std::vector<int> answers) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = loopback(0);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(fd_.get(), 8) == 0);
    socklen_t size = sizeof at;
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    url = str("http://127.0.0.1:", ntohs(at.sin_port));
    thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
  }
  ~FakeServer() { thread_.join(); }  // every expected connection must arrive
  std::string url;
  std::atomic<int> requests{0};

 private:
  void serve(const std::vector<int>& answers) {
    for (const int count : answers) {
      const UniqueFd peer(::accept(fd_.get(), nullptr, nullptr));
      for (int i = 0; read_request(peer.get()) && i < count; ++i) {
        constexpr std::string_view kReply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        ::send(peer.get(), kReply.data(), kReply.size(), MSG_NOSIGNAL);
      }
    }
  }
  // Returns false when the client has closed. The requests have no body.
  bool read_request(int fd) {
    std::string input;
    std::array<char, 4096> buffer;
    while (!input.ends_with("\r\n\r\n")) {
      const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) return false;
      input.append(buffer.data(), static_cast<std::size_t>(n));
    }
    ++requests;
    return true;
  }
  UniqueFd fd_;
  std::thread thread_;
};

// Returns whether a reply arrived. The fake's reply is not nanoctrl's, so the client reports
// kCorrupt.
bool answered(Client& client) { return client.server_status().error().code() == Code::kCorrupt; }

TEST_CASE("one connection serves call after call") {
  FakeServer server({3});
  const auto client = client_of(server.url);
  for (int i = 0; i < 3; ++i) CHECK(answered(*client));
}

TEST_CASE("a request whose kept connection breaks is sent again on a new one") {
  FakeServer server({1, 1});
  const auto client = client_of(server.url);
  CHECK(answered(*client));
  CHECK(answered(*client));
  CHECK(server.requests == 3);
}

TEST_CASE("a request whose new connection breaks is not sent again") {
  FakeServer server({0});
  const auto client = client_of(server.url);
  const Status status = client->server_status().error();
  CHECK(status.code() == Code::kUnavailable);
  CHECK(status.maybe_executed());
  CHECK(server.requests == 1);
}

// Returns a server with this epoch, which identifies it, on this port or a free port.
std::unique_ptr<HttpServer> server_at(std::uint64_t epoch, std::uint16_t port = 0) {
  ServerOptions options = test::small_server();
  options.port = port;
  options.registry.epoch = epoch;
  return std::make_unique<HttpServer>(options);
}
std::uint64_t epoch_of(Client& client) {
  const Result<ServerStatus> status = client.server_status();
  CHECK_MESSAGE(status, status.status().to_string());
  return status ? status->server_epoch : 0;
}

TEST_CASE("a client notices nothing of a restart between two calls") {
  auto server = server_at(1);
  const std::uint16_t port = server->server->port();
  const auto client = client_of(server->server->url());
  CHECK(epoch_of(*client) == 1);
  server.reset();
  server = server_at(2, port);
  CHECK(epoch_of(*client) == 2);
}

TEST_CASE("a server that hangs is skipped if there are others") {
  const UniqueFd hangs(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = loopback(0);
  REQUIRE(::bind(hangs.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(::listen(hangs.get(), 8) == 0);
  socklen_t size = sizeof at;
  REQUIRE(::getsockname(hangs.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const std::string silent = str("http://127.0.0.1:", ntohs(at.sin_port));
  const HttpServer server;
  const auto ask = [](const std::string& url) {
    ClientOptions options{.url = url};
    options.timeout = 200ms;
    Result<std::unique_ptr<Client>> client = Client::create(std::move(options));
    REQUIRE(client);
    return (*client)->server_status().status();
  };
  CHECK(ask(silent).code() == Code::kDeadlineExceeded);
  CHECK(ask(str(silent, ",", server.server->url())).ok());
}

TEST_CASE("when a server is gone the client uses the next, and stays with it") {
  auto first = server_at(1);
  const auto second = server_at(2);
  const std::uint16_t port = first->server->port();
  const auto client = client_of(str(first->server->url(), ",", second->server->url()));
  CHECK(epoch_of(*client) == 1);
  first.reset();
  CHECK(epoch_of(*client) == 2);
  first = server_at(3, port);
  CHECK(epoch_of(*client) == 2);
}

TEST_CASE("when all servers are gone the error names each") {
  std::string urls;
  {
    const auto first = server_at(1);
    const auto second = server_at(2);
    urls = str(first->server->url(), ",", second->server->url());
  }
  const auto client = client_of(urls);
  const Status status = client->server_status().error();
  CHECK(status.code() == Code::kUnavailable);
  CHECK_FALSE(status.maybe_executed());
  const std::size_t comma = urls.find(',');
  CHECK(has(status.text(), urls.substr(0, comma)));
  CHECK(has(status.text(), urls.substr(comma + 1)));
}

TEST_CASE("the token goes with each request, and into no error") {
  std::atomic<int> good{0};
  Result<std::unique_ptr<Front>> front = Front::bind({}, [&good](const ApiRequest& request) {
    if (request.authorization == "Bearer s3cret") ++good;
    return reply_error(401, Code::kUnauthenticated, "a token is needed", "");
  });
  REQUIRE(front);
  (*front)->start();
  const std::string url = str("http://127.0.0.1:", (*front)->port());
  const auto client = client_of({.url = url, .token = "s3cret"});
  for (int i = 0; i < 2; ++i) {
    const Status status = client->server_status().error();
    CHECK(status.code() == Code::kUnauthenticated);
    CHECK_FALSE(has(status.text(), "s3cret"));
  }
  CHECK(good == 2);
  (*front)->stop();
  CHECK_FALSE(has(client->server_status().error().text(), "s3cret"));
  const std::string bad[] = {"s3cret\n", "s3cret\r\nX: y", std::string("s3cret\0", 7),
                             std::string(5000, 's')};
  for (const std::string& token : bad) {
    const Status status = ClientOptions{.url = url, .token = token}.validate();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK_FALSE(has(status.text(), "s3cret"));
  }
}

}  // namespace
}  // namespace slime::ctrl::client_connections_test
