// Reservations hold: a receive for each granted credit, room in the completion queue for each
// connection.
#include <array>
#include <cstring>

#include "tests/transport/verbs/endpoint_rig.h"

namespace slime::transport::testing {
namespace {

// ---------------------------------------------------------------------------- the completion queue

constexpr std::uint32_t kSmallPool = 64;
constexpr int kPlaces = 5;

FakeOptions small_queues() {
  FakeOptions fabric = FakeOptions::roce();
  for (FakeDeviceOptions& device : fabric.devices)
    device.attributes.max_cqe = static_cast<int>(kSmallPool + kPlaces * limits::kReservedWorkRequests);
  return fabric;
}

PortOptions small_pool() {
  return {.slot_bytes = 512, .pool_slots = kSmallPool, .base_credits = 2, .max_credits = 16};
}

// Returns the receive slots that no connection has, per side. An endpoint returns its completion
// queue entries with its slots: once its queue pairs are destroyed and the completion queue was
// empty.
std::array<std::uint32_t, 2> free_slots(FakeVerbsFixture& fixture) {
  return {fixture.port(0).free_slots(), fixture.port(1).free_slots()};
}

TEST_CASE(
    "a connection is refused once the completion queue is reserved, and taken again after one has gone") {
  FakeVerbsFixture fixture({}, small_queues());
  fixture.open(small_pool());
  std::deque<Connection> connections;
  for (int i = 1; i < kPlaces; ++i) connections.emplace_back(fixture);
  const auto before_last = free_slots(fixture);
  connections.emplace_back(fixture);
  const Result<Pair> refused = fixture.connect();
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.status().code() == Code::kResourceExhausted);
  CHECK(contains(refused.status().text(), "completion queue"));
  CHECK(port_counters(fixture, 0).refused_endpoints == 1);
  connections.pop_back();
  REQUIRE(fixture.until([&] { return free_slots(fixture) == before_last; }));
  connections.emplace_back(fixture);
  CHECK(fixture.port(0).endpoints() == kPlaces);
}

TEST_CASE("a completion queue that is reserved to the last entry takes all the work there can be") {
  FakeOptions fabric = small_queues();
  fabric.keep_stale = true;
  FakeVerbsFixture fixture({}, fabric);
  fixture.open(small_pool());
  GuardedRegion here(fixture.device(0), 128 * 1024, Rights::kLocal, 1);
  GuardedRegion there(fixture.device(1), 128 * 1024, Rights::kReadWrite, 2);
  const int queue = fabric.devices[0].attributes.max_cqe;
  const auto all_free = free_slots(fixture);
  for (int round = 0; round < 3; ++round) {
    std::deque<TestOperation> operations;
    std::deque<RemoteRegion> remotes;
    std::deque<std::vector<CopyBlock>> batches;
    std::deque<Connection> connections;
    for (int i = 0; i < kPlaces; ++i) connections.emplace_back(fixture);
    for (Connection& connection : connections) {
      remotes.push_back(share(connection.a(), there.region));
      std::vector<CopyBlock>& batch = batches.emplace_back();
      for (std::size_t i = 0; i < 60; ++i)
        batch.push_back({&here.region, i * 2048, &remotes.back(), i * 2048, 512});
      REQUIRE(connection.a().write(batch, operations.emplace_back()).ok());
      REQUIRE(send(connection.a(), here.bytes().first(400), operations.emplace_back()).ok());
      REQUIRE(send(connection.b(), there.bytes().first(400), operations.emplace_back()).ok());
    }
    // Half of the rounds end with everything under way.
    if (round != 1) {
      CHECK(fixture.until([&] { return std::ranges::all_of(operations, &TestOperation::done); }));
      CHECK(std::ranges::all_of(operations, [](const TestOperation& one) { return one.last.ok(); }));
    } else {
      for (int i = 0; i < 3; ++i) fixture.step();
    }
    connections.clear();
    CHECK(std::ranges::all_of(operations, [](const TestOperation& one) { return one.completions == 1; }));
    REQUIRE(fixture.until([&] { return free_slots(fixture) == all_free; }));
  }
  CHECK(fixture.fabric().counters("fake0").cq_high_water <= static_cast<std::size_t>(queue));
  CHECK(fixture.fabric().counters("fake1").cq_high_water <= static_cast<std::size_t>(queue));
}

// ------------------------------------------------------------------------------- stale completions

TEST_CASE(
    "completions of an endpoint that is gone are counted and dropped, also when its place is taken again") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.keep_stale = true;
  Rig rig(1 << 20, {}, fabric);
  std::deque<TestOperation> operations;
  const std::vector<CopyBlock> batch = rig.copies({.count = 100, .stride_here = 2048, .stride_there = 2048});
  // The work is done, but no completion has been polled when the endpoint is destroyed.
  rig.fabric().hold_completions("fake0");
  REQUIRE(rig.a().write(batch, operations.emplace_back()).ok());
  for (int i = 0; i < 3; ++i) {
    rig.fixture.loop(0).poll(Nanos::zero());
    rig.fabric().settle();
  }
  rig.connection.pair.a.reset();
  CHECK(operations[0].completions == 1);
  CHECK_FALSE(operations[0].last.ok());
  CHECK(port_counters(rig.fixture, 0).stale_completions == 0);

