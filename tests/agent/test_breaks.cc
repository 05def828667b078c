// Peers that are absent, not there yet, gone, or another instance than expected.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/address.h"
#include "base/unique_fd.h"
#include "tests/agent/agents.h"
#include "tests/transport/tcp_host.h"

namespace slime {
namespace {

using namespace test;

// A loopback port without a listener: bound, so that no other process takes it.
class ClosedPort {
 public:
  ClosedPort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const auto any = take(SocketAddress::numeric({"127.0.0.1", 0}));
    REQUIRE(::bind(fd_.get(), any.data(), any.length()) == 0);
  }
  std::string address() const { return take(SocketAddress::of_socket(fd_.get())).to_string(); }

 protected:
  UniqueFd fd_;
};

// One that takes connections and never says a word.
class SilentPort : public ClosedPort {
 public:
  SilentPort() { REQUIRE(::listen(fd_.get(), 16) == 0); }
};

std::unique_ptr<PeerAgent> start_at(std::string name, const std::string& address) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = provider();
  options.listen = address;
  std::unique_ptr<PeerAgent> out;
  // The kernel may hold the port for a moment after the last owner.
  REQUIRE(eventually([&] {
    auto agent = PeerAgent::start(options);
    if (agent) out = std::move(*agent);
    return out != nullptr;
  }));
  rpc::Service service = calculator();
  REQUIRE(out->serve(service).ok());
  return out;
}

TEST_CASE("an absent peer: kUnavailable at once, then calls fail fast with the state and the reason") {
  const ClosedPort nobody;
  auto agent = start("a");
  Peer peer = agent->peer(nobody.address());
  const auto first = peer.call<int>("calc", "add").wait(kSoon);
  CHECK(code_of(first) == Code::kUnavailable);
  CHECK_FALSE(first.status().maybe_executed());
  CHECK(has_state(peer, "backoff"));
  // The first pause may be over before a slow machine asks again; the next ones are longer.
  CHECK(eventually([&] {
    const auto next = peer.call<int>("calc", "add").wait(kSoon);
    REQUIRE(code_of(next) == Code::kUnavailable);
    return next.status().text().find("backoff, next attempt in ") != std::string::npos;
  }));
}

TEST_CASE("a call that waits for readiness runs when the peer comes, or ends at its deadline") {
  auto nobody = std::make_unique<ClosedPort>();
  const std::string address = nobody->address();
  auto agent = start("a");
  Peer peer = agent->peer(address).wait_for_ready();
  CHECK(code_of(peer.connect(milliseconds(100)).wait(kSoon)) == Code::kDeadlineExceeded);
  auto sent = peer.send(1, as_bytes("at last"));  // not a call: it may come before the service
  CHECK_FALSE(sent.wait_done(milliseconds(100)));
  nobody.reset();
  auto b = start_at("b", address);
  CHECK(sent.wait(kSoon).has_value());
  CHECK(as_text(take(b->peer("a").recv(1).wait(kSoon)).bytes()) == "at last");
}

TEST_CASE("a peer that takes connections and says nothing: the deadline ends the operation") {
  const SilentPort silent;
  auto agent = start("a");
  const auto before = std::chrono::steady_clock::now();
  const auto result =
      agent->peer(silent.address()).with_timeout(milliseconds(150)).call<int>("s", "m").wait(kSoon);
  CHECK(code_of(result) == Code::kDeadlineExceeded);
  CHECK(result.status().text().find("the peer has not answered the handshake") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - before < patient(seconds(2)));
}

TEST_CASE("a wrong token is kUnauthenticated, and stays so while attempts are held back") {
  PeerAgentOptions options;
  options.name = "guarded";
  options.token = "right";
  auto guarded = start(options);
  options.name = "stranger";
  options.token = "wrong";
  auto stranger = start(options);
  Peer peer = stranger->peer(guarded->address());
  CHECK(code_of(peer.connect().wait(kSoon)) == Code::kUnauthenticated);
  CHECK(code_of(peer.connect().wait(kSoon)) == Code::kUnauthenticated);
  // Waiting does not mend it.
  CHECK(code_of(peer.wait_for_ready().connect().wait(kSoon)) == Code::kUnauthenticated);
  options.name = "friend";
  options.token = "right";
  auto other = start(options);
  CHECK(other->peer(guarded->address()).connect().wait(kSoon).has_value());
}

