#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/transport/tcp_host.h"
#include "transport/handshake.h"
#include "transport/resolve.h"

namespace slime::transport::testing {
namespace {

// A listening socket whose owner does nothing, unless the test does.
class RawServer {
 public:
  RawServer() {
    auto any = SocketAddress::numeric({"127.0.0.1", 0});
    REQUIRE(any.has_value());
    fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    REQUIRE(::bind(fd_.get(), any->data(), any->length()) == 0);
    REQUIRE(::listen(fd_.get(), 16) == 0);
    auto real = SocketAddress::of_socket(fd_.get());
    REQUIRE(real.has_value());
    address = real->to_string();
  }
  UniqueFd accept() { return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  std::string address;

 private:
  UniqueFd fd_;
};

// A port that says when an endpoint is asked of it.
class WatchedPort final : public Port {
 public:
  WatchedPort(Port& port, UniqueFunction<Status()> on_prepare)
      : port_(port), on_prepare_(std::move(on_prepare)) {}
  Result<std::unique_ptr<PendingEndpoint>> prepare() override {
    ++prepared;
    SLIME_TRY(on_prepare_());
    return port_.prepare();
  }
  [[nodiscard]] std::size_t endpoints() const override { return port_.endpoints(); }
  [[nodiscard]] std::uint32_t free_slots() const override { return port_.free_slots(); }
  [[nodiscard]] PortCounters counters() const override { return port_.counters(); }
  int prepared = 0;

 private:
  Port& port_;
  UniqueFunction<Status()> on_prepare_;
};

// Answers a handshake as far as the bytes at hand go, without a loop.
class HandServer {
 public:
  [[nodiscard]] const std::string& address() const { return server_.address; }
  Handshake::State serve() {
    if (!socket_.valid()) socket_ = server_.accept();
    std::byte buffer[512];
    while (socket_.valid() && handshake_.wanted() > 0) {
      const ssize_t n =
          ::recv(socket_.get(), buffer, std::min(sizeof buffer, handshake_.wanted()), MSG_DONTWAIT);
      if (n <= 0) break;
      handshake_.feed(Bytes(buffer).first(static_cast<std::size_t>(n)));
      const Bytes out = handshake_.output();
      if (out.empty()) continue;
      REQUIRE(::send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL) == std::ssize(out));
      handshake_.sent(out.size());
    }
    return handshake_.state();
  }

