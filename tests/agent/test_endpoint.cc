// Endpoints: agents without a registry that connect to each other and accept each other.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "agent/endpoint.h"
#include "tests/agent/agents.h"

namespace slime::endpoint_test {
namespace {

using namespace slime::test;

Endpoint make(std::string name = {}, Progress progress = Progress::kThread) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = provider();
  options.progress = progress;
  return take(Endpoint::create(std::move(options)));
}

bool contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

TEST_CASE("an endpoint connects by another's info, which accepts it, and both use the connection") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  const std::string info = server.info().to_json();
  CHECK(info.size() < 200);
  Peer there = take(client.connect(info, kSoon));
  Peer here = take(server.accept(kSoon));
  CHECK(here.name() == "client");

  const auto memory = take(server.allocate("kv", 4096));
  const auto local = take(client.agent().allocate(4096, Rights::kLocal));
  std::memset(local.data(), 7, 4096);
  const auto remote = take(there.region("kv", kSoon));
  const std::vector<Copy> copies{{.local = local, .remote = remote, .length_bytes = 4096}};
  REQUIRE(there.write(copies, kSoon).wait().has_value());
  CHECK(memory.data()[4095] == std::byte{7});

  Future<Payload> received = there.recv(5, kSoon);
  REQUIRE(here.send(5, as_bytes("hello"), kSoon).wait().has_value());
  CHECK(as_text(take(received.wait()).bytes()) == "hello");
}

TEST_CASE("an endpoint connects by an address") {
  Endpoint server = make();
  Endpoint client = make("client");
  REQUIRE(client.connect(server.info().address, kSoon).has_value());
  CHECK(take(server.accept(kSoon)).name() == "client");
}

TEST_CASE("peers are accepted in the order in which they connected, each once") {
  Endpoint server = make();
  std::vector<Endpoint> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(make(str("client-", i)));
    REQUIRE(clients.back().connect(server.info(), kSoon).has_value());
  }
  for (int i = 0; i < 5; ++i) CHECK(take(server.accept(kSoon)).name() == str("client-", i));
  CHECK(code_of(server.accept(milliseconds(1))) == Code::kDeadlineExceeded);
}

TEST_CASE("a peer that connects again is accepted again") {
  Endpoint server = make();
  Endpoint client = make("client");
  for (int i = 0; i < 3; ++i) {
    Peer peer = take(client.connect(server.info(), kSoon));
    CHECK(take(server.accept(kSoon)).name() == "client");
    std::atomic<bool> ended{false};
    server.agent().on_disconnect([&](const std::string&, std::uint64_t) { ended = true; });
    REQUIRE(peer.disconnect().ok());
    REQUIRE(eventually([&] { return ended.load(); }));
  }
}

TEST_CASE("what connect and accept return is of that connection alone") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  Peer there = take(client.connect(server.info(), kSoon));
  const Peer here = take(server.accept(kSoon));
  CHECK(there.connection() == there.info().connection);
  CHECK(here.connection() == here.info().connection);
  CHECK(there.connect(kSoon).wait().has_value());

  REQUIRE(there.disconnect().ok());
  REQUIRE(eventually([&] { return here.info().state == "broken" && there.info().state == "broken"; }));
  const Peer again = take(client.connect(server.info(), kSoon));
  CHECK(again.connection() != there.connection());
  for (Peer ended : {there, here}) {
    const Status status = ended.connect(kSoon).wait().status();
    CHECK(status.code() == Code::kUnavailable);
    CHECK(contains(status.text(), "has ended"));
    CHECK_FALSE(status.maybe_executed());
    CHECK(code_of(ended.recv(1, kSoon).wait()) == Code::kUnavailable);
    CHECK(code_of(ended.of_connection(kSoon)) == Code::kUnavailable);
  }
  CHECK(client.agent().peer(server.info().address).connect(kSoon).wait().has_value());
}

TEST_CASE("a connection that a callback ends as it becomes ready is told and accepted all the same") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  std::atomic<std::uint64_t> connected{0};  // the first: the client may connect again
  std::atomic<std::uint64_t> ended{0};
  const auto note = [](std::atomic<std::uint64_t>& first, std::uint64_t connection) {
    std::uint64_t none = 0;
    first.compare_exchange_strong(none, connection);
  };
  server.agent().on_connect([&](const std::string& peer, std::uint64_t connection) {
    if (peer == "client") note(connected, connection);
  });
  server.agent().on_disconnect(
      [&](const std::string&, std::uint64_t connection) { note(ended, connection); });
  // Waits until the client connects, and is done in the turn in which the connection becomes ready.
  Peer named = server.agent().peer("client");
  named.wait_for_ready().connect(kSoon).then([&](const Result<None>&) { named.disconnect().ignore(); });
  client.connect(server.info(), kSoon).status().ignore();
  Peer here = take(server.accept(kSoon));
  CHECK(here.name() == "client");
  CHECK(here.connection() != 0);
  REQUIRE(eventually([&] { return ended.load() != 0; }));
  CHECK(connected == here.connection());
  CHECK(ended == here.connection());
  CHECK(code_of(here.connect(kSoon).wait()) == Code::kUnavailable);
}