  bool reused = false;
  SUBCASE("nobody has its place") {}
  SUBCASE("another endpoint has its place") { reused = true; }
  Recorder recorder_a;
  Recorder recorder_b;
  Pair next;
  if (reused) {
    auto made = rig.fixture.connect();
    REQUIRE(made.has_value());
    next = std::move(*made);
    next.a->set_receiver(recorder_a);
    next.b->set_receiver(recorder_b);
  }
  rig.fabric().hold_completions("fake0", false);
  CHECK(rig.fixture.until([&] { return port_counters(rig.fixture, 0).stale_completions > 0; }));
  if (!reused) return;
  const RemoteRegion remote = share(*next.a, rig.there.region);
  std::vector<CopyBlock> again = batch;
  for (CopyBlock& copy : again) copy.remote = &remote;
  Rng(7).fill(rig.here.bytes());
  REQUIRE(next.a->write(again, operations.emplace_back()).ok());
  CHECK(rig.fixture.until([&] { return operations[1].done(); }));
  CHECK(operations[1].last.ok());
  CHECK(rig.equal(again));
  CHECK(next.a->error().ok());
}

// -------------------------------------------------------------------------- receives never run dry

ByteVector numbered(std::uint32_t number, std::size_t bytes) {
  ByteVector out(std::max(bytes, sizeof number), std::byte{static_cast<unsigned char>(number)});
  std::memcpy(out.data(), &number, sizeof number);
  return out;
}

struct Talk {
  Talk(Endpoint& from, Recorder& receives) : endpoint(from), recorder(receives) {}
  Endpoint& endpoint;  // sends
  Recorder& recorder;  // of the receiving end
  std::uint32_t messages = 0;
  std::uint32_t notifications = 0;
  std::deque<TestOperation> operations;

  void say(Rng& rng) {
    if (operations.size() > 200 && operations.front().done()) operations.pop_front();
    TestOperation& operation = operations.emplace_back();
    Status status;
    if (rng.chance(1, 4)) {
      status = endpoint.write_with_imm({}, notifications, operation);
      if (status.ok()) ++notifications;
    } else {
      status = send(endpoint, numbered(messages, rng.below(512)), operation);
      if (status.ok()) ++messages;
    }
    if (status.ok()) return;
    CHECK(status.code() == Code::kResourceExhausted);
    operations.pop_back();
  }
  [[nodiscard]] bool heard() const {
    return recorder.messages.size() == messages && recorder.imms.size() == notifications &&
           std::ranges::all_of(operations, &TestOperation::done);
  }
  void check() const {
    for (std::uint32_t i = 0; i < recorder.messages.size(); ++i) {
      std::uint32_t number = 0;
      std::memcpy(&number, recorder.messages[i].data(), sizeof number);
      REQUIRE(number == i);
    }
    for (std::uint32_t i = 0; i < recorder.imms.size(); ++i) REQUIRE(recorder.imms[i] == i);
    CHECK(endpoint.error().ok());
  }
};

void talk_at_random(std::uint64_t seed) {
  Rng rng(seed);
  FakeOptions fabric = FakeOptions::roce();
  fabric.bytes_per_step = std::size_t{1} << (8 + rng.below(9));
  const std::uint32_t base = 1 + static_cast<std::uint32_t>(rng.below(3));
  const std::uint32_t slots = 3 * (base + 1) + static_cast<std::uint32_t>(rng.below(12));
  verbs::Options options;
  options.max_inline = rng.chance(1, 2) ? 0 : 220;
  FakeVerbsFixture fixture(options, fabric);
  fixture.open(
      {.slot_bytes = 512, .pool_slots = slots, .base_credits = base, .max_credits = std::min(slots, 8U)});
  std::deque<Connection> connections;
  for (int i = 0; i < 3; ++i) connections.emplace_back(fixture);
  std::deque<Talk> talks;
  for (Connection& connection : connections) {
    talks.emplace_back(connection.a(), connection.receiver_b);
    talks.emplace_back(connection.b(), connection.receiver_a);
  }
  for (int i = 0; i < 3000; ++i) {
    Talk& talk = talks[rng.below(talks.size())];
    const std::uint64_t burst = rng.chance(1, 8) ? 12 : 1;
    for (std::uint64_t n = 0; n < burst; ++n) talk.say(rng);
    if (rng.chance(1, 20)) talk.recorder.hold = !talk.recorder.hold;
    for (std::uint64_t n = rng.below(3); n > 0 && !talk.recorder.held.empty(); --n)
      talk.recorder.held.pop_front();
    if (rng.chance(1, 3)) fixture.loop(static_cast<int>(rng.below(2))).poll(Nanos::zero());
  }
  for (Talk& talk : talks) {
    talk.recorder.hold = false;
    talk.recorder.held.clear();
  }
  CHECK(fixture.until([&] { return std::ranges::all_of(talks, &Talk::heard); }));
  // No connection lacks a credit, or waits for a credit that never comes.
  CHECK(fixture.until(
      [&] { return std::ranges::all_of(talks, [](Talk& talk) { return talk.endpoint.credits() > 0; }); }));
  for (const Talk& talk : talks) {
    CHECK(talk.messages > 0);
    talk.check();
  }
  CHECK(fixture.fabric().counters().rnr_events == 0);
}

TEST_CASE("no message ever finds no receive, whatever both sides send, hold and release") {
  const std::uint64_t first = test::setting("SLIME_VERBS_TEST_SEED", 1);
  for (std::uint64_t seed = first; seed < first + 10; ++seed) {
    CAPTURE(seed);
    talk_at_random(seed);
  }
}

}  // namespace
}  // namespace slime::transport::testing