TEST_CASE("a name without a registry is found only when it has come to us") {
  auto a = start("a");
  auto b = start("b");
  const auto nobody = b->peer("a").connect().wait(kSoon);
  CHECK(code_of(nobody) == Code::kNotFound);
  CHECK(nobody.status().text().find("ctrl_url") != std::string::npos);
  REQUIRE(a->peer(b->address()).connect().wait(kSoon).has_value());
  // The first failure may still keep further attempts back: this needs none.
  const auto found = b->peer("a").connect().wait(kSoon);
  CHECK_MESSAGE(found.has_value(), found.status().to_string());
}

TEST_CASE("a peer that restarts at its address is used again at once; its old regions are kAborted") {
  RemoteRegion old;  // both outlive the agents, whose handler uses them
  std::atomic<int> ended{0};
  auto a = start("a");
  auto b = start_at("b", "127.0.0.1:0");
  const std::string address = b->address();
  Peer peer = a->peer(address);
  auto mine = take(a->allocate(4096, Rights::kLocal));
  {
    auto theirs = take(b->allocate(4096, Rights::kReadWrite));
    REQUIRE(b->publish("buffer", theirs).ok());
    old = take(peer.region("buffer"));
    const Copy copy{mine, 0, old, 0, 64};
    REQUIRE(peer.read({&copy, 1}).wait(kSoon).has_value());
  }
  a->on_disconnect([&](const std::string& name, std::uint64_t connection) {
    if (name == "b" && connection == old.endpoint_id()) ++ended;
  });
  b.reset();
  REQUIRE(eventually([&] { return ended.load() == 1; }));
  b = start_at("b", address);
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  const Copy copy{mine, 0, old, 0, 64};
  const auto stale = peer.read({&copy, 1}).wait(kSoon);
  CHECK(code_of(stale) == Code::kAborted);
  CHECK(stale.status().text().find("region()") != std::string::npos);
  CHECK(code_of(peer.region("buffer")) == Code::kNotFound);  // not the cached one
}

TEST_CASE("calls in flight end with kUnavailable when the peer goes, and say that they may have run") {
  std::atomic<bool> release{false};  // both outlive the agents, whose handler uses them
  std::atomic<int> running{0};
  auto a = start("a");
  auto b = start("b");
  rpc::Service service("slow");
  REQUIRE(service
              .add("wait",
                   [&] {
                     ++running;
                     release.wait(false);
                   })
              .ok());
  REQUIRE(b->serve(service).ok());
  Peer peer = a->peer(b->address());
  auto call = peer.call<void>("slow", "wait");
  auto message = peer.recv(3);
  REQUIRE(eventually([&] { return running.load() == 1; }));
  CHECK(b->close(milliseconds(50)).code() == Code::kDeadlineExceeded);
  const auto ended = call.wait(kSoon);
  CHECK(code_of(ended) == Code::kUnavailable);
  CHECK(ended.status().maybe_executed());
  CHECK(code_of(message.wait(kSoon)) == Code::kUnavailable);
  release = true;
  release.notify_all();
}

TEST_CASE("disconnect lets go, and the next use connects again") {
  auto a = start("a");
  auto b = start_at("b", "127.0.0.1:0");
  Peer peer = a->peer(b->address());
  CHECK(peer.disconnect().ok());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  CHECK(peer.disconnect().ok());
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  CHECK(number_in(to_json(a->info()), "connections_made") == 2);
}

