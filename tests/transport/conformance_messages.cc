// Promises about messages, credits and notifications. Run on every provider by run_conformance().
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/transport/fixture.h"

namespace slime::transport::testing {
namespace {

// Sends until the endpoint refuses; the operations that were taken, and the refusal.
std::pair<std::vector<std::unique_ptr<TestOperation>>, Status> send_until_refused(Endpoint& endpoint,
                                                                                  Bytes bytes) {
  std::vector<std::unique_ptr<TestOperation>> taken;
  for (;;) {
    auto operation = std::make_unique<TestOperation>();
    Status status = send(endpoint, bytes, *operation);
    if (!status.ok()) {
      CHECK_FALSE(operation->posted());
      return {std::move(taken), std::move(status)};
    }
    taken.push_back(std::move(operation));
    REQUIRE(taken.size() < 100'000);
  }
}

bool all_done(const std::vector<std::unique_ptr<TestOperation>>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o->done(); });
}

constexpr PortOptions kSmallPool{.slot_bytes = 512, .pool_slots = 64, .base_credits = 4, .max_credits = 16};

// Posts bare notifications and counts them.
struct Notifier {
  explicit Notifier(Endpoint& from) : endpoint(from) {}
  // Returns false if there is no credit.
  bool post() {
    operations.push_back(std::make_unique<TestOperation>());
    if (!endpoint.write_with_imm({}, posted, *operations.back()).ok()) {
      operations.pop_back();
      return false;
    }
    ++posted;
    return true;
  }
  // Posts until no more credits come.
  void post_all(Fixture& fixture) {
    for (int idle = 0; idle < 5; ++idle) {
      fixture.settle();
      while (post()) idle = 0;
    }
  }

  Endpoint& endpoint;
  std::vector<std::unique_ptr<TestOperation>> operations;
  std::uint32_t posted = 0;
};

}  // namespace

CONFORMANCE("messages arrive in order, once and whole, from 0 bytes to the largest") {
  Connection c(fixture);
  const std::size_t largest = c.a().max_message_bytes();
  const std::size_t sizes[] = {0, 1, 47, 48, 49, 1000, largest - 1, largest, 3};
  std::vector<ByteVector> sent;
  for (std::size_t i = 0; i < 40; ++i) {
    const ByteVector data = random_data(sizes[i % std::size(sizes)], i + 1);
    TestOperation operation;
    const auto post = [&] { return send(c.a(), data, operation).ok(); };
    REQUIRE(fixture.until(post));
    REQUIRE(fixture.until([&] { return operation.done(); }));
    CHECK(operation.last.ok());
    CHECK(operation.completions == 1);
    sent.push_back(data);
  }
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == sent.size(); }));
  fixture.settle();
  CHECK(c.receiver_b.messages == sent);
  CHECK(c.receiver_a.messages.empty());
}

CONFORMANCE("a message gathered from parts arrives as one") {
  Connection c(fixture);
  const ByteVector data = random_data(300, 5);
  const Bytes all(data);
  const Bytes parts[] = {all.first(10), all.subspan(10, 0), all.subspan(10, 200), all.subspan(210)};
  TestOperation operation;
  REQUIRE(c.a().send(parts, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done() && c.receiver_b.messages.size() == 1; }));
  CHECK(c.receiver_b.messages[0] == data);
}

CONFORMANCE("a message larger than the endpoint takes is refused and nothing is posted") {
  Connection c(fixture);
  const std::uint32_t most = std::max(c.a().max_message_bytes(), c.a().long_message_bytes());
  const ByteVector data = random_data(most + 1, 1);
  TestOperation operation;
  CHECK(send(c.a(), data, operation).code() == Code::kInvalidArgument);
  CHECK_FALSE(operation.posted());
  fixture.settle();
  CHECK(c.receiver_b.messages.empty());
  CHECK(c.a().error().ok());
  CHECK(!c.a().failed());
}

