// Slow calls of an adapter run off the loop. While a call is held, the loop serves other
// connections, and the connection that needs the call may end.
#include <doctest/doctest.h>

#include "tests/transport/verbs/fake_fixture.h"
#include "transport/connect.h"

namespace slime::transport::testing {
namespace {

// Connects on a fixture's ports without waiting for the result.
class SecondConnection final : private Acceptor {
 public:
  explicit SecondConnection(FakeVerbsFixture& fixture) : fixture_(fixture) {
    auto listener =
        Listener::listen(fixture.loop(1), fixture.port(1), "127.0.0.1:0", false, options("b"), *this);
    REQUIRE(listener.has_value());
    listener_ = std::move(*listener);
    connecting_ = transport::connect(fixture.loop(0), fixture.port(0), listener_->address(), {"b", {}},
                                     options("a"), [this](Result<Connected> result) {
                                       over = true;
                                       if (!result) return;
                                       a = std::move(result->endpoint);
                                       a->set_receiver(receiver_a);
                                     });
  }
  bool connected() {
    return fixture_.until([this] { return a != nullptr && b != nullptr; });
  }
  void give_up() {
    connecting_.reset();
    listener_.reset();
  }

  Recorder receiver_a;
  Recorder receiver_b;
  std::unique_ptr<Endpoint> a;
  std::unique_ptr<Endpoint> b;
  bool over = false;

 private:
  static HandshakeOptions options(const std::string& name) {
    HandshakeOptions out;
    out.self = {name, InstanceId::random()};
    out.provider = "verbs";
    return out;
  }
  Status on_hello(const PeerIdentity&) noexcept override { return {}; }
  void on_connected(Connected connected) noexcept override {
    b = std::move(connected.endpoint);
    b->set_receiver(receiver_b);
  }

