// How a verbs endpoint uses its device: doorbells, completions, gathering, stripes, many endpoints.
#include "tests/transport/verbs/endpoint_rig.h"

namespace slime::transport::testing {
namespace {

TEST_CASE("1,538 scattered blocks of 1 KiB are at most 49 doorbells and 7 completions") {
  Rig rig(std::size_t{1538} * 2048);
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  const std::vector<CopyBlock> batch =
      rig.copies({.count = 1538, .bytes = 1024, .stride_here = 2048, .stride_there = 2048});
  const std::uint64_t doorbells = rig.fabric().counters("fake0").doorbells;
  const EndpointCounters used = rig.run(reads, batch);
  CHECK(used.work_requests == 1538);
  CHECK(used.doorbells <= 49);
  CHECK(used.completions <= 7);
  CHECK(used.coalesced == 0);
  CHECK(rig.fabric().counters("fake0").doorbells - doorbells <= 49);
  CHECK(rig.equal(batch));
}

TEST_CASE("blocks that lie one behind the other on both sides are one work request") {
  Rig rig;
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  const std::vector<CopyBlock> batch = rig.copies({.count = 64});
  const EndpointCounters used = rig.run(reads, batch);
  CHECK(used.work_requests == 1);
  CHECK(used.doorbells == 1);
  CHECK(used.completions == 1);
  CHECK(used.coalesced == 63);
  CHECK(rig.equal(batch));
}

TEST_CASE("blocks that are scattered here and adjacent at the peer are gathered, 8 to a work request") {
  Rig rig;
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  const std::vector<CopyBlock> batch = rig.copies({.count = 33, .stride_here = 4096});
  const EndpointCounters used = rig.run(reads, batch);
  CHECK(used.work_requests == 5);
  CHECK(used.coalesced == 28);
  CHECK(rig.equal(batch));
}

TEST_CASE("blocks that are adjacent here and scattered at the peer are not joined") {
  Rig rig;
  const std::vector<CopyBlock> batch = rig.copies({.count = 20, .stride_there = 2048});
  CHECK(rig.run(false, batch).work_requests == 20);
  CHECK(rig.equal(batch));
}

TEST_CASE("a device that scatters reads to fewer places than it gathers writes from is not asked for more") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.devices[0].attributes.max_sge_rd = 2;
  Rig rig(1 << 20, {}, fabric);
  const std::vector<CopyBlock> batch = rig.copies({.count = 16, .stride_here = 4096});
  CHECK(rig.run(true, batch).work_requests == 8);
  CHECK(rig.equal(batch));
  CHECK(rig.run(false, batch).work_requests == 2);
}

TEST_CASE("blocks without a byte in a batch make no work request") {
  Rig rig;
  std::vector<CopyBlock> batch = rig.copies({.count = 3, .stride_here = 2048, .stride_there = 2048});
  for (const std::size_t at : {0U, 2U, 5U}) {
    batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(at), batch.back());
    batch[at].length_bytes = 0;
  }
  CHECK(rig.run(false, batch).work_requests == 3);
  CHECK(rig.equal(batch));
}

TEST_CASE("a large transfer is spread over both data queue pairs, in parts of which none is empty") {
  Rig rig(8 << 20);
  constexpr std::size_t kPart = limits::kWorkRequestBytes / 2;
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  for (const std::size_t bytes : {limits::kStripeBytes + 1, limits::kStripeBytes + kPart,
                                  std::uint64_t{8} << 20, (std::uint64_t{8} << 20) - 1}) {
    CAPTURE(bytes);
    const std::vector<CopyBlock> batch = rig.copies({.bytes = bytes});
    rig.fabric().freeze("fake0");  // posted work stays in the queue
    TestOperation operation;
    const EndpointCounters before = rig.a().counters();
    REQUIRE((reads ? rig.a().read(batch, operation) : rig.a().write(batch, operation)).ok());
    rig.fixture.loop(0).poll(Nanos::zero());
    rig.fixture.loop(0).poll(Nanos::zero());
    std::size_t busy = 0;
    for (const FakeQueuePair& pair : rig.fabric().queue_pairs("fake0")) busy += pair.waiting > 0 ? 1 : 0;
    CHECK(busy == 2);
    rig.fabric().freeze("fake0", false);
    CHECK(rig.fixture.until([&] { return operation.done(); }));
    CHECK(operation.last.ok());
    CHECK((rig.a().counters() - before).work_requests == (bytes + kPart - 1) / kPart);
    CHECK(rig.equal(batch));
  }
}