CONFORMANCE_WITH("without a credit a message is refused, and taken after on_ready", kSmallPool) {
  Connection c(fixture);
  c.receiver_b.hold = true;
  const ByteVector data = random_data(100, 1);
  std::vector<std::unique_ptr<TestOperation>> taken;
  // A receiver that keeps every message runs out of slots to promise: at most max_credits.
  REQUIRE(fixture.until([&] {
    auto [more, refusal] = send_until_refused(c.a(), data);
    for (auto& operation : more) taken.push_back(std::move(operation));
    CHECK(refusal.code() == Code::kResourceExhausted);
    fixture.settle();
    return c.a().credits() == 0 && c.receiver_b.messages.size() == taken.size();
  }));
  CHECK(taken.size() <= kSmallPool.max_credits);
  CHECK(c.receiver_b.held.size() == taken.size());
  TestOperation refused;
  CHECK(send(c.a(), data, refused).code() == Code::kResourceExhausted);
  CHECK(c.a().counters().credit_stalls > 0);

  const int ready_before = c.receiver_a.ready;
  c.receiver_b.hold = false;
  c.receiver_b.held.clear();
  REQUIRE(fixture.until([&] { return c.receiver_a.ready > ready_before; }));
  REQUIRE(send(c.a(), data, refused).ok());
  REQUIRE(fixture.until([&] { return refused.done() && c.receiver_b.messages.size() == taken.size() + 1; }));
  CHECK(all_done(taken));
}

CONFORMANCE_WITH("a slow receiver gets everything, in order", kSmallPool) {
  Connection c(fixture);
  c.receiver_b.hold = true;
  std::vector<ByteVector> sent;
  std::vector<std::unique_ptr<TestOperation>> operations;
  for (std::uint32_t i = 0; i < 200; ++i) {
    sent.push_back(random_data(i % 400, i + 1));
    operations.push_back(std::make_unique<TestOperation>());
    REQUIRE(fixture.until([&] {
      const bool taken = send(c.a(), sent.back(), *operations.back()).ok();
      if (!taken && !c.receiver_b.held.empty()) c.receiver_b.held.pop_front();
      return taken;
    }));
  }
  REQUIRE(fixture.until([&] {
    c.receiver_b.held.clear();
    return c.receiver_b.messages.size() == sent.size();
  }));
  CHECK(c.receiver_b.messages == sent);
  REQUIRE(fixture.until([&] { return all_done(operations); }));
}

CONFORMANCE_WITH(
    "credits over all peers never exceed the pool, and a port without slots refuses a connection",
    kSmallPool) {
  std::vector<std::unique_ptr<Connection>> connections;
  for (;;) {
    const std::uint32_t free[] = {fixture.port(0).free_slots(), fixture.port(1).free_slots()};
    auto pair = fixture.connect();
    if (!pair) {
      CHECK(pair.error().code() == Code::kResourceExhausted);
      break;
    }
    pair->a.reset();
    pair->b.reset();
    // Their slots come back a while after their end.
    REQUIRE(fixture.until(
        [&] { return fixture.port(0).free_slots() == free[0] && fixture.port(1).free_slots() == free[1]; }));
    connections.push_back(std::make_unique<Connection>(fixture));
    REQUIRE(connections.size() <= kSmallPool.pool_slots / kSmallPool.base_credits);
  }
  CHECK(connections.size() >= 8);
  const ByteVector data = random_data(64, 9);
  std::vector<std::unique_ptr<TestOperation>> taken;
  for (int round = 0; round < 5; ++round) {
    std::uint64_t promised = 0;
    for (auto& c : connections) {
      c->receiver_b.hold = true;
      auto [more, refusal] = send_until_refused(c->a(), data);
      for (auto& operation : more) taken.push_back(std::move(operation));
    }
    fixture.settle();
    for (auto& c : connections) promised += c->a().credits() + c->receiver_b.held.size();
    CHECK(promised <= kSmallPool.pool_slots);
  }
  for (auto& c : connections) CHECK_FALSE(c->receiver_b.held.empty());
  for (auto& c : connections) {
    c->receiver_b.held.clear();
    c->receiver_b.hold = false;
  }
  REQUIRE(fixture.until([&] { return all_done(taken); }));
}