 private:
  RawServer server_;
  UniqueFd socket_;
  Handshake handshake_ = Handshake::acceptor({{"server", {}}, {}, {}, {}, {}});
};

TEST_CASE("nobody there is unavailable, at once") {
  TcpHost host("client");
  std::string address;
  {
    const RawServer gone;
    address = gone.address;
  }
  Attempt attempt(host, address, as("client"), {"server", {}});
  CHECK_FALSE(attempt.done());
  REQUIRE(host.until([&] { return attempt.done(); }));
  CHECK(attempt.code() == Code::kUnavailable);
  CHECK(attempt.text().find("server at " + address) != std::string::npos);
  CHECK(host.loop->next_timer() == kNever);
}

TEST_CASE("a server that says nothing costs the timeout and no more") {
  ManualClock clock;
  TcpHost host("client", {}, clock);
  RawServer silent;
  Attempt attempt(host, silent.address, as("client"));
  for (int i = 0; i < 50; ++i) host.loop->poll(Nanos::zero());
  clock.advance(limits::kHandshakeTimeout - std::chrono::milliseconds(1));
  for (int i = 0; i < 50; ++i) host.loop->poll(Nanos::zero());
  CHECK_FALSE(attempt.done());
  clock.advance(std::chrono::milliseconds(1));
  REQUIRE(host.until([&] { return attempt.done(); }));
  CHECK(attempt.code() == Code::kDeadlineExceeded);
  CHECK(attempt.calls == 1);
}

TEST_CASE("the endpoint is made while the server, which has our proof by then, makes its own") {
  TcpHost host("client");
  HandServer server;
  Handshake::State seen{};
  WatchedPort port(*host.port, [&] {
    seen = server.serve();
    return Status();
  });
  const auto attempt =
      connect(*host.loop, port, server.address(), {}, as("client"), [](const Result<Connected>&) {});
  REQUIRE(host.until([&] {
    if (port.prepared == 0) server.serve();
    return port.prepared > 0;
  }));
  CHECK(seen == Handshake::State::kDeciding);
  CHECK(port.prepared == 1);
}

TEST_CASE("no endpoint is made for a server that does not answer") {
  TcpHost host("client");
  RawServer silent;
  WatchedPort port(*host.port, [] { return Status(); });
  const auto attempt =
      connect(*host.loop, port, silent.address, {}, as("client"), [](const Result<Connected>&) {});
  UniqueFd socket;
  REQUIRE(host.until([&] { return (socket = silent.accept()).valid(); }));
  std::byte byte{};
  REQUIRE(host.until([&] { return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1; }));
  for (int i = 0; i < 50; ++i) host.loop->poll(Nanos::zero());
  CHECK(port.prepared == 0);
}

TEST_CASE("a port that cannot make the endpoint ends the attempt, for both sides") {
  TcpServer server;
  TcpHost client("client");
  WatchedPort port(*client.port, [] { return Status(Code::kResourceExhausted, "no room here"); });
  Status end;
  const auto attempt = connect(*client.loop, port, server.listener->address(), {}, as("client"),
                               [&](Result<Connected> result) { end = std::move(result).error(); });
  REQUIRE(server.until([&] {
    client.loop->poll(Nanos::zero());
    return !end.ok() && server.port->free_slots() == limits::kPoolSlots && !server.acceptor.hellos.empty();
  }));
  CHECK(end.code() == Code::kResourceExhausted);
  CHECK(end.text().find("no room here") != std::string::npos);
  CHECK(server.acceptor.connected.empty());
  CHECK(server.loop->next_timer() == kNever);
}

TEST_CASE("a server that is no Slime agent is corrupt; one that hangs up is unavailable") {
  TcpHost host("client");
  RawServer http;
  Attempt attempt(host, http.address, as("client"));
  UniqueFd server;
  REQUIRE(host.until([&] { return (server = http.accept()).valid(); }));
  const std::string_view answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  REQUIRE(::send(server.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0);
  REQUIRE(host.until([&] { return attempt.done(); }));
  CHECK(attempt.code() == Code::kCorrupt);
  CHECK(attempt.text().find("not a Slime agent") != std::string::npos);

  Attempt hung_up(host, http.address, as("client"));
  REQUIRE(host.until([&] {
    server = http.accept();  // and ends the one before
    return hung_up.done();
  }));
  CHECK(hung_up.code() == Code::kUnavailable);
}

TEST_CASE("arguments that cannot work are told through the handler") {
  TcpHost host("client");
  for (const char* address : {"", "localhost", "127.0.0.1:0", "http://127.0.0.1:80"}) {
    CAPTURE(address);
    Attempt attempt(host, address, as("client"));
    CHECK_FALSE(attempt.done());
    REQUIRE(host.until([&] { return attempt.done(); }));
    CHECK(attempt.code() == Code::kInvalidArgument);
  }
  Attempt long_token(host, "127.0.0.1:9", as("client", std::string(limits::kTokenBytes + 1, 't')));
  Attempt long_name(host, "127.0.0.1:9", as("client"), {std::string(limits::kNameBytes + 1, 'n'), {}});
  REQUIRE(host.until([&] { return long_token.done() && long_name.done(); }));
  CHECK(long_token.code() == Code::kInvalidArgument);
  CHECK(long_name.code() == Code::kInvalidArgument);
}

TEST_CASE("an attempt that is dropped at any moment makes no call and leaves nothing behind") {
  TcpServer server;
  for (int turns = 0; turns < 40; ++turns) {
    auto attempt = std::make_unique<Attempt>(server, server.listener->address(), as("client"));
    for (int i = 0; i < turns && !attempt->done(); ++i) server.loop->poll(Nanos::zero());
    attempt.reset();
    for (int i = 0; i < 20; ++i) server.loop->poll(Nanos::zero());
    server.acceptor.connected.clear();
  }
  CHECK(server.until([&] { return server.loop->next_timer() == kNever; }));
  CHECK(server.port->endpoints() == 0);
  CHECK(server.port->free_slots() == limits::kPoolSlots);
}

TEST_CASE("a handler may drop its attempt") {
  TcpServer server;
  std::unique_ptr<Connecting> connecting;
  bool called = false;
  connecting = connect(*server.loop, *server.port, server.listener->address(), {}, as("client"),
                       [&](const Result<Connected>& result) {
                         called = result.has_value();
                         connecting.reset();
                       });
  CHECK(server.until([&] { return called; }));
  CHECK(connecting == nullptr);
}

TEST_CASE("a name is looked up, and each of its addresses is tried") {
  TcpServer server;  // on 127.0.0.1 only; localhost may be ::1 first
  const auto port = Address::parse(server.listener->address())->port;
  Attempt attempt(server, Address{"localhost", port}.to_string(), as("client"));
  REQUIRE(server.until([&] { return attempt.done(); }));
  CHECK_MESSAGE(attempt.connected(), attempt.text());
}

// A lookup function that waits until it is let go.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int inside = 0;
  void pass() {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
  }
  void wait_inside(int count) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return inside >= count; }));
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