TEST_CASE("the peer of a connection is found by the id that a handler gets") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  Peer there = take(client.connect(server.info(), kSoon));
  std::uint64_t connection = 0;
  rpc::Service service("who");
  REQUIRE(service.add("calls", [&](const rpc::CallInfo& info) { connection = info.connection; }).ok());
  REQUIRE(server.agent().serve(service).ok());
  REQUIRE(there.call<void>("who", "calls").wait().has_value());
  Peer here = take(server.agent().peer_of(connection));
  CHECK(here.name() == "client");
  CHECK(here.connection() == connection);
  CHECK(here.connect(kSoon).wait().has_value());
  REQUIRE(there.disconnect().ok());
  REQUIRE(eventually([&] { return code_of(server.agent().peer_of(connection)) == Code::kNotFound; }));
}

TEST_CASE("an endpoint that connects to itself accepts itself") {
  Endpoint self = make("self");
  const auto memory = take(self.allocate("kv", 64));
  Peer there = take(self.connect(self.info(), kSoon));
  Peer here = take(self.accept(kSoon));
  for (Peer peer : {there, here}) {
    Future<Payload> received = peer.recv(1, kSoon);
    REQUIRE(peer.send(1, as_bytes("me"), kSoon).wait().has_value());
    CHECK(as_text(take(received.wait()).bytes()) == "me");
    CHECK(peer.region("kv", kSoon).has_value());
  }
}

TEST_CASE("an endpoint that callers drive accepts") {
  Endpoint server = make("server", Progress::kCaller);
  Endpoint client = make("client");
  Future<None> connected = client.agent().peer(server.info().address).connect(kSoon);
  CHECK(take(server.accept(kSoon)).name() == "client");
  CHECK(connected.wait().has_value());
}

TEST_CASE("several threads accept, each its own peers") {
  Endpoint server = make();
  std::vector<std::string> names(4);
  std::vector<std::thread> threads;
  for (std::string& name : names)
    threads.emplace_back([&] {
      const auto peer = server.accept(kSoon);
      if (peer) name = peer->name();
    });
  std::vector<Endpoint> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(make(str("client-", i)));
    REQUIRE(clients.back().connect(server.info(), kSoon).has_value());
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(names.begin(), names.end());
  for (int i = 0; i < 4; ++i) CHECK(names[static_cast<std::size_t>(i)] == str("client-", i));
}

TEST_CASE("close() ends an accept() that waits") {
  Endpoint server = make();
  Code code = Code::kOk;
  std::thread waiting([&] { code = code_of(server.accept()); });
  REQUIRE(server.close().ok());
  waiting.join();
  CHECK(code == Code::kUnavailable);
  CHECK(code_of(server.accept()) == Code::kUnavailable);
}

TEST_CASE("a connection that the other side has opened outlives a connect with an old info") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  Peer there = take(server.connect(client.info(), kSoon));
  Peer here = take(client.accept(kSoon));
  EndpointInfo old = server.info();
  old.instance = InstanceId::random();
  CHECK(code_of(client.connect(old, kSoon)) == Code::kUnavailable);
  CHECK(there.info().state == "ready");
  CHECK(here.info().state == "ready");
  Future<Payload> received = there.recv(5, kSoon);
  REQUIRE(here.send(5, as_bytes("hello"), kSoon).wait().has_value());
  CHECK(as_text(take(received.wait()).bytes()) == "hello");
}

TEST_CASE("another process that has the address by now is refused, with both instances") {
  Endpoint server = make("server");
  Endpoint client = make("client");
  EndpointInfo old = server.info();
  old.instance = InstanceId::random();
  const Status status = client.connect(old, kSoon).status();
  CHECK(status.code() == Code::kUnavailable);
  CHECK(contains(status.text(), old.instance.to_string()));
  CHECK(contains(status.text(), server.info().instance.to_string()));
}

TEST_CASE("a wrong info is refused with the reason") {
  Endpoint client = make("client");
  for (const char* text : {"", "{}", "[]", "null", "{\"address\": 3}", "nowhere", "\xff:4000",
                           "{\"address\":\"127.0.0.1:4000\",\"instance\":\"12\"}",
                           "{\"address\":\"127.0.0.1\",\"instance\":\"00112233445566778899aabbccddeeff\"}"}) {
    CAPTURE(text);
    const Status status = client.connect(text).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(contains(status.text(), "not the info of an endpoint"));
  }
  CHECK(code_of(client.connect(std::string(5000, '{'))) == Code::kInvalidArgument);
}

TEST_CASE("an endpoint has no registry, and an address that others can connect to") {
  CHECK(code_of(Endpoint::create({.ctrl_url = "http://127.0.0.1:1"})) == Code::kInvalidArgument);
  const Status status = Endpoint::create({.listen = "0.0.0.0:0", .insecure = true}).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(contains(status.text(), "set advertise"));
}

TEST_CASE("an agent that keeps no peers says how accept() works") {
  auto agent = start("a");
  const Status status = agent->accept(milliseconds(1)).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(contains(status.text(), "accepts"));
}

TEST_CASE("on_connect is called for connections that peers open, and not for those of this agent") {
  auto a = start("a");
  auto b = start("b");
  std::atomic<int> at_a{0};
  std::atomic<int> at_b{0};
  a->on_connect([&](const std::string&, std::uint64_t) { ++at_a; });
  b->on_connect(
      [&](const std::string& peer, std::uint64_t connection) { at_b += peer == "a" && connection != 0; });
  REQUIRE(a->peer(b->address()).connect(kSoon).wait().has_value());
  CHECK(eventually([&] { return at_b == 1; }));
  CHECK(at_a == 0);
}

}  // namespace slime::endpoint_test
