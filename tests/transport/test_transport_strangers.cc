// Tests connections whose peers prove nothing: how long they may stay, and which of them is dropped
// for the next one. The clock is manual: a slow machine makes no connection late.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <deque>
#include <memory>

#include "base/probe.h"
#include "tests/support/descriptors.h"
#include "tests/transport/tcp_host.h"
#include "transport/handshake.h"
#include "transport/strangers.h"

namespace slime::transport::testing {
namespace {

constexpr std::size_t kPlaces = limits::kPendingHandshakes;

// A listener with a manual clock, and the strangers that fill it.
struct Crowd {
  explicit Crowd(std::string token = {}) : server(std::move(token), clock) { test::allow_descriptors(1500); }

  // Runs the loop until it has no more work.
  void settle() {
    int quiet = 0;
    for (int turn = 0; quiet < 20 && turn < 100'000; ++turn)
      quiet = server.loop->poll(Nanos::zero()) ? 0 : quiet + 1;
  }
  void advance(Nanos by) {
    clock.advance(by);
    settle();
  }
  RawClient& come(const std::string& from = "127.0.0.1") {
    RawClient& one = clients.emplace_back(server.listener->address(), from);
    server.loop->poll(Nanos::zero());
    return one;
  }
  void fill(std::size_t count, const std::string& from = "127.0.0.1") {
    for (std::size_t i = 0; i < count; ++i) come(from);
    settle();
  }
  std::size_t closed() {
    std::size_t out = 0;
    for (RawClient& client : clients) out += client.read() ? 1 : 0;
    return out;
  }
  [[nodiscard]] std::uint64_t evicted() const { return server.listener->strangers_evicted(); }

  ManualClock clock;
  TcpServer server;
  std::deque<RawClient> clients;
};

// A server that closes each connection at once.
class Closer {
 public:
  Closer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto any = SocketAddress::numeric({"127.0.0.1", 0});
    REQUIRE(any.has_value());
    REQUIRE(::bind(socket_.get(), any->data(), any->length()) == 0);
    REQUIRE(::listen(socket_.get(), 16) == 0);
  }
  [[nodiscard]] std::string address() const { return SocketAddress::of_socket(socket_.get())->to_string(); }
  void close_all() {
    while (UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid()) ++closed;
  }
  int closed = 0;

 private:
  UniqueFd socket_;
};

Handshake initiator(std::string token = {}) {
  Handshake::Config config;
  config.self = {"stranger", InstanceId::random()};
  config.token = std::move(token);
  config.offers = {{"tcp", {}}};
  return Handshake::initiator(std::move(config), {});
}

void say_hello(RawClient& client) {
  const Handshake handshake = initiator();
  REQUIRE(client.send(handshake.output()) == static_cast<ssize_t>(handshake.output().size()));
}

Source source(const std::string& host) {
  auto address = SocketAddress::numeric({host, 1});
  REQUIRE(address.has_value());
  return source_of(*address);
}

}  // namespace

TEST_CASE("a source is an IPv4 address, or the first half of an IPv6 address") {
  CHECK(source("10.0.0.1") == source("10.0.0.1"));
  CHECK(source("10.0.0.1") != source("10.0.0.2"));
  CHECK(source("::ffff:10.0.0.1") == source("10.0.0.1"));
  CHECK(source("::ffff:10.0.0.1") != source("::ffff:10.0.0.2"));
  CHECK(source("2001:db8:0:1::1") == source("2001:db8:0:1:ffff::2"));
  CHECK(source("2001:db8:0:1::1") != source("2001:db8:0:2::1"));
}

TEST_CASE("with all places taken, the oldest connection of the address that has most makes room") {
  Crowd crowd;
  crowd.fill(100, "127.0.0.3");  // older, but fewer
  crowd.fill(kPlaces - 100, "127.0.0.2");
  crowd.advance(limits::kSilentLeastTime);
  crowd.fill(2, "127.0.0.4");
  CHECK(crowd.evicted() == 2);
  CHECK(crowd.closed() == 2);
  CHECK(crowd.clients[100].read());  // the two oldest of the address with the most
  CHECK(crowd.clients[101].read());
}

TEST_CASE("nobody makes room before it has had time to speak") {
  Crowd crowd;
  crowd.fill(kPlaces);
  Attempt honest(crowd.server, crowd.server.listener->address(), as("honest"));
  crowd.advance(limits::kSilentLeastTime - std::chrono::milliseconds(1));
  CHECK_FALSE(honest.done());  // waits in the kernel's backlog
  CHECK(crowd.closed() == 0);
  crowd.advance(std::chrono::milliseconds(1));
  REQUIRE_MESSAGE(honest.connected(), honest.text());
  CHECK(crowd.evicted() == 1);
  CHECK(crowd.clients.front().read());
  CHECK(crowd.closed() == 1);
}

TEST_CASE("with all places taken by silent strangers, a probe is answered") {
  Crowd crowd("token");
  crowd.fill(kPlaces);
  crowd.advance(limits::kSilentLeastTime);
  RawClient& probe = crowd.come();
  const ProbeRequest request;
  REQUIRE(probe.send(std::as_bytes(std::span(&request, 1))) == sizeof request);
  crowd.settle();
  CHECK(probe.read());
  CHECK(probe.received.size() == sizeof(ProbeReply));
}

TEST_CASE("of one address, those who said nothing whole go before those who said HELLO") {
  Crowd crowd;
  say_hello(crowd.come());
  crowd.come().send(as_bytes("SLHS"));
  crowd.fill(kPlaces - 2);
  crowd.advance(limits::kSilentLeastTime);
  crowd.come();
  crowd.settle();
  CHECK(crowd.closed() == 1);
  CHECK(crowd.clients[1].read());
}

TEST_CASE("who said HELLO has time to answer the CHALLENGE, and then makes room as well") {
  Crowd crowd("token");
  for (std::size_t i = 0; i < kPlaces; ++i) say_hello(crowd.come());
  crowd.settle();
  crowd.fill(1);
  crowd.advance(limits::kAnswerLeastTime - std::chrono::milliseconds(1));
  CHECK(crowd.evicted() == 0);
  crowd.advance(std::chrono::milliseconds(1));
  CHECK(crowd.evicted() == 1);
  CHECK(crowd.clients.front().read());
}

TEST_CASE("what has come and was not read yet keeps a connection from making room") {
  Crowd crowd;
  crowd.fill(kPlaces);
  crowd.clock.advance(limits::kSilentLeastTime);
  say_hello(crowd.clients.front());
  crowd.clients.emplace_back(crowd.server.listener->address());
  crowd.settle();
  CHECK(crowd.evicted() == 1);
  CHECK_FALSE(crowd.clients[0].read());
  CHECK(crowd.clients[1].read());
}

TEST_CASE("who has proved to have the token never makes room, and what comes then waits") {
  Crowd crowd("token");
  std::deque<Handshake> peers;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    RawClient& client = crowd.come();
    Handshake& peer = peers.emplace_back(initiator("token"));
    client.send(peer.output());
    peer.sent(peer.output().size());
    REQUIRE(crowd.server.until([&] {
      client.read();
      return client.received.size() == sizeof(HandshakeHeader) + sizeof(HandshakeOpening);
    }));
    // Feeds the header first, which has the length of the rest.
    peer.feed(as_bytes(client.received).first(sizeof(HandshakeHeader)));
    peer.feed(as_bytes(client.received).subspan(sizeof(HandshakeHeader)));
    REQUIRE(peer.state() == Handshake::State::kDeciding);
    client.send(peer.output());  // AUTH, then nothing more
  }
  crowd.settle();
  CHECK(crowd.server.acceptor.hellos.size() == kPlaces);
  crowd.fill(1);
  crowd.advance(limits::kHandshakeTimeout - std::chrono::milliseconds(1));
  CHECK(crowd.evicted() == 0);
  CHECK(crowd.clients.back().send(as_bytes("x")) == 1);
  crowd.advance(std::chrono::milliseconds(1));  // the handshake timeout of the others
  CHECK(crowd.evicted() == 0);
  CHECK(crowd.clients.back().read());  // was accepted at last, and refused: not a HELLO
}