  FakeVerbsFixture& fixture_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connecting> connecting_;
};

// Exchanges messages while at least one call is held.
void echo_while_held(FakeVerbsFixture& fixture, Connection& connection) {
  REQUIRE(fixture.until([&] { return fixture.fabric().held_calls() > 0; }));
  for (int i = 0; i < 20; ++i) {
    const std::size_t before_a = connection.receiver_a.messages.size();
    const std::size_t before_b = connection.receiver_b.messages.size();
    TestOperation there;
    TestOperation back;
    REQUIRE(send(connection.a(), ByteVector(100), there).ok());
    REQUIRE(fixture.until([&] { return connection.receiver_b.messages.size() > before_b; }));
    REQUIRE(send(connection.b(), ByteVector(100), back).ok());
    REQUIRE(fixture.until(
        [&] { return connection.receiver_a.messages.size() > before_a && there.done() && back.done(); }));
  }
  CHECK(fixture.fabric().held_calls() > 0);
}

bool no_queue_pairs_but(FakeVerbsFixture& fixture, std::size_t count) {
  return fixture.until([&] { return fixture.fabric().queue_pairs().size() == count; });
}

enum class Then { kUsed, kUnwanted, kTooLate };

void serve_while_made(Call call, Then then) {
  FakeVerbsFixture fixture;
  fixture.open({});
  Connection connection(fixture);
  const std::size_t others = fixture.fabric().queue_pairs().size();
  fixture.fabric().hold_call(call);
  SecondConnection second(fixture);
  echo_while_held(fixture, connection);
  switch (then) {
    case Then::kUsed: {
      fixture.fabric().hold_call(call, false);
      REQUIRE(second.connected());
      TestOperation operation;
      REQUIRE(send(*second.a, ByteVector(10), operation).ok());
      CHECK(fixture.until([&] { return second.receiver_b.messages.size() == 1; }));
      break;
    }
    case Then::kUnwanted:
      second.give_up();
      second.a.reset();
      second.b.reset();
      fixture.fabric().hold_call(call, false);
      CHECK(no_queue_pairs_but(fixture, others));
      break;
    case Then::kTooLate:
      fixture.fabric().kill("fake1");
      fixture.fabric().hold_call(call, false);
      CHECK(fixture.until([&] { return second.over; }));
      CHECK(fixture.until([&] { return connection.receiver_a.closed == 1; }));
      if (second.a != nullptr) CHECK(fixture.until([&] { return second.receiver_a.closed == 1; }));
      break;
  }
}

TEST_CASE("a loop serves a connection while the queue pairs of another one are made, and they are used") {
  serve_while_made(Call::kCreateQp, Then::kUsed);
}
TEST_CASE(
    "a loop serves a connection while the queue pairs of another one are connected, and they are used") {
  serve_while_made(Call::kConnectQp, Then::kUsed);
}
TEST_CASE("queue pairs that nobody wants any more when they are made, or connected, are destroyed") {
  SUBCASE("made") { serve_while_made(Call::kCreateQp, Then::kUnwanted); }
  SUBCASE("connected") { serve_while_made(Call::kConnectQp, Then::kUnwanted); }
}
TEST_CASE("a device that is lost while queue pairs are made, or connected, ends their connection") {
  SUBCASE("made") { serve_while_made(Call::kCreateQp, Then::kTooLate); }
  SUBCASE("connected") { serve_while_made(Call::kConnectQp, Then::kTooLate); }
}

// How the endpoint is closed while its queue pairs are ending.
enum class Closed { kWaits, kGone, kDestroyedOpen };

void serve_while_ending(Call call, Closed how) {
  FakeVerbsFixture fixture;
  fixture.open({});
  Connection connection(fixture);
  const std::size_t others = fixture.fabric().queue_pairs().size();
  SecondConnection second(fixture);
  REQUIRE(second.connected());
  fixture.settle();
  fixture.fabric().hold_call(call);
  if (how == Closed::kDestroyedOpen)
    second.a.reset();
  else
    second.a->close();
  echo_while_held(fixture, connection);
  if (how == Closed::kGone) second.a.reset();
  if (how == Closed::kWaits) CHECK(second.receiver_a.closed == 0);
  fixture.fabric().hold_call(call, false);
  if (how == Closed::kWaits) {
    CHECK(fixture.until([&] { return second.receiver_a.closed == 1; }));
    CHECK(second.receiver_a.close_reason.ok());
    second.a.reset();
  }
  second.b.reset();
  CHECK(no_queue_pairs_but(fixture, others));
  CHECK(
      fixture.until([&] { return fixture.fabric().receives_waiting("fake0") == PortOptions().pool_slots; }));
}

TEST_CASE("a loop serves a connection while the queue pairs of another one fail") {
  SUBCASE("and their endpoint waits") { serve_while_ending(Call::kFailQp, Closed::kWaits); }
  SUBCASE("and their endpoint is gone") { serve_while_ending(Call::kFailQp, Closed::kGone); }
  SUBCASE("and their endpoint was open") { serve_while_ending(Call::kFailQp, Closed::kDestroyedOpen); }
}
TEST_CASE("a loop serves a connection while the queue pairs of another one are destroyed") {
  SUBCASE("and their endpoint waits") { serve_while_ending(Call::kDestroyQp, Closed::kWaits); }
  SUBCASE("and their endpoint is gone") { serve_while_ending(Call::kDestroyQp, Closed::kGone); }
  SUBCASE("and their endpoint was open") { serve_while_ending(Call::kDestroyQp, Closed::kDestroyedOpen); }
}

TEST_CASE("ports and devices may be closed while an adapter still has their queue pairs") {
  Call call{};
  SUBCASE("made") { call = Call::kCreateQp; }
  SUBCASE("connected") { call = Call::kConnectQp; }
  SUBCASE("failed") { call = Call::kFailQp; }
  SUBCASE("destroyed") { call = Call::kDestroyQp; }
  FakeVerbsFixture fixture;
  fixture.open({});
  FakeFabric& fabric = fixture.fabric();
  const bool ending = call == Call::kFailQp || call == Call::kDestroyQp;
  if (!ending) fabric.hold_call(call);
  auto second = std::make_unique<SecondConnection>(fixture);
  if (ending) {
    REQUIRE(second->connected());
    fabric.hold_call(call);
    second->a->close();
  }
  REQUIRE(fixture.until([&] { return fabric.held_calls() > 0; }));
  second.reset();
  fixture.close();
  CHECK(fabric.held_calls() > 0);
  fabric.hold_call(call, false);
}

}  // namespace
}  // namespace slime::transport::testing