TEST_CASE("what comes while a connection breaks goes over the next one") {
  auto a = start(PeerAgentOptions{
      .name = "a", .provider = "tcp"});  // where a peer's loop serves reads, so that one is late
  auto b = start(PeerAgentOptions{.name = "b", .provider = "tcp", .progress = Progress::kCaller});
  rpc::Service service = calculator();
  REQUIRE(b->serve(service).ok());
  auto theirs = take(b->allocate(1 << 20, Rights::kRemoteRead));
  REQUIRE(b->publish("theirs", theirs).ok());
  auto mine = take(a->allocate(1 << 20, Rights::kLocal));
  Peer peer = a->peer(b->address());
  const auto drive = [&](const auto& done) {
    return eventually([&] { return b->poll(Nanos::zero()), done(); });
  };
  std::atomic<bool> known{false};
  RemoteRegion remote;
  std::thread asking([&] {
    remote = take(peer.region("theirs"));
    known = true;
  });
  REQUIRE(drive([&] { return known.load(); }));
  asking.join();
  // From now on b does nothing until the read is late, which resets the connection.
  std::atomic<bool> called{false};
  Future<std::int64_t> call;
  const Copy copy{mine, 0, remote, 0, mine.length_bytes()};
  auto read = peer.read({&copy, 1}, milliseconds(50));
  std::move(read).then([&](const Result<None>& late) {
    CHECK(code_of(late) == Code::kDeadlineExceeded);
    call = peer.call<std::int64_t>("calc", "add", 1, 2);  // in the turn in which it broke
    called = true;
  });
  REQUIRE(eventually([&] { return called.load(); }));
  REQUIRE(drive([&] { return call.done(); }));
  CHECK(take(call.wait(kSoon)) == 3);
  CHECK(number_in(to_json(a->info()), "connections_made") == 2);
}

TEST_CASE("a peer on another provider is refused with what both have") {
  transport::testing::TcpHost other("other");
  other.options.provider = "pigeons";
  transport::testing::TestAcceptor acceptor;
  auto listener = take(
      transport::Listener::listen(*other.loop, *other.port, "127.0.0.1:0", false, other.options, acceptor));
  auto agent = start("a");
  Peer peer = agent->peer(listener->address());
  auto connected = peer.wait_for_ready().connect();  // and waiting does not mend it
  REQUIRE(other.until([&] { return connected.done(); }));
  const Status reason = connected.wait().status();
  CHECK(reason.code() == Code::kUnimplemented);
  CAPTURE(reason.text());
  CHECK(reason.text().find("'a', which connects, offers ") != std::string::npos);
  CHECK(reason.text().find(", 'other' has pigeons: ") != std::string::npos);
  // During the pause between attempts, or after another one where this took longer.
  auto again = peer.connect();
  REQUIRE(other.until([&] { return again.done(); }));
  CHECK(code_of(again.wait()) == Code::kUnimplemented);
}

TEST_CASE("a pinned provider is had, or the start fails with the provider's reason") {
  const std::vector<std::string> names = PeerAgent::provider_names();
  CHECK(std::count(names.begin(), names.end(), "auto") == 1);
  CHECK(std::count(names.begin(), names.end(), "tcp") == 1);
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto agent = PeerAgent::start({.name = "pinned", .provider = name});
    if (name == "auto") {
      REQUIRE(agent.has_value());
      CHECK(to_json((*agent)->info()).find("\"reason\":\"auto: ") != std::string::npos);
      continue;
    }
    const Status available = take(transport::make_provider(name))->available();
    CHECK(agent.status().code() == available.code());
    if (!agent) CHECK(agent.status().text() == "provider " + name + ": " + available.text());
    if (agent)
      CHECK(to_json((*agent)->info()).find("\"provider\":\"" + name + "\",\"reason\":\"pinned\"") !=
            std::string::npos);
  }
}

TEST_CASE("options that cannot work are refused with their name") {
  const auto refused = [](PeerAgentOptions options) {
    const auto agent = PeerAgent::start(std::move(options));
    return agent.status().to_string();
  };
  CHECK(refused({.name = "has blank"}).find("invalid_argument") == 0);
  CHECK(refused({.name = "127.0.0.1:4000"}).find("address") != std::string::npos);
  CHECK(refused({.listen = "nonsense"}).find("listen") != std::string::npos);
  CHECK(refused({.listen = "0.0.0.0:0"}).find("permission_denied") == 0);  // no token
  CHECK(refused({.ctrl_url = "http://127.0.0.1:1", .listen = "0.0.0.0:0"}).find("advertise") !=
        std::string::npos);
  CHECK(refused({.ctrl_url = "gopher://x"}).find("ctrl_url") != std::string::npos);
  CHECK(refused({.provider = "verbs-of-the-future"}).find("not_found") == 0);
  CHECK(refused({.provider = "sim"}).find("unimplemented: provider sim: ") == 0);  // one process only
  CHECK(refused({.timeout = Nanos(-1)}).find("timeout") != std::string::npos);
  CHECK(refused({.max_connections = 0}).find("max_connections") != std::string::npos);
}

}  // namespace
}  // namespace slime
