// How verbs connections detect an unreachable peer: by the adapter's retries, by the side channel's
// keepalive, and by probing waiting work.
#include <chrono>

#include "tests/support/blackhole.h"
#include "tests/transport/verbs/endpoint_rig.h"
#include "transport/outage.h"

namespace slime::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Nanos kLate = test::patient(seconds(2));  // how late a kernel timer may be on a busy machine

TEST_CASE("queue pairs repeat for as long as the outage tolerated, unless their own settings say otherwise") {
  struct Row {
    Nanos outage;
    int set_timeout, set_retry_count;  // -1: not set
    int timeout, retry_count;
  };
  for (const Row& row : std::vector<Row>{{limits::kOutageTolerated, -1, -1, 18, 5},
                                         {seconds(1), -1, -1, 16, 4},
                                         {seconds(30), -1, -1, 20, 7},
                                         {seconds(600), -1, -1, 25, 5},
                                         {seconds(30), 14, -1, 14, 7},
                                         {seconds(30), 14, 2, 14, 2},
                                         {seconds(5), -1, 2, 20, 2}}) {
    CAPTURE(row.outage.count());
    verbs::Options options;
    options.timeout = row.set_timeout;
    options.retry_count = row.set_retry_count;
    Rig rig(4096, options, FakeOptions::roce(), {.outage_tolerated = row.outage});
    const auto pairs = rig.fabric().queue_pairs();
    CHECK(pairs.size() == 6);
    for (const FakeQueuePair& pair : pairs) {
      CHECK(int{pair.attributes.timeout} == row.timeout);
      CHECK(int{pair.attributes.retry_cnt} == row.retry_count);
    }
    // The reason of the break names the values that were set.
    rig.fabric().set_link("fake0", "fake1", LinkState::kDown);
    TestOperation operation;
    const std::vector<CopyBlock> batch = rig.copies({});
    REQUIRE(rig.a().write(batch, operation).ok());
    REQUIRE(rig.fixture.until([&] { return operation.done(); }));
    CHECK(contains(operation.last.text(), "timeout " + std::to_string(row.timeout) + ", retries " +
                                              std::to_string(row.retry_count)));
  }
}

// The side channel often uses another network than the adapter; here it works all the time.
TEST_CASE("a path of the adapter that is gone ends a connection on which a reply is awaited") {
  const Nanos outage = seconds(1);
  FakeOptions fabric = FakeOptions::roce();
  Rig rig(4096, {}, fabric, {.outage_tolerated = outage});
  TestOperation sent;
  REQUIRE(send(rig.a(), ByteVector(100), sent).ok());
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_b.messages.size() == 1; }));
  rig.a().set_awaiting(true);
  rig.fixture.settle();
  rig.fabric().set_link("fake0", "fake1", LinkState::kDown);
  const TimePoint began = steady_clock().now();
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_a.closed > 0; }));
  const Nanos took = steady_clock().now() - began;
  MESSAGE("ended after ", std::chrono::duration_cast<milliseconds>(took).count(), " ms");
  // The probe is sent within two intervals; retries take no time on this fabric.
  CHECK(took <= 2 * keepalive_for(outage).interval() + kLate);
  CHECK(rig.connection.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(contains(rig.connection.receiver_a.close_reason.text(), "IBV_WC_RETRY_EXC_ERR"));
}

TEST_CASE("a peer that is there and does not reply keeps its connection, whether its program runs or not") {
  bool stopped = false;
  SUBCASE("it works") {}
  SUBCASE("its program is stopped") { stopped = true; }
  Rig rig(4096, {}, FakeOptions::roce(), {.outage_tolerated = seconds(1)});
  TestOperation sent;
  REQUIRE(send(rig.a(), ByteVector(100), sent).ok());
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_b.messages.size() == 1; }));
  const std::uint64_t before = rig.a().counters().completions;
  rig.a().set_awaiting(true);
  if (stopped) rig.fixture.sockets().freeze_b(rig.connection.pair);
  // Two probes arrive in time, and at most one per interval of 1 s.
  const TimePoint began = steady_clock().now();
  rig.fixture.pass(seconds(5));
  CHECK(rig.fixture.until([&] { return rig.a().counters().completions - before >= 2; }));
  const auto intervals = static_cast<std::uint64_t>((steady_clock().now() - began) / seconds(1));
  CHECK(rig.connection.receiver_a.closed == 0);
  CHECK(rig.a().counters().completions - before <= intervals + 1);
  if (stopped) rig.fixture.sockets().thaw_b(rig.connection.pair);
  rig.a().set_awaiting(false);
  rig.fixture.pass(seconds(2));
  const std::uint64_t after = rig.a().counters().completions;
  rig.fixture.pass(seconds(2));
  CHECK(rig.a().counters().completions == after);  // no work waits, so no probe is sent
  TestOperation again;
  REQUIRE(send(rig.b(), ByteVector(100), again).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.messages.size() == 1; }));
}

// An adapter that is cut off together with its host, or that retries endlessly, reports nothing.
TEST_CASE(
    "a host that is gone ends its connections by keepalive, after the outage tolerated and not before") {
  const Nanos outage = seconds(2);
  Rig rig(4096, {}, FakeOptions::roce(), {.outage_tolerated = outage});
  TestOperation sent;
  REQUIRE(send(rig.a(), ByteVector(100), sent).ok());
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_b.messages.size() == 1; }));
  rig.a().set_awaiting(true);
  rig.fixture.settle();
  rig.fabric().freeze("fake1");
  const test::Blackhole cut(rig.fixture.sockets().address(rig.connection.pair));
  const TimePoint began = steady_clock().now();
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_a.closed > 0; }));
  const Nanos took = steady_clock().now() - began;
  MESSAGE("ended after ", std::chrono::duration_cast<milliseconds>(took).count(), " ms");
  CHECK(took >= outage);
  CHECK(took <= milliseconds(keepalive_for(outage).silent_ms()) + kLate);
  CHECK(contains(rig.connection.receiver_a.close_reason.text(), "the peer's host is silent"));
  rig.fabric().freeze("fake1", false);
}

}  // namespace
}  // namespace slime::transport::testing