CONFORMANCE_WITH("an idle sender gives back the credits above its base", kSmallPool) {
  Connection c(fixture);
  const ByteVector data = random_data(64, 2);
  std::vector<std::unique_ptr<TestOperation>> taken;
  REQUIRE(fixture.until([&] {
    auto [more, refusal] = send_until_refused(c.a(), data);
    for (auto& operation : more) taken.push_back(std::move(operation));
    fixture.settle();
    return c.a().credits() > kSmallPool.base_credits || taken.size() > 5000;
  }));
  REQUIRE(c.a().credits() > kSmallPool.base_credits);
  const std::uint32_t free_while_busy = fixture.port(1).free_slots();
  fixture.pass(limits::kCreditIdle * 3);
  CHECK(c.a().credits() <= kSmallPool.base_credits);
  CHECK(fixture.port(1).free_slots() > free_while_busy);
  TestOperation operation;
  REQUIRE(send(c.a(), data, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
}

CONFORMANCE("both directions at once") {
  Connection c(fixture);
  std::vector<std::unique_ptr<TestOperation>> operations;
  std::vector<ByteVector> from_a;
  std::vector<ByteVector> from_b;
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (int side = 0; side < 2; ++side) {
      Endpoint& endpoint = side == 0 ? c.a() : c.b();
      auto& sent = side == 0 ? from_a : from_b;
      sent.push_back(random_data(i * 7 % 2000, 2 * i + static_cast<std::uint64_t>(side) + 1));
      operations.push_back(std::make_unique<TestOperation>());
      REQUIRE(fixture.until([&] { return send(endpoint, sent.back(), *operations.back()).ok(); }));
    }
  }
  REQUIRE(fixture.until(
      [&] { return c.receiver_b.messages.size() == 100 && c.receiver_a.messages.size() == 100; }));
  CHECK(c.receiver_b.messages == from_a);
  CHECK(c.receiver_a.messages == from_b);
}

CONFORMANCE("a held message outlives its endpoint") {
  Message kept;
  {
    Connection c(fixture);
    c.receiver_b.hold = true;
    const ByteVector data = random_data(500, 3);
    TestOperation operation;
    REQUIRE(send(c.a(), data, operation).ok());
    REQUIRE(fixture.until([&] { return c.receiver_b.held.size() == 1; }));
    kept = std::move(c.receiver_b.held.front());
    c.receiver_b.held.clear();
  }
  fixture.settle();
  const ByteVector expected = random_data(500, 3);
  CHECK(std::equal(kept.bytes().begin(), kept.bytes().end(), expected.begin(), expected.end()));
  const std::uint32_t before = fixture.port(1).free_slots();
  kept.release();
  fixture.settle();
  CHECK(fixture.port(1).free_slots() >= before);
}

CONFORMANCE("a notification arrives once, after all bytes of its batch") {
  Connection c(fixture);
  GuardedRegion source(fixture.device(0), 3 << 20, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 3 << 20, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&source.region, 100, &remote, 2'000'000, 1'000'000},
                              {&source.region, 1'500'000, &remote, 17, 1'200'000},
                              {&source.region, 5, &remote, 1'999'990, 0}};
  ByteVector expected = target.copy();
  for (const CopyBlock& copy : copies) {
    std::copy_n(source.bytes().begin() + static_cast<std::ptrdiff_t>(copy.local_offset), copy.length_bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(copy.remote_offset));
  }
  bool all_there = false;
  c.receiver_b.on_imm_hook = [&] { all_there = same(target.bytes(), expected); };
  TestOperation operation;
  REQUIRE(c.a().write_with_imm(copies, 0xfeedbeef, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done() && !c.receiver_b.imms.empty(); }));
  CHECK(operation.last.ok());
  CHECK(all_there);
  fixture.settle();
  CHECK(c.receiver_b.imms == std::vector<std::uint32_t>{0xfeedbeef});
}

CONFORMANCE("an empty batch with an immediate is a bare notification") {
  Connection c(fixture);
  std::vector<std::unique_ptr<TestOperation>> operations;
  for (std::uint32_t i = 0; i < 50; ++i) {
    operations.push_back(std::make_unique<TestOperation>());
    REQUIRE(fixture.until([&] { return c.a().write_with_imm({}, i, *operations.back()).ok(); }));
  }
  REQUIRE(fixture.until([&] { return c.receiver_b.imms.size() == 50 && all_done(operations); }));
  for (std::uint32_t i = 0; i < 50; ++i) CHECK(c.receiver_b.imms[i] == i);
}

