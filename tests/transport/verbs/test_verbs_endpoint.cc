// How a verbs endpoint uses its device: doorbells, completions, gathering, stripes, many endpoints.
#include <array>
#include <functional>
#include <memory>

#include "base/random.h"
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

// Posts `count` operations of `bytes` each, at distances of 2 KiB or more.
void post_many(Rig& rig, bool reads, std::deque<TestOperation>& operations, std::vector<CopyBlock>& copies,
               const Blocks& blocks) {
  copies = rig.copies(blocks);
  for (const CopyBlock& copy : copies) {
    TestOperation& operation = operations.emplace_back();
    REQUIRE((reads ? rig.a().read({&copy, 1}, operation) : rig.a().write({&copy, 1}, operation)).ok());
  }
}

bool all_done(const std::deque<TestOperation>& operations) {
  return std::ranges::all_of(operations, [](const TestOperation& one) { return one.done(); });
}

bool each_succeeded_once(const std::deque<TestOperation>& operations) {
  return std::ranges::all_of(operations,
                             [](const TestOperation& one) { return one.completions == 1 && one.last.ok(); });
}

// The data queue pairs of device fake0 with work, most work first.
std::vector<std::size_t> waiting_work(Rig& rig) {
  std::vector<std::size_t> out;
  for (const FakeQueuePair& pair : rig.fabric().queue_pairs("fake0")) {
    if (pair.waiting > 0) out.push_back(pair.waiting);
  }
  std::ranges::sort(out, std::greater<>());
  return out;
}

void turn(Rig& rig) {
  for (int i = 0; i < 2; ++i) rig.fixture.loop(0).poll(Nanos::zero());
}

// The first of several posts may leave alone: nothing was under way.
TEST_CASE("small operations that are posted together share a doorbell and a completion, and end one by one") {
  Rig rig;
  bool reads = false;
  SUBCASE("written") {}
  SUBCASE("read") { reads = true; }
  std::deque<TestOperation> operations;
  std::vector<CopyBlock> copies;
  std::vector<std::size_t> order;
  const EndpointCounters before = rig.a().counters();
  post_many(rig, reads, operations, copies,
            {.count = 12, .bytes = 64, .stride_here = 2048, .stride_there = 2048});
  for (std::size_t i = 0; i < operations.size(); ++i)
    operations[i].hook = [&order, i] { order.push_back(i); };
  REQUIRE(rig.fixture.until([&] { return all_done(operations); }));
  CHECK(each_succeeded_once(operations));
  const EndpointCounters used = rig.a().counters() - before;
  CHECK(used.work_requests == 12);
  CHECK(used.doorbells <= 2);
  CHECK(used.completions <= 2);
  CHECK(std::ranges::is_sorted(order));
  CHECK(rig.equal(copies));
}

TEST_CASE("operations of 4 KiB that are posted together complete part by part") {
  Rig rig;
  std::deque<TestOperation> operations;
  std::vector<CopyBlock> copies;
  const EndpointCounters before = rig.a().counters();
  post_many(rig, false, operations, copies,
            {.count = 16, .bytes = 4096, .stride_here = 8192, .stride_there = 8192});
  REQUIRE(rig.fixture.until([&] { return all_done(operations); }));
  CHECK(each_succeeded_once(operations));
  CHECK((rig.a().counters() - before).completions >= 16 * 4096 / limits::kSignalRunBytes);
  CHECK(rig.equal(copies));
}

TEST_CASE("an operation that ends the run of others without a completion is the last of each") {
  verbs::Options options;
  options.data_queue_pairs = 1;
  Rig rig(4 << 20, options);
  // A long batch in the middle: its end, and that of the operation behind it, come in one chain.
  std::deque<TestOperation> operations(3);
  const std::vector<CopyBlock> batch =
      rig.copies({.count = 700, .bytes = 64, .stride_here = 2048, .stride_there = 2048});
  const std::vector<CopyBlock> last(batch.begin(), batch.begin() + 1);
  REQUIRE(rig.a().write(last, operations[0]).ok());
  REQUIRE(rig.a().write(batch, operations[1]).ok());
  REQUIRE(rig.a().read(last, operations[2]).ok());
  REQUIRE(rig.fixture.until([&] { return all_done(operations); }));
  CHECK(each_succeeded_once(operations));
  CHECK(rig.equal(batch));
}