TEST_CASE("a lookup answers on the loop, in a later turn") {
  TcpHost host("client");
  Resolver resolver([](const Address& address) -> Result<Addresses> {
    if (address.host == "nowhere") return Status(Code::kUnavailable, "no such name");
    return Addresses{*SocketAddress::numeric({"127.0.0.1", address.port})};
  });
  std::string found;
  Code missing = Code::kOk;
  std::thread::id where;
  auto one = resolver.ask(*host.loop, {"somewhere", 7}, [&](const Result<Addresses>& result) {
    where = std::this_thread::get_id();
    found = result ? result->front().to_string() : "";
  });
  auto two = resolver.ask(*host.loop, {"nowhere", 7},
                          [&](const Result<Addresses>& result) { missing = result.status().code(); });
  CHECK(found.empty());
  CHECK(host.until([&] { return !found.empty() && missing != Code::kOk; }));
  CHECK(found == "127.0.0.1:7");
  CHECK(missing == Code::kUnavailable);
  CHECK(where == std::this_thread::get_id());
}

TEST_CASE("a lookup that hangs outlives neither its question's loop nor calls it") {
  auto gate = std::make_shared<Gate>();
  auto resolver = std::make_unique<Resolver>([gate](const Address&) -> Result<Addresses> {
    gate->pass();
    return Addresses{};
  });
  bool called = false;
  {
    TcpHost host("client");
    const auto lookup =
        resolver->ask(*host.loop, {"slow", 1}, [&](const Result<Addresses>&) { called = true; });
    gate->wait_inside(1);
  }  // the loop is gone, the lookup is not
  gate->let_go();
  resolver.reset();  // waits for the thread
  CHECK_FALSE(called);
}

TEST_CASE("hanging lookups take a bounded number of threads") {
  auto gate = std::make_shared<Gate>();
  TcpHost host("client");
  Resolver resolver([gate](const Address&) -> Result<Addresses> {
    gate->pass();
    return Addresses{};
  });
  int answers = 0;
  std::vector<std::unique_ptr<Lookup>> lookups;
  constexpr int kQuestions = 3 * static_cast<int>(limits::kResolverThreads);
  for (int i = 0; i < kQuestions; ++i)
    lookups.push_back(resolver.ask(*host.loop, {"slow", 1}, [&](const Result<Addresses>&) { ++answers; }));
  gate->wait_inside(static_cast<int>(limits::kResolverThreads));
  lookups.back().reset();  // withdrawn while it waits
  {
    const std::lock_guard lock(gate->mutex);
    CHECK(gate->inside == static_cast<int>(limits::kResolverThreads));
  }
  gate->let_go();
  CHECK(host.until([&] { return answers == kQuestions - 1; }));
}

}  // namespace
}  // namespace slime::transport::testing