CONFORMANCE(
    "a receiver that keeps the credits of notifications holds its peer up, loses none, and still gets "
    "messages") {
  Connection c(fixture);
  c.receiver_b.on_imm_hook = [&] { c.b().hold_credit(); };
  Notifier notifier(c.a());
  notifier.post_all(fixture);
  REQUIRE(fixture.until([&] { return c.receiver_b.imms.size() == notifier.posted; }));
  CHECK(notifier.posted >= 8);
  CHECK(notifier.posted <= limits::kMaxCredits);
  const std::uint32_t before = notifier.posted;
  for (int i = 0; i < 50; ++i) {
    TestOperation sending;
    REQUIRE(fixture.until([&] { return send(c.a(), as_bytes("call"), sending).ok(); }));
    REQUIRE(fixture.until([&] { return sending.done(); }));
    CHECK_FALSE(notifier.post());
  }
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 50; }));
  // Gives 3 credits back: 3 more notifications pass.
  c.b().release_credits(3);
  REQUIRE(fixture.until([&] {
    notifier.post();
    return notifier.posted >= before + 3;
  }));
  c.receiver_b.on_imm_hook = {};
  c.b().release_credits(limits::kMaxCredits);  // the rest
  while (notifier.posted < before + 300) REQUIRE(fixture.until([&] { return notifier.post(); }));
  REQUIRE(fixture.until(
      [&] { return c.receiver_b.imms.size() == notifier.posted && all_done(notifier.operations); }));
  for (std::uint32_t i = 0; i < notifier.posted; ++i) REQUIRE(c.receiver_b.imms[i] == i);
}

CONFORMANCE("a notification that waits is told of its credits, also where messages took the first ones") {
  Connection c(fixture);
  c.receiver_b.on_imm_hook = [&] { c.b().hold_credit(); };
  c.receiver_b.hold = true;
  Notifier notifier(c.a());
  notifier.post_all(fixture);
  // Messages, whose slots are kept, use the credits that notifications leave.
  while (c.a().credits() > 0) {
    notifier.operations.push_back(std::make_unique<TestOperation>());
    REQUIRE(send(c.a(), as_bytes("message"), *notifier.operations.back()).ok());
  }
  fixture.pass(2 * limits::kCreditIdle);  // past the timer of idle credits, which would look for them
  const int ready = c.receiver_a.ready;
  // Gives one credit back, too few for a notification, and later all.
  c.b().release_credits(1);
  fixture.settle();
  c.receiver_b.on_imm_hook = {};
  c.receiver_b.held.clear();
  c.b().release_credits(limits::kMaxCredits);
  REQUIRE(fixture.until([&] { return c.receiver_a.ready > ready; }));
  REQUIRE(fixture.until([&] { return notifier.post(); }));
  REQUIRE(fixture.until(
      [&] { return c.receiver_b.imms.size() == notifier.posted && all_done(notifier.operations); }));
}

CONFORMANCE("a message marked after_writes follows the writes and reads posted before it") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 4 << 20, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 4 << 20, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock read[] = {{&local.region, 0, &remote, 0, 1 << 20}};
  const CopyBlock write[] = {{&local.region, 1 << 20, &remote, 1 << 20, 3 << 20}};
  TestOperation reading;
  TestOperation writing;
  TestOperation sending;
  TestOperation later;
  bool bytes_there = false;
  bool read_over = false;
  c.receiver_b.on_message_hook = [&] {
    if (c.receiver_b.messages.size() > 1) return;
    const auto from = local.bytes().subspan(1 << 20);
    bytes_there = std::equal(from.begin(), from.end(), target.bytes().begin() + (1 << 20));
    read_over = reading.done();
  };
  REQUIRE(c.a().read(read, reading).ok());
  REQUIRE(c.a().write(write, writing).ok());
  REQUIRE(send(c.a(), as_bytes("marked"), sending, {.after_writes = true}).ok());
  REQUIRE(send(c.a(), as_bytes("unmarked"), later).ok());
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 2 && writing.done() && later.done(); }));
  CHECK(bytes_there);
  CHECK(read_over);
  CHECK(as_text(c.receiver_b.messages[0]) == "marked");
  CHECK(as_text(c.receiver_b.messages[1]) == "unmarked");
}

}  // namespace slime::transport::testing