TEST_CASE("each large work request asks for a completion, which shows progress on a slow path") {
  verbs::Options options;
  options.data_queue_pairs = 1;
  Rig rig(8 << 20, options);
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  const std::vector<CopyBlock> batch = rig.copies({.bytes = 8 << 20});
  const EndpointCounters used = rig.run(reads, batch);
  CHECK(used.work_requests == 8);
  CHECK(used.completions == 8);
  CHECK(rig.equal(batch));
}

TEST_CASE("what has an order, or is small, stays on one queue pair") {
  verbs::Options options;
  bool imm = false;
  std::size_t bytes = 4 << 20;
  SUBCASE("a batch with a notification") { imm = true; }
  SUBCASE("writes with a read behind them that flushes them") { options.flush_read = true; }
  SUBCASE("less than a stripe") { bytes = limits::kStripeBytes - 1; }
  Rig rig(4 << 20, options);
  const std::vector<CopyBlock> batch = rig.copies({.bytes = bytes});
  rig.fabric().freeze("fake0");
  TestOperation operation;
  REQUIRE((imm ? rig.a().write_with_imm(batch, 7, operation) : rig.a().write(batch, operation)).ok());
  rig.fixture.loop(0).poll(Nanos::zero());
  rig.fixture.loop(0).poll(Nanos::zero());
  std::size_t busy = 0;
  for (const FakeQueuePair& pair : rig.fabric().queue_pairs("fake0")) busy += pair.waiting > 0 ? 1 : 0;
  CHECK(busy == 1);
  rig.fabric().freeze("fake0", false);
  CHECK(rig.fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.ok());
  CHECK(rig.equal(batch));
}

TEST_CASE("a port counts for all its endpoints, those that are gone included") {
  FakeVerbsFixture fixture;
  fixture.open({});
  std::optional<Connection> first(std::in_place, fixture);
  Connection second(fixture);
  TestOperation operations[3];
  const ByteVector text(100);
  REQUIRE(send(first->a(), text, operations[0]).ok());
  REQUIRE(send(second.a(), text, operations[1]).ok());
  REQUIRE(fixture.until([&] { return operations[0].done() && operations[1].done(); }));
  EndpointCounters sum = first->a().counters();
  sum += second.a().counters();
  CHECK(sum.messages_sent == 2);
  PortCounters port = fixture.port(0).counters();
  CHECK(port.endpoints.messages_sent == 2);
  CHECK(port.endpoints.doorbells == sum.doorbells);
  CHECK(port.completions >= port.endpoints.completions);
  CHECK(port.receives_posted > 0);
  CHECK(port.refused_endpoints == 0);
  first.reset();
  REQUIRE(send(second.a(), text, operations[2]).ok());
  REQUIRE(fixture.until([&] { return operations[2].done(); }));
  port = fixture.port(0).counters();
  CHECK(port.endpoints.messages_sent == 3);
  CHECK(port.endpoints.bytes_sent > second.a().counters().bytes_sent);
}

TEST_CASE("200 endpoints on one port work, and go") {
  FakeVerbsFixture fixture;
  fixture.open({});
  GuardedRegion here(fixture.device(0), 4096, Rights::kLocal, 1);
  GuardedRegion there(fixture.device(1), 4096, Rights::kReadWrite, 2);
  std::deque<Connection> connections;
  for (int i = 0; i < 200; ++i) connections.emplace_back(fixture);
  CHECK(fixture.port(0).endpoints() == 200);
  CHECK(fixture.port(1).endpoints() == 200);
  std::deque<TestOperation> operations;
  std::deque<RemoteRegion> remotes;
  std::deque<CopyBlock> copies;
  for (Connection& connection : connections) {
    remotes.push_back(share(connection.a(), there.region));
    copies.push_back({&here.region, 0, &remotes.back(), 0, 4096});
    REQUIRE(connection.a().write(std::span(&copies.back(), 1), operations.emplace_back()).ok());
    REQUIRE(send(connection.b(), here.bytes().first(100), operations.emplace_back()).ok());
  }
  CHECK(fixture.until([&] {
    return std::ranges::all_of(operations, [](const TestOperation& one) { return one.done(); }) &&
           std::ranges::all_of(connections,
                               [](const Connection& one) { return one.receiver_a.messages.size() == 1; });
  }));
  CHECK(std::ranges::all_of(operations, [](const TestOperation& one) { return one.last.ok(); }));
  CHECK(fixture.fabric().counters().rnr_events == 0);
  connections.clear();
  CHECK(fixture.port(0).endpoints() == 0);
  CHECK(fixture.until([&] { return fixture.fabric().objects().queue_pairs == 0; }));
}

}  // namespace
}  // namespace slime::transport::testing