TEST_CASE("the first proof has one second: a right MAC where a token is set, else a whole HELLO") {
  for (const char* token : {"", "token"}) {
    CAPTURE(token);
    const bool anybody = *token == '\0';
    Crowd crowd(token);
    crowd.come();                         // sends nothing
    crowd.come().send(as_bytes("SLHS"));  // half a HELLO
    say_hello(crowd.come());              // a HELLO, then nothing
    crowd.settle();
    crowd.advance(limits::kFirstProofTimeout - std::chrono::milliseconds(1));
    CHECK(crowd.closed() == 0);
    crowd.advance(std::chrono::milliseconds(1));
    CHECK(crowd.closed() == (anybody ? 2 : 3));
    crowd.advance(limits::kHandshakeTimeout - limits::kFirstProofTimeout);
    CHECK(crowd.closed() == 3);
    CHECK(crowd.evicted() == 0);  // the listener was never full
  }
}

TEST_CASE("a peer that made room because it was slow to speak connects at its next try") {
  Crowd crowd;
  TcpHost slow("slow");
  Attempt attempt(slow, crowd.server.listener->address(), as("slow"));
  slow.loop->poll(Nanos::zero());  // connects, and says nothing
  crowd.fill(kPlaces - 1);
  crowd.advance(limits::kSilentLeastTime);
  crowd.fill(1);
  REQUIRE(crowd.evicted() == 1);
  CHECK(crowd.closed() == 0);  // so it was the slow one
  crowd.advance(limits::kSilentLeastTime);
  REQUIRE(crowd.server.until([&] {
    slow.loop->poll(Nanos::zero());
    return attempt.done();
  }));
  CHECK_MESSAGE(attempt.connected(), attempt.text());
}

TEST_CASE("a peer that ends every handshake without a word is given up") {
  TcpHost host("host");
  Closer closer;  // takes connections and closes them
  Attempt attempt(host, closer.address(), as("host"));
  REQUIRE(host.until([&] {
    closer.close_all();
    return attempt.done();
  }));
  CHECK(attempt.code() == Code::kUnavailable);
  CHECK(closer.closed == limits::kHandshakeRetries + 1);
}

TEST_CASE("a listener that was late hears what has come before it ends a handshake") {
  constexpr Nanos kLate = std::chrono::milliseconds(300);
  for (const char* token : {"", "token"}) {
    CAPTURE(token);
    const bool anybody = *token == '\0';
    Crowd crowd(token);
    crowd.come();  // sends nothing
    crowd.come();
    crowd.settle();
    say_hello(crowd.clients.back());
    crowd.advance(limits::kFirstProofTimeout + kLate);
    CHECK(crowd.clients.front().read());
    CHECK_FALSE(crowd.clients.back().read());
    // With a token the peer gets the lost time for its proof.
    crowd.advance(kLate - std::chrono::milliseconds(1));
    CHECK_FALSE(crowd.clients.back().read());
    crowd.advance(std::chrono::milliseconds(1));
    CHECK(crowd.clients.back().read() != anybody);
  }
}

}  // namespace slime::transport::testing
