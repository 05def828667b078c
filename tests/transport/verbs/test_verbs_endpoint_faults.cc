// A verbs endpoint when its device, the fabric or the network fails.
#include <cerrno>

#include "tests/transport/verbs/endpoint_rig.h"

namespace slime::transport::testing {
namespace {

constexpr std::string_view kGid0 = "::ffff:10.9.0.1";
constexpr std::string_view kGid1 = "::ffff:10.9.0.2";

// Checks that a text about a lost connection names the peer, the device and the path.
void check_path(const std::string& text) {
  CAPTURE(text);
  CHECK(contains(text, "fake0 port 1"));
  CHECK(contains(text, kGid0));
  CHECK(contains(text, kGid1));
  CHECK((contains(text, "with b ") || contains(text, "connection to b ")));
}

// ------------------------------------------------------------------------------------ failed posts

// Posts a batch of `blocks`, a second batch and a message, while the nth work request is refused.
void refuse_post(Rig& rig, const Blocks& blocks, int nth) {
  CAPTURE(nth);
  Connection connection(rig.fixture);
  const RemoteRegion remote = share(connection.a(), rig.there.region);
  std::vector<CopyBlock> batches[2] = {rig.copies(blocks), rig.copies(blocks)};
  Rng(static_cast<std::uint64_t>(nth)).fill(rig.here.bytes());
  for (std::vector<CopyBlock>& batch : batches) {
    for (CopyBlock& copy : batch) copy.remote = &remote;
  }
  TestOperation operations[3];
  rig.fabric().fail_call(Call::kPostSend, ENOMEM, nth);
  REQUIRE(connection.a().write(batches[0], operations[0]).ok());
  REQUIRE(connection.a().write(batches[1], operations[1]).ok());
  REQUIRE(send(connection.a(), rig.here.bytes().first(10), operations[2], {.after_writes = true}).ok());
  CHECK(rig.fixture.until([&] { return connection.receiver_a.closed == 1; }));
  CHECK(rig.fabric().faults_left() == 0);
  for (const TestOperation& operation : operations) CHECK(operation.completions == 1);
  CHECK_FALSE(operations[2].last.ok());
  // An operation that completed with OK was executed.
  const bool both = operations[0].last.ok() && operations[1].last.ok();
  CHECK_FALSE(both);
  if (operations[0].last.ok() || operations[1].last.ok()) CHECK(rig.equal(batches[0]));
  CHECK(connection.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(contains(connection.receiver_a.close_reason.text(), "ibv_post_send"));
  check_path(connection.receiver_a.close_reason.text());
  CHECK(rig.fixture.until([&] { return connection.receiver_b.closed == 1; }));
}

TEST_CASE("a post that the device refuses completes every operation once, none with what did not happen") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.bytes_per_step = std::size_t{16} << 20;  // posted work is executed at once
  SUBCASE("one work request for each block, on one queue pair") {
    verbs::Options options;
    options.data_queue_pairs = 1;
    Rig rig(1 << 20, options, fabric);
    const Blocks blocks{.count = 257, .bytes = 512, .stride_here = 2048, .stride_there = 2048};
    for (const int nth : {1, 2, 20, 32, 33, 255, 256, 257}) refuse_post(rig, blocks, nth);
  }
  SUBCASE("spread over both data queue pairs") {
    Rig rig(4 << 20, {}, fabric);
    for (int nth = 1; nth <= 8; ++nth) refuse_post(rig, {.bytes = 4 << 20}, nth);
  }
}

TEST_CASE("a message that the device refuses does not look as if it had been sent") {
  Rig rig;
  TestOperation operations[3];
  rig.fabric().fail_call(Call::kPostSend, EINVAL, 2);
  for (TestOperation& operation : operations)
    REQUIRE(send(rig.a(), rig.here.bytes().first(400), operation).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  for (const TestOperation& operation : operations) CHECK(operation.completions == 1);
  CHECK_FALSE(operations[1].last.ok());
  CHECK_FALSE(operations[2].last.ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_b.closed == 1; }));
  CHECK(rig.connection.receiver_b.messages.size() <= 1);
}

TEST_CASE("a device that cannot take back memory makes no more connections on the ports that are open") {
  Rig rig;
  const Status reason(Code::kInternal, "memory that peers may still reach");
  dynamic_cast<verbs::VerbsDevice&>(rig.fixture.device(0)).state()->set_unusable(reason);
  const auto refused = rig.fixture.connect();
  CHECK(refused.status().code() == Code::kInternal);
  CHECK(contains(refused.status().text(), reason.text()));
  CHECK(rig.fixture.port(0).endpoints() == 1);
}

// ------------------------------------------------------------------------------- error completions

struct Failure {
  ibv_wc_status status;
  Code code;
  std::string_view name;
  std::uint64_t EndpointCounters::*blamed;
};

TEST_CASE("an error completion says what failed, with whom, on which path, why, and what to check") {
  Failure failure{};
  SUBCASE("refused by the peer's memory") {
    failure = {IBV_WC_REM_ACCESS_ERR, Code::kPermissionDenied, "IBV_WC_REM_ACCESS_ERR",
               &EndpointCounters::errors_remote};
  }
  SUBCASE("nobody answers") {
    failure = {IBV_WC_RETRY_EXC_ERR, Code::kUnavailable, "IBV_WC_RETRY_EXC_ERR",
               &EndpointCounters::errors_path};
  }
  SUBCASE("our own memory") {
    failure = {IBV_WC_LOC_PROT_ERR, Code::kInternal, "IBV_WC_LOC_PROT_ERR", &EndpointCounters::errors_local};
  }
  SUBCASE("the peer has no receive") {
    failure = {IBV_WC_RNR_RETRY_EXC_ERR, Code::kUnavailable, "IBV_WC_RNR_RETRY_EXC_ERR",
               &EndpointCounters::errors_peer};
  }
  SUBCASE("the device") {
    failure = {IBV_WC_FATAL_ERR, Code::kInternal, "IBV_WC_FATAL_ERR", &EndpointCounters::errors_device};
  }
  verbs::Options options;
  options.data_queue_pairs = 1;  // so that work is executed in order
  Rig rig(1 << 20, options);
  const std::vector<CopyBlock> batch = rig.copies({.count = 3, .stride_here = 2048, .stride_there = 2048});
  TestOperation first;
  TestOperation victim;
  rig.fabric().fail_work(failure.status, 2, {"fake0", IBV_WR_RDMA_WRITE});
  REQUIRE(rig.a().write(batch, first).ok());
  REQUIRE(rig.a().write(batch, victim).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(first.completions == 1);
  CHECK(victim.completions == 1);
  CHECK(first.last.code() == failure.code);
  check_path(first.last.text());
  for (const std::string_view part : {failure.name, std::string_view("write with b failed"),
                                      std::string_view("Cause: "), std::string_view("Check: ")})
    CHECK_MESSAGE(contains(first.last.text(), part), first.last.text());
  CHECK(victim.last.code() == Code::kUnavailable);
  CHECK(rig.connection.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(contains(rig.connection.receiver_a.close_reason.text(), failure.name));
  check_path(rig.connection.receiver_a.close_reason.text());
  const EndpointCounters counters = rig.a().counters();
  CHECK(counters.*failure.blamed == 1);
  CHECK(counters.errors_victim == counters.error_completions - 1);
  CHECK(counters.errors_victim > 0);
  CHECK(counters.receiver_not_ready == (failure.status == IBV_WC_RNR_RETRY_EXC_ERR ? 1 : 0));
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_b.closed == 1; }));
}

