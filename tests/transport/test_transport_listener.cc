#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <memory>

#include "base/probe.h"
#include "tests/support/descriptors.h"
#include "tests/transport/inbox.h"
#include "tests/transport/tcp_host.h"
#include "transport/handshake.h"

namespace slime::transport::testing {
namespace {

Code listen_code(TcpHost& host, const std::string& address, bool insecure = false) {
  TestAcceptor acceptor;
  auto made = Listener::listen(*host.loop, *host.port, address, insecure, host.options, acceptor);
  return made.status().code();
}

// The server still takes in an honest peer.
void expect_alive(TcpServer& server) {
  Attempt honest(server, server.listener->address(), as("honest", server.options.token));
  CHECK(server.until([&] { return honest.done(); }));
  CHECK_MESSAGE(honest.connected(), honest.text());
}

TEST_CASE("a listener tells its real port and refuses bad or taken addresses") {
  TcpServer server;
  auto address = Address::parse(server.listener->address());
  REQUIRE(address.has_value());
  CHECK(address->host == "127.0.0.1");
  CHECK(address->port != 0);
  CHECK(listen_code(server, server.listener->address()) == Code::kAlreadyExists);
  CHECK(listen_code(server, "127.0.0.1") == Code::kInvalidArgument);
  CHECK(listen_code(server, "no-such-host:0") == Code::kInvalidArgument);
  CHECK(listen_code(server, "192.0.2.1:0", true) == Code::kInvalidArgument);  // not of this machine
  server.options.token = std::string(limits::kTokenBytes + 1, 't');
  CHECK(listen_code(server, "127.0.0.1:0") == Code::kInvalidArgument);
}

TEST_CASE("off loopback a listener needs a token, or the word insecure") {
  TcpHost host("host");
  CHECK(listen_code(host, "0.0.0.0:0") == Code::kPermissionDenied);
  CHECK(listen_code(host, "[::]:0") == Code::kPermissionDenied);
  CHECK(listen_code(host, "localhost:0") == Code::kOk);
  CHECK(listen_code(host, "0.0.0.0:0", true) == Code::kOk);
  host.options.token = "token";
  CHECK(listen_code(host, "0.0.0.0:0") == Code::kOk);
}

TEST_CASE("two peers connect, and both know who the other is") {
  TcpServer server("token");
  Attempt attempt(server, server.listener->address(), as("client", "token"), server.options.self);
  CHECK(attempt.calls == 0);  // never from inside connect()
  REQUIRE(server.until([&] { return attempt.done() && !server.acceptor.connected.empty(); }));
  REQUIRE_MESSAGE(attempt.connected(), attempt.text());
  const Connected& mine = **attempt.result;
  const Connected& theirs = server.acceptor.connected.front();
  CHECK(mine.initiator);
  CHECK_FALSE(theirs.initiator);
  CHECK(mine.peer.name == "server");
  CHECK(mine.peer.instance == server.options.self.instance);
  CHECK(theirs.peer.name == "client");
  CHECK(mine.address == server.listener->address());
  CHECK(theirs.address.starts_with("127.0.0.1:"));
  CHECK(mine.endpoint->describe().find(server.listener->address()) != std::string::npos);
  CHECK(server.acceptor.hellos == std::vector<std::string>{"client"});
  CHECK(server.port->endpoints() == 2);
}

TEST_CASE("what is sent right behind the handshake is not lost") {
  TcpServer server;
  Sending sending;
  server.acceptor.hook = [&] {
    const Bytes parts[] = {as_bytes("first words")};
    CHECK(server.acceptor.connected.back().endpoint->send(parts, sending).ok());
  };
  Attempt attempt(server, server.listener->address(), as("client"));
  REQUIRE(server.until([&] { return attempt.done() && sending.status; }));
  REQUIRE(attempt.connected());
  Inbox inbox;
  (**attempt.result).endpoint->set_receiver(inbox);
  CHECK(server.until([&] { return !inbox.texts.empty(); }));
  CHECK(inbox.texts == std::vector<std::string>{"first words"});
  attempt.result.reset();
}

TEST_CASE("a refusal by the acceptor travels with its code and text") {
  TcpServer server;
  server.acceptor.answer = Status(Code::kResourceExhausted, "we are full");
  Attempt attempt(server, server.listener->address(), as("client"));
  REQUIRE(server.until([&] { return attempt.done(); }));
  CHECK(attempt.code() == Code::kResourceExhausted);
  CHECK(attempt.text().find("we are full") != std::string::npos);
  CHECK(attempt.text().find(server.listener->address()) != std::string::npos);
  CHECK(server.acceptor.connected.empty());
  server.acceptor.answer = {};
  expect_alive(server);
}

TEST_CASE("a port without free slots refuses, and gives back what an attempt reserved") {
  PortOptions one;
  one.pool_slots = 8;
  one.base_credits = 8;
  one.max_credits = 8;
  TcpServer server({}, steady_clock(), one);
  TcpHost client("client");
  const auto both = [&](auto done) {
    return server.until([&] {
      client.loop->poll(Nanos::zero());
      return done();
    });
  };
  Attempt first(client, server.listener->address(), as("first"));
  REQUIRE(both([&] { return first.done(); }));
  CHECK(first.connected());
  Attempt second(client, server.listener->address(), as("second"));
  REQUIRE(both([&] { return second.done(); }));
  CHECK(second.code() == Code::kResourceExhausted);
  const std::uint32_t free_slots = client.port->free_slots();
  {
    const Attempt third(client, server.listener->address(), as("third"));
    REQUIRE(both([&] { return client.port->free_slots() == free_slots - limits::kBaseCredits; }));
    CHECK_FALSE(third.done());
  }
  CHECK(client.port->free_slots() == free_slots);
  first.result.reset();
}

TEST_CASE("a wrong token is unauthenticated, and the listener's owner never hears of it") {
  TcpServer server("right");
  Attempt wrong(server, server.listener->address(), as("client", "wrong"));
  Attempt none(server, server.listener->address(), as("client"));
  REQUIRE(server.until([&] { return wrong.done() && none.done(); }));
  CHECK(wrong.code() == Code::kUnauthenticated);
  CHECK(none.code() == Code::kUnauthenticated);
  CHECK(server.acceptor.hellos.empty());
  expect_alive(server);
}

TEST_CASE("somebody else under the expected name or instance is aborted") {
  TcpServer server;
  Attempt name(server, server.listener->address(), as("client"), {"other", {}});
  Attempt instance(server, server.listener->address(), as("client"), {"server", InstanceId::random()});
  REQUIRE(server.until([&] { return name.done() && instance.done(); }));
  CHECK(name.code() == Code::kAborted);
  CHECK(instance.code() == Code::kAborted);
  CHECK(server.acceptor.connected.empty());
}

TEST_CASE("the probe says yes to our instance and no to any other") {
  TcpServer server("token");
  for (const bool same : {true, false}) {
    RawClient client(server.listener->address());
    ProbeRequest request;
    request.instance = same ? server.options.self.instance.bytes : InstanceId::random().bytes;
    CHECK(client.send(std::as_bytes(std::span(&request, 1))) == sizeof request);
    CHECK(server.until([&] { return client.read(); }));
    ProbeReply reply;
    REQUIRE(client.received.size() == sizeof reply);
    std::memcpy(&reply, client.received.data(), sizeof reply);
    CHECK(reply.magic == kProbeMagic);
    CHECK(reply.same == (same ? 1 : 0));
  }
  CHECK(server.acceptor.hellos.empty());
}

TEST_CASE("strangers who speak something else are cut off without a word") {
  TcpServer server("token");
  for (const char* text :
       {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\n", "SSH-2.0-x\r\n", "SLHS\x09\x01\xff\xff"}) {
    CAPTURE(text);
    RawClient client(server.listener->address());
    client.send(as_bytes(text));
    CHECK(server.until([&] { return client.read(); }));
    CHECK(client.received.empty());
  }
  expect_alive(server);
}

TEST_CASE("somebody who never stops sending is cut off") {
  TcpServer server;
  RawClient client(server.listener->address());
  HandshakeHeader header;
  header.type = HandshakeFrame::kHello;
  header.body_bytes = limits::kHandshakeFrameBytes - sizeof header;
  client.send(std::as_bytes(std::span(&header, 1)));
  const ByteVector noise(64 * 1024, std::byte{'x'});
  std::size_t sent = 0;
  CHECK(server.until([&] {
    const ssize_t n = client.send(noise);
    if (n > 0) sent += static_cast<std::size_t>(n);
    return n < 0;
  }));
  MESSAGE("it had sent ", sent, " bytes, most of them into the kernel's buffers");
  expect_alive(server);
}

TEST_CASE("a slow writer does not get more than the time of a first proof") {
  ManualClock clock;
  TcpServer server({}, clock);
  RawClient slow(server.listener->address());
  Handshake::Config config;
  config.self.name = "slow";
  config.offers = {{"tcp", {}}};
  Handshake handshake = Handshake::initiator(std::move(config), {});
  const Bytes hello = handshake.output();
  Nanos spent{};
  std::size_t sent = 0;
  bool closed = false;
  while (!closed && spent < 2 * limits::kHandshakeTimeout && sent < hello.size()) {
    closed = slow.send(hello.subspan(sent++, 1)) < 0;
    for (int i = 0; i < 20; ++i) server.loop->poll(Nanos::zero());
    closed = closed || slow.read();
    clock.advance(std::chrono::milliseconds(250));
    spent += std::chrono::milliseconds(250);
  }
  CHECK(closed);
  CHECK(spent >= limits::kFirstProofTimeout);
  CHECK(spent <= limits::kFirstProofTimeout + std::chrono::milliseconds(500));
}

TEST_CASE("three hundred handshakes at once all succeed") {
  test::allow_descriptors(1500);
  TcpServer server("token");
  TcpHost clients("client", "token");
  std::deque<Attempt> attempts;
  for (int i = 0; i < 300; ++i)
    attempts.emplace_back(clients, server.listener->address(), as("client", "token"));
  std::size_t done = 0;
  CHECK(server.until([&] {
    clients.loop->poll(Nanos::zero());
    done = 0;
    for (const Attempt& attempt : attempts) done += attempt.done() ? 1 : 0;
    return done == attempts.size() && server.acceptor.connected.size() == attempts.size();
  }));
  for (const Attempt& attempt : attempts) CHECK_MESSAGE(attempt.connected(), attempt.text());
  CHECK(server.port->endpoints() == 300);
  attempts.clear();
  server.acceptor.connected.clear();
  CHECK(server.port->endpoints() == 0);
}

TEST_CASE("without descriptors the listener waits instead of spinning, and goes on when there are some") {
#ifdef SLIME_SANITIZER_NEEDS_DESCRIPTORS
  MESSAGE("skipped: the undefined-behaviour sanitizer itself needs descriptors");
  return;
#endif
  ManualClock clock;
  TcpServer server({}, clock);
  RawClient client(server.listener->address());
  {
    const test::FewDescriptors none(0);
    server.loop->poll(Nanos::zero());  // finds out
    CHECK(server.loop->next_timer() == clock.now() + limits::kAcceptBackoff);
    for (int i = 0; i < 10; ++i) CHECK_FALSE(server.loop->poll(Nanos::zero()));
    clock.advance(limits::kAcceptBackoff);
    CHECK(server.loop->poll(Nanos::zero()));  // looks again, in vain
    server.loop->poll(Nanos::zero());
    CHECK_FALSE(server.loop->poll(Nanos::zero()));
  }
  clock.advance(limits::kAcceptBackoff);
  ProbeRequest request;
  client.send(std::as_bytes(std::span(&request, 1)));
  CHECK(server.until([&] { return client.read(); }));
  CHECK(client.received.size() == sizeof(ProbeReply));
}

TEST_CASE("a listener that goes ends the handshakes under way") {
  TcpServer server;
  RawClient half(server.listener->address());
  half.send(as_bytes("SLHS"));
  for (int i = 0; i < 20; ++i) server.loop->poll(Nanos::zero());
  server.listener.reset();
  CHECK(server.until([&] { return half.read(); }));
  CHECK(server.loop->next_timer() == kNever);
}

TEST_CASE("a listener may go from inside on_connected") {
  TcpServer server;
  server.acceptor.hook = [&] { server.listener.reset(); };
  const std::string address = server.listener->address();
  Attempt attempt(server, address, as("client"));
  REQUIRE(server.until([&] { return attempt.done(); }));
  CHECK(attempt.connected());
  CHECK(server.until([&] { return server.acceptor.connected.size() == 1; }));
  Attempt late(server, address, as("client"));
  REQUIRE(server.until([&] { return late.done(); }));
  CHECK(late.code() == Code::kUnavailable);
}

TEST_CASE("IPv6 works as IPv4 does") {
  TcpHost host("server");
  TestAcceptor acceptor;
  auto listener = Listener::listen(*host.loop, *host.port, "[::1]:0", false, host.options, acceptor);
  if (!listener) {
    MESSAGE("skipped: this machine has no IPv6 loopback: ", listener.status().to_string());
    return;
  }
  CHECK((*listener)->address().starts_with("[::1]:"));
  Attempt attempt(host, (*listener)->address(), as("client"));
  REQUIRE(host.until([&] { return attempt.done() && !acceptor.connected.empty(); }));
  CHECK(attempt.connected());
  CHECK(acceptor.connected.front().address.starts_with("[::1]:"));
}

}  // namespace
}  // namespace slime::transport::testing
