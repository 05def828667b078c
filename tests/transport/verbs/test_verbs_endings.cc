// The end of a connection's queue pairs: the receives that they took out of the shared receive
// queue come back.
#include "base/str.h"
#include "tests/transport/verbs/endpoint_rig.h"

namespace slime::transport::testing {
namespace {

// Opens and ends connections on one pair of ports, alternating between the ways to end. Returns the
// number of receives that side 0 has posted at the end.
std::size_t receives_after_endings(FakeVerbsFixture& fixture, std::size_t slots, int connections) {
  for (int i = 0; i < connections; ++i) {
    Connection connection(fixture);
    TestOperation operation;
    REQUIRE(send(connection.b(), ByteVector(100), operation).ok());
    REQUIRE(fixture.until([&] { return connection.receiver_a.messages.size() == 1; }));
    switch (i % 4) {
      case 0:
        connection.a().close();
        break;
      case 1:
        connection.b().close();
        break;
      case 2:
        connection.a().reset(Status(Code::kUnavailable, "reset by the test"));
        break;
      default:
        break;  // destroyed while open
    }
    if (i % 4 == 3) connection.pair.a.reset();
    REQUIRE(fixture.until([&] {
      return connection.receiver_b.closed == 1 && (i % 4 == 3 || connection.receiver_a.closed == 1);
    }));
  }
  const auto objects = [&] { return fixture.fabric().objects().queue_pairs; };
  CHECK(fixture.until([&] { return objects() == 0; }));
  const auto waiting = [&] { return fixture.fabric().receives_waiting("fake0"); };
  fixture.until([&] { return waiting() == slots; });
  return waiting();
}

TEST_CASE("every receive that a queue pair had taken when it failed is posted again") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.taken_receives = 1;
  fabric.flush_steps = 30;
  SUBCASE("completions of a destroyed queue pair go") {}
  SUBCASE("completions of a destroyed queue pair stay") { fabric.keep_stale = true; }
  SUBCASE("without the event that says which was the last") { fabric.last_receive_event = false; }
  PortOptions port;
  port.pool_slots = 128;
  port.max_credits = 64;
  FakeVerbsFixture fixture({}, fabric);
  fixture.open(port);
  CHECK(receives_after_endings(fixture, port.pool_slots, 24) == port.pool_slots);
  CHECK(fixture.until([&] { return fixture.port(0).free_slots() == port.pool_slots; }));
}

TEST_CASE("a connection whose last receive is never told of ends in time all the same") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.last_receive_event = false;
  FakeVerbsFixture fixture({}, fabric);
  fixture.open({});
  Connection connection(fixture);
  const TimePoint begin = fixture.now();
  connection.a().close();
  CHECK(fixture.until([&] { return connection.receiver_a.closed == 1; }));
  CHECK(fixture.now() - begin >= limits::kLastReceiveBound);
  CHECK(fixture.now() - begin < limits::kFlushBound);
}

}  // namespace
}  // namespace slime::transport::testing