TEST_CASE("of operations that share a completion, those before the one that failed succeed") {
  Rig rig;
  constexpr std::size_t kFailing = 5;
  std::deque<TestOperation> operations(12);
  const std::vector<CopyBlock> copies =
      rig.copies({.count = operations.size(), .bytes = 64, .stride_here = 2048, .stride_there = 2048});
  rig.fabric().fail_work(IBV_WC_REM_ACCESS_ERR, kFailing + 1);
  for (std::size_t i = 0; i < operations.size(); ++i)
    REQUIRE(rig.a().write({&copies[i], 1}, operations[i]).ok());
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  for (std::size_t i = 0; i < operations.size(); ++i) {
    CAPTURE(i);
    CHECK(operations[i].completions == 1);
    const Code wanted = i < kFailing    ? Code::kOk
                        : i == kFailing ? Code::kPermissionDenied
                                        : Code::kUnavailable;
    CHECK(operations[i].last.code() == wanted);
  }
  CHECK(rig.equal({copies.begin(), copies.begin() + kFailing}));
}

TEST_CASE("when the port is down, that is the reason, whatever the driver calls it") {
  Rig rig;
  TestOperation operation;
  rig.fabric().set_port_state("fake0", IBV_PORT_DOWN);
  rig.fabric().fail_work(IBV_WC_LOC_QP_OP_ERR, 1, {"fake0", IBV_WR_RDMA_WRITE});
  const std::vector<CopyBlock> batch = rig.copies({});
  REQUIRE(rig.a().write(batch, operation).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(operation.last.code() == Code::kUnavailable);
  CHECK_MESSAGE(contains(operation.last.text(), "fake0 port 1 is down"), operation.last.text());
  CHECK_MESSAGE(contains(operation.last.text(), "IBV_WC_LOC_QP_OP_ERR"), operation.last.text());
  check_path(operation.last.text());
}

TEST_CASE("a queue pair that was flushed without an error before it breaks the endpoint") {
  Rig rig;
  TestOperation operation;
  const std::vector<CopyBlock> batch = rig.copies({.count = 3, .stride_here = 2048, .stride_there = 2048});
  rig.fabric().fail_work(IBV_WC_WR_FLUSH_ERR, 1, {"fake0", IBV_WR_RDMA_WRITE});
  REQUIRE(rig.a().write(batch, operation).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(operation.completions == 1);
  CHECK(operation.last.code() == Code::kUnavailable);
  CHECK(contains(operation.last.text(), "flushed"));
  CHECK(contains(operation.last.text(), "Cause: "));
  CHECK(contains(operation.last.text(), "Check: "));
  check_path(operation.last.text());
}

TEST_CASE("a message that fails at the device breaks the endpoint with its cause") {
  Rig rig;
  TestOperation operation;
  rig.fabric().fail_work(IBV_WC_RETRY_EXC_ERR, 1, {"fake0", IBV_WR_SEND_WITH_IMM});
  REQUIRE(send(rig.a(), rig.here.bytes().first(10), operation).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(operation.completions == 1);
  CHECK(
      contains(rig.connection.receiver_a.close_reason.text(), "message with b failed: IBV_WC_RETRY_EXC_ERR"));
  check_path(rig.connection.receiver_a.close_reason.text());
}

TEST_CASE("the end does not wait for messages that need no completion") {
  Rig rig;
  TestOperation operations[4];
  for (int i = 0; i < 3; ++i) REQUIRE(send(rig.a(), rig.here.bytes().first(10), operations[i]).ok());
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_b.messages.size() == 3; }));
  const TimePoint begin = rig.fixture.now();
  const std::vector<CopyBlock> batch = rig.copies({});
  rig.fabric().fail_work(IBV_WC_REM_ACCESS_ERR, 1, {"fake0", IBV_WR_RDMA_WRITE});
  REQUIRE(rig.a().write(batch, operations[3]).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(rig.fixture.now() - begin < limits::kFlushBound);
}

// ------------------------------------------------------------------- a fabric that carries nothing

TEST_CASE("a connection over which nothing ever came is unreached on both sides, whoever noticed") {
  FakeVerbsFixture fixture;
  fixture.open({});
  SUBCASE("both") { fixture.fabric().set_link("fake0", "fake1", LinkState::kDown); }
  SUBCASE("the side whose first message is not acknowledged") {
    fixture.fabric().fail_work(IBV_WC_RETRY_EXC_ERR, 1, {.device = "fake0", .opcode = {}});
  }
  SUBCASE("the side whose queue pairs cannot be connected") {
    fixture.fabric().fail_call(Call::kModifyQp, ENETUNREACH, 7);  // after three queue pairs of each
                                                                  // side
  }
  SUBCASE("the side whose first post is refused") { fixture.fabric().fail_call(Call::kPostSend, ENOMEM); }
  Connection connection(fixture);
  CHECK(
      fixture.until([&] { return connection.receiver_a.closed == 1 && connection.receiver_b.closed == 1; }));
  CHECK(connection.a().unreached());
  CHECK(connection.b().unreached());
  CHECK(connection.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(connection.receiver_b.close_reason.code() == Code::kUnavailable);
}

TEST_CASE("a peer that goes before anything came, or a device that fails later, is not an unreached peer") {
  FakeVerbsFixture fixture;
  fixture.open({});
  SUBCASE("the peer goes") {
    fixture.fabric().hold_completions("fake0");
    Connection connection(fixture);
    connection.pair.b.reset();
    CHECK(fixture.until([&] { return connection.receiver_a.closed == 1; }));
    CHECK_FALSE(connection.a().unreached());
    fixture.fabric().hold_completions("fake0", false);
  }
  SUBCASE("the link fails later") {
    Connection connection(fixture);
    fixture.fabric().set_link("fake0", "fake1", LinkState::kDown);
    TestOperation operation;
    REQUIRE(send(connection.a(), ByteVector(10), operation).ok());
    CHECK(fixture.until([&] { return connection.receiver_a.closed == 1; }));
    CHECK_FALSE(connection.a().unreached());
    CHECK_FALSE(connection.b().unreached());
  }
}

// ----------------------------------------------------------------------------------- link and port

TEST_CASE("a link that stays down ends what is under way with the path and the cause") {
  Rig rig;
  const std::vector<CopyBlock> batch = rig.copies({.count = 40, .stride_here = 2048, .stride_there = 2048});
  TestOperation read;
  TestOperation write;
  rig.fabric().set_link("fake0", "fake1", LinkState::kDown);
  REQUIRE(rig.a().read(batch, read).ok());
  REQUIRE(rig.a().write(batch, write).ok());
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(read.completions == 1);
  CHECK(write.completions == 1);
  CHECK(read.last.code() == Code::kUnavailable);
  CHECK(write.last.code() == Code::kUnavailable);
  CHECK(contains(rig.connection.receiver_a.close_reason.text(), "IBV_WC_RETRY_EXC_ERR"));
  check_path(rig.connection.receiver_a.close_reason.text());
  CHECK(rig.connection.receiver_a.close_reason.code() == Code::kUnavailable);
}

TEST_CASE("a link that comes back in time costs nothing but time") {
  Rig rig;
  const std::vector<CopyBlock> batch = rig.copies({.count = 40, .stride_here = 2048, .stride_there = 2048});
  TestOperation operation;
  rig.fabric().set_link("fake0", "fake1", LinkState::kDown);
  REQUIRE(rig.a().write(batch, operation).ok());
  rig.fixture.loop(0).poll(Nanos::zero());
  rig.fabric().progress(5);
  CHECK_FALSE(operation.done());
  rig.fabric().set_link("fake0", "fake1", LinkState::kUp);
  CHECK(rig.fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.ok());
  CHECK(rig.equal(batch));
}

TEST_CASE("an error of the port leaves connections alone: the fabric says whether they live") {
  Rig rig;
  rig.fabric().raise("fake0", IBV_EVENT_PORT_ERR);
  rig.fixture.settle();
  CHECK(rig.connection.receiver_a.closed == 0);
  const std::vector<CopyBlock> batch = rig.copies({.count = 4});
  rig.run(false, batch);
  CHECK(rig.equal(batch));
}

TEST_CASE("after a change of the GID new connections use the new one, and old ones go on") {
  Rig rig;
  std::vector<FakeGid> gids = FakeOptions::roce().devices[0].ports[0].gids;
  const ibv_gid changed = ipv4_gid(10, 9, 0, 77);
  gids[4] = {changed, IBV_GID_TYPE_ROCE_V2, gids[3].interface_index};
  gids[2] = {};
  gids[3] = {};
  rig.fabric().set_gids("fake0", gids);
  rig.fixture.settle();
  Connection next(rig.fixture);
  CHECK_MESSAGE(contains(next.a().describe(), "::ffff:10.9.0.77"), next.a().describe());
  CHECK_MESSAGE(contains(rig.a().describe(), kGid0), rig.a().describe());
  TestOperation operation;
  REQUIRE(send(next.a(), rig.here.bytes().first(10), operation).ok());
  CHECK(rig.fixture.until([&] { return next.receiver_b.messages.size() == 1; }));
}

// -------------------------------------------------------------------------------------- the device

TEST_CASE("a device that fails for good ends every operation, once, and every connection") {
  Rig rig(4 << 20);
  Connection other(rig.fixture);
  const std::vector<CopyBlock> batch = rig.copies({.count = 1000, .stride_here = 2048, .stride_there = 2048});
  std::deque<TestOperation> operations;
  rig.fabric().freeze("fake0");
  REQUIRE(rig.a().read(batch, operations.emplace_back()).ok());
  REQUIRE(rig.a().write(batch, operations.emplace_back()).ok());
  REQUIRE(rig.a().write_with_imm({}, 1, operations.emplace_back()).ok());
  REQUIRE(send(rig.a(), rig.here.bytes().first(400), operations.emplace_back(), {.after_writes = true}).ok());
  REQUIRE(send(other.a(), rig.here.bytes().first(400), operations.emplace_back()).ok());
  rig.fixture.loop(0).poll(Nanos::zero());
  rig.fabric().kill("fake0");
  CHECK(rig.fixture.until([&] {
    return rig.connection.receiver_a.closed == 1 && other.receiver_a.closed == 1 &&
           rig.connection.receiver_b.closed == 1 && other.receiver_b.closed == 1;
  }));
  rig.fixture.settle();
  for (const TestOperation& operation : operations) CHECK(operation.completions == 1);
  CHECK(operations[3].last.code() == Code::kUnavailable);
  CHECK(rig.connection.receiver_a.closed == 1);
  CHECK(rig.connection.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK_MESSAGE(contains(rig.connection.receiver_a.close_reason.text(), "fake0"),
                rig.connection.receiver_a.close_reason.text());
  const Result<Pair> next = rig.fixture.connect();
  CHECK_FALSE(next.has_value());
}

TEST_CASE("a region closed on the loop is free at once, also while its endpoint is broken and not flushed") {
  Rig rig;
  auto local = std::make_unique<GuardedRegion>(rig.fixture.device(0), 1 << 20, Rights::kLocal, 3);
  const CopyBlock copies[] = {{&local->region, 0, &rig.remote, 0, 1 << 20}};
  TestOperation operation;
  REQUIRE(rig.a().read(copies, operation).ok());
  rig.fabric().hold_completions("fake0");
  rig.fixture.loop(0).run([&] {
    rig.a().reset(Status(Code::kUnavailable, "reset by the test"));
    CHECK_FALSE(operation.done());
    CHECK(local->region.close().code() == Code::kDeadlineExceeded);
    local.reset();
  });
  rig.fabric().hold_completions("fake0", false);
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  CHECK(operation.completions == 1);
  CHECK(operation.last.code() == Code::kUnavailable);
}

}  // namespace
}  // namespace slime::transport::testing