TEST_CASE(
    "what follows a completion that came alone leaves at once, what follows several shares a doorbell") {
  Rig rig;
  const CopyBlock copy = rig.copies({.bytes = 64}).front();
  TestOperation first;
  TestOperation next;
  bool at_once = false;
  first.hook = [&] {
    const std::uint64_t before = rig.a().counters().doorbells;
    REQUIRE(rig.a().write({&copy, 1}, next).ok());
    at_once = rig.a().counters().doorbells == before + 1;
  };
  REQUIRE(rig.a().write({&copy, 1}, first).ok());
  REQUIRE(rig.fixture.until([&] { return next.done(); }));
  CHECK(at_once);

  // Eight completions that one poll finds: of large writes, each of which asks for its own.
  std::deque<TestOperation> large(8);
  std::deque<TestOperation> small(8);
  const std::vector<CopyBlock> parts =
      rig.copies({.count = 8, .bytes = 65536, .stride_here = 65536, .stride_there = 65536});
  std::uint64_t doorbells = 0;
  for (std::size_t i = 0; i < large.size(); ++i) {
    large[i].hook = [&, i] {
      if (doorbells == 0) doorbells = rig.a().counters().doorbells;
      REQUIRE(rig.a().write({&copy, 1}, small[i]).ok());
    };
  }
  rig.fabric().hold_completions("fake0");
  for (std::size_t i = 0; i < large.size(); ++i) REQUIRE(rig.a().write({&parts[i], 1}, large[i]).ok());
  turn(rig);
  rig.fabric().settle();
  rig.fabric().hold_completions("fake0", false);
  REQUIRE(rig.fixture.until([&] { return all_done(large) && all_done(small); }));
  CHECK(each_succeeded_once(small));
  CHECK(rig.a().counters().doorbells - doorbells == 1);
}

TEST_CASE("answers to messages that one poll found share a doorbell") {
  Rig rig;
  constexpr std::size_t kMessages = 6;
  std::deque<TestOperation> questions(kMessages);
  std::deque<TestOperation> answers;
  const ByteVector text(32);
  std::uint64_t doorbells = 0;
  rig.connection.receiver_a.on_message_hook = [&] {
    if (doorbells == 0) doorbells = rig.a().counters().doorbells;
    REQUIRE(send(rig.a(), text, answers.emplace_back()).ok());
  };
  rig.fabric().hold_completions("fake0");
  for (TestOperation& question : questions) REQUIRE(send(rig.b(), text, question).ok());
  for (int i = 0; i < 4; ++i) rig.fixture.loop(1).poll(Nanos::zero());
  rig.fabric().settle();
  rig.fabric().hold_completions("fake0", false);
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_b.messages.size() == kMessages; }));
  CHECK(rig.a().counters().doorbells - doorbells == 1);
  REQUIRE(rig.fixture.until([&] { return all_done(answers) && all_done(questions); }));
}

TEST_CASE("an answer leaves at once when its request came together with the end of an own operation") {
  Rig rig;
  const CopyBlock copy = rig.copies({.bytes = 64}).front();
  const ByteVector text(32);
  TestOperation write;
  TestOperation question;
  TestOperation answer;
  bool at_once = false;
  rig.connection.receiver_a.on_message_hook = [&] {
    const std::uint64_t before = rig.a().counters().doorbells;
    REQUIRE(send(rig.a(), text, answer).ok());
    at_once = rig.a().counters().doorbells == before + 1;
  };
  rig.fabric().hold_completions("fake0");
  REQUIRE(rig.a().write({&copy, 1}, write).ok());
  turn(rig);
  REQUIRE(send(rig.b(), text, question).ok());
  for (int i = 0; i < 4; ++i) rig.fixture.loop(1).poll(Nanos::zero());
  rig.fabric().settle();
  rig.fabric().hold_completions("fake0", false);
  REQUIRE(rig.fixture.until([&] { return answer.done() && write.done() && question.done(); }));
  CHECK(at_once);
}

TEST_CASE("a batch of more small reads than a queue pair has under way is spread over all, in chunks") {
  verbs::Options options;
  options.data_queue_pairs = 4;
  Rig rig(8 << 20, options);
  for (const std::size_t count : {17U, 64U, 300U, 1538U}) {
    CAPTURE(count);
    const std::vector<CopyBlock> batch =
        rig.copies({.count = count, .bytes = 1024, .stride_here = 2048, .stride_there = 2048});
    rig.fabric().freeze("fake0");
    TestOperation operation;
    const EndpointCounters before = rig.a().counters();
    REQUIRE(rig.a().read(batch, operation).ok());
    turn(rig);
    const std::vector<std::size_t> waiting = waiting_work(rig);
    CHECK(waiting.size() == 4);
    CHECK(waiting.front() <= std::max<std::size_t>((count + 3) / 4, 2 * limits::kSignalInterval));
    rig.fabric().freeze("fake0", false);
    CHECK(rig.fixture.until([&] { return operation.done(); }));
    CHECK(operation.last.ok());
    CHECK(operation.completions == 1);
    const EndpointCounters used = rig.a().counters() - before;
    CHECK(used.work_requests == count);
    CHECK(used.completions <=
          std::max<std::size_t>(4, (count + limits::kSignalInterval - 1) / limits::kSignalInterval));
    CHECK(rig.equal(batch));
  }
}

TEST_CASE("small reads fill the reads that one queue pair has under way, then those of the others") {
  verbs::Options options;
  options.data_queue_pairs = 4;
  Rig rig(1 << 20, options);
  std::deque<TestOperation> operations;
  std::vector<CopyBlock> copies;
  rig.fabric().freeze("fake0");
  const Blocks blocks{.count = 48, .bytes = 64, .stride_here = 2048, .stride_there = 2048};
  SUBCASE("posted in one turn") { post_many(rig, true, operations, copies, blocks); }
  SUBCASE("posted one by one") {
    copies = rig.copies(blocks);
    for (const CopyBlock& copy : copies) {
      REQUIRE(rig.a().read({&copy, 1}, operations.emplace_back()).ok());
      turn(rig);
    }
  }
  turn(rig);
  const std::vector<std::size_t> waiting = waiting_work(rig);
  CHECK(waiting.size() >= 3);
  CHECK(waiting.front() <= 16);
  rig.fabric().freeze("fake0", false);
  CHECK(rig.fixture.until([&] { return all_done(operations); }));
  CHECK(each_succeeded_once(operations));
  CHECK(rig.equal(copies));
}

// Lengths of batches from one block to more than all send queues take at once.
std::vector<CopyBlock> random_batch(Rig& rig, Rng& rng, std::size_t part) {
  const bool small = rng.below(2) == 0;
  const std::size_t bytes = small ? 1 + rng.below(512) : 4096 * (1 + rng.below(16));
  const std::size_t count = small ? 1 + rng.below(rng.below(4) == 0 ? 600 : 40) : 1 + rng.below(8);
  std::vector<CopyBlock> out = rig.copies({.count = count,
                                           .bytes = bytes,
                                           .stride_here = bytes + rng.below(3),
                                           .stride_there = bytes + rng.below(3)});
  for (CopyBlock& copy : out) {
    copy.local_offset += part;
    copy.remote_offset += part;
  }
  return out;
}

TEST_CASE("operations of all lengths, many under way, each end once with their bytes") {
  constexpr std::size_t kPart = 1 << 20;
  constexpr std::size_t kParts = 16;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    Rng rng(seed);
    verbs::Options options;
    options.data_queue_pairs = 1 + static_cast<int>(rng.below(4));
    Rig rig(kPart * kParts, options);
    // Each operation under way has a part of the memory of its own.
    struct Running {
      std::vector<CopyBlock> batch;
      std::unique_ptr<TestOperation> operation;
    };
    std::array<Running, kParts> running;
    int left = 400;
    int ended = 0;
    const auto next = [&](std::size_t part) {
      if (left == 0) return;
      --left;
      Running& mine = running[part];
      mine.batch = random_batch(rig, rng, part * kPart);
      mine.operation = std::make_unique<TestOperation>();
      const Status posted = rng.below(2) == 0 ? rig.a().write(mine.batch, *mine.operation)
                                              : rig.a().read(mine.batch, *mine.operation);
      REQUIRE_MESSAGE(posted.ok(), posted.text());
    };
    for (std::size_t part = 0; part < kParts; ++part) next(part);
    REQUIRE(rig.fixture.until([&] {
      for (std::size_t part = 0; part < kParts; ++part) {
        Running& mine = running[part];
        if (mine.operation == nullptr || !mine.operation->done()) continue;
        CHECK(mine.operation->completions == 1);
        CHECK_MESSAGE(mine.operation->last.ok(), mine.operation->last.text());
        CHECK(rig.equal(mine.batch));
        mine.operation.reset();
        ++ended;
        next(part);
      }
      return ended == 400;
    }));
  }
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
