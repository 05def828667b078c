// Promises about closing, breaking and deadlines. Run on every provider by run_conformance().
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/transport/fixture.h"

namespace slime::transport::testing {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Work of every sort in flight on side a, with the memory that it uses.
struct Work {
  explicit Work(Fixture& fixture, Connection& c)
      : local(fixture.device(0), 32 * kMiB, Rights::kLocal, 1),
        target(fixture.device(1), 32 * kMiB, Rights::kReadWrite, 2),
        remote(share(c.a(), target.region)),
        writes{{&local.region, 0, &remote, 0, 8 * kMiB}},
        reads{{&local.region, 8 * kMiB, &remote, 8 * kMiB, 8 * kMiB}} {}

  void post(Connection& c) {
    REQUIRE(c.a().write(writes, operations[0]).ok());
    REQUIRE(c.a().read(reads, operations[1]).ok());
    REQUIRE(c.a().write_with_imm(writes, 7, operations[2]).ok());
    REQUIRE(send(c.a(), as_bytes("after"), operations[3], {.after_writes = true}).ok());
  }
  [[nodiscard]] bool done() const {
    return std::all_of(std::begin(operations), std::end(operations), [](const auto& o) { return o.done(); });
  }
  void check_each_once() const {
    for (const auto& operation : operations) CHECK(operation.completions == 1);
  }
  [[nodiscard]] bool succeeded() const {
    return std::all_of(std::begin(operations), std::end(operations),
                       [](const auto& o) { return o.last.ok(); });
  }
  // Whether all bytes of the read are here.
  [[nodiscard]] bool has_read() {
    return same(local.bytes().subspan(8 * kMiB, 8 * kMiB), target.bytes().subspan(8 * kMiB, 8 * kMiB));
  }

  GuardedRegion local;
  GuardedRegion target;
  RemoteRegion remote;
  CopyBlock writes[1];
  CopyBlock reads[1];
  TestOperation operations[4];
};

}  // namespace

CONFORMANCE("close finishes what it can, tells the peer, and calls on_closed last and once") {
  Connection c(fixture);
  Work work(fixture, c);
  work.post(c);
  c.a().close(test::patient(limits::kCloseBound));
  TestOperation refused;
  CHECK_FALSE(send(c.a(), as_bytes("late"), refused).ok());
  CHECK_FALSE(refused.posted());
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0 && c.receiver_b.closed > 0; }));
  fixture.settle();
  work.check_each_once();
  CHECK(c.receiver_a.closed == 1);
  CHECK(c.receiver_a.close_reason.to_string() == "ok");
  CHECK(c.a().closed());
  CHECK(c.a().in_flight() == 0);
  CHECK(c.receiver_b.closed == 1);
  CHECK(c.receiver_b.close_reason.code() == Code::kUnavailable);
  CHECK(c.receiver_b.events.back() == "closed");
  // Everything fitted into the bound, so nothing was cut off.
  for (const auto& operation : work.operations) CHECK(operation.last.to_string() == "ok");
  CHECK(c.receiver_b.messages.size() == 1);
}

CONFORMANCE("close with a stopped peer ends at its bound, and cancels what is left") {
  Connection c(fixture);
  Work work(fixture, c);
  fixture.freeze_b(c.pair);
  work.post(c);
  const TimePoint begin = fixture.now();
  c.a().close(std::chrono::milliseconds(50));
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0; }));
  // An adapter may finish the work before the bound. Then nothing is waited for, and nothing
  // cancelled.
  if (!fixture.works_alone() || !work.succeeded())
    CHECK(fixture.now() >= begin + std::chrono::milliseconds(50));
  CHECK(fixture.now() < begin + std::chrono::seconds(10));
  work.check_each_once();
  CHECK(c.receiver_a.close_reason.ok());
  if (fixture.works_alone() && work.operations[1].last.ok())
    CHECK(work.has_read());
  else
    CHECK(work.operations[1].last.code() == Code::kCancelled);
  fixture.thaw_b(c.pair);
  REQUIRE(fixture.until([&] { return c.receiver_b.closed > 0; }));
  CHECK(c.receiver_b.close_reason.code() == Code::kUnavailable);
}

CONFORMANCE("the peer can tell a close from a death") {
  {
    Connection c(fixture);
    c.a().close();
    REQUIRE(fixture.until([&] { return c.receiver_b.closed > 0; }));
    CHECK(c.receiver_b.close_reason.text().find("closed by peer") != std::string::npos);
  }
  Connection c(fixture);
  fixture.cut(c.pair);
  REQUIRE(fixture.until([&] { return c.receiver_b.closed > 0; }));
  CHECK(c.receiver_b.close_reason.text().find("closed by peer") == std::string::npos);
}

CONFORMANCE("when everything is over, every receive slot is free again") {
  const std::uint32_t before = fixture.port(1).free_slots();
  Message kept;
  {
    Connection c(fixture);
    CHECK(fixture.port(1).free_slots() < before);
    c.receiver_b.hold = true;
    TestOperation operations[5];
    for (TestOperation& operation : operations) REQUIRE(send(c.a(), as_bytes("keep"), operation).ok());
    REQUIRE(fixture.until([&] { return c.receiver_b.held.size() == 5; }));
    kept = std::move(c.receiver_b.held.front());
    c.receiver_b.held.pop_front();
  }
  // A port gives slots back only once its device has given back what the queue pairs had taken.
  CHECK(fixture.until([&] { return fixture.port(1).free_slots() == before - 1; }));
  fixture.settle();
  CHECK(fixture.port(1).free_slots() == before - 1);
  kept.release();
  CHECK(fixture.until([&] { return fixture.port(1).free_slots() == before; }));
  fixture.settle();
  CHECK(fixture.port(1).free_slots() == before);
}

CONFORMANCE("closing twice, from both sides and after the end is fine") {
  Connection c(fixture);
  c.a().close();
  c.a().close();
  c.b().close();
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0 && c.receiver_b.closed > 0; }));
  c.a().close();
  c.a().reset(Status(Code::kUnavailable, "too late"));
  fixture.settle();
  CHECK(c.receiver_a.closed == 1);
  CHECK(c.receiver_b.closed == 1);
}

CONFORMANCE("close from inside a message handler and from inside a completion") {
  Connection c(fixture);
  c.receiver_b.on_message_hook = [&] { c.b().close(); };
  TestOperation operation;
  operation.hook = [&] { c.a().close(); };
  REQUIRE(send(c.a(), as_bytes("end"), operation).ok());
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0 && c.receiver_b.closed > 0; }));
  CHECK(operation.completions == 1);
  CHECK(c.receiver_a.closed == 1);
  CHECK(c.receiver_b.closed == 1);
}

CONFORMANCE("reset from inside a message handler ends everything once") {
  Connection c(fixture);
  Work work(fixture, c);
  c.receiver_b.on_message_hook = [&] { c.b().reset(Status(Code::kUnavailable, "the handler gave up")); };
  work.post(c);
  REQUIRE(fixture.until([&] { return work.done() && c.receiver_a.closed > 0 && c.receiver_b.closed > 0; }));
  work.check_each_once();
  CHECK(c.receiver_b.close_reason.text().find("the handler gave up") != std::string::npos);
}

CONFORMANCE("an operation may be posted again from its own completion") {
  Connection c(fixture);
  TestOperation operation;
  operation.hook = [&] {
    if (operation.completions < 5) CHECK(send(c.a(), as_bytes("again"), operation).ok());
  };
  REQUIRE(send(c.a(), as_bytes("first"), operation).ok());
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 5; }));
  CHECK(operation.completions == 5);
}

CONFORMANCE("a connection that is cut ends every operation once, with unavailable") {
  Connection c(fixture);
  Work work(fixture, c);
  work.post(c);
  fixture.step();
  fixture.cut(c.pair);
  REQUIRE(fixture.until([&] { return work.done() && c.receiver_a.closed > 0 && c.receiver_b.closed > 0; }));
  fixture.settle();
  work.check_each_once();
  for (const auto& operation : work.operations) {
    CHECK((operation.last.ok() || operation.last.code() == Code::kUnavailable));
  }
  if (fixture.cut_stops_work()) CHECK_FALSE(work.operations[1].last.ok());
  CHECK(c.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(c.receiver_b.close_reason.code() == Code::kUnavailable);
}

CONFORMANCE("destroying an endpoint ends its operations, and the peer learns of it") {
  Connection c(fixture);
  Work work(fixture, c);
  work.post(c);
  fixture.step();
  c.pair.a.reset();
  CHECK(work.done());
  work.check_each_once();
  REQUIRE(fixture.until([&] { return c.receiver_b.closed > 0; }));
  CHECK(c.receiver_b.close_reason.code() == Code::kUnavailable);
}

CONFORMANCE("the first error sticks") {
  Connection c(fixture);
  CHECK(!c.a().failed());
  c.a().reset(Status(Code::kCorrupt, "first"));
  CHECK(c.a().failed());
  c.a().reset(Status(Code::kUnavailable, "second"));
  fixture.cut(c.pair);
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0; }));
  CHECK(c.receiver_a.close_reason.text().find("first") != std::string::npos);
  CHECK(c.a().error().code() == Code::kCorrupt);
  CHECK(c.a().failed());
  TestOperation operation;
  CHECK(send(c.a(), as_bytes("x"), operation).code() == Code::kCorrupt);
}

CONFORMANCE("with a stopped peer every operation ends by its deadline, and a one-sided one resets") {
  Connection c(fixture);
  Work work(fixture, c);
  fixture.freeze_b(c.pair);
  const TimePoint deadline = fixture.now() + std::chrono::milliseconds(100);
  for (auto& operation : work.operations) operation.deadline = deadline;
  TestOperation patient;
  patient.deadline = fixture.now() + std::chrono::seconds(50);
  work.post(c);
  REQUIRE(c.a().read(work.reads, patient).ok());
  REQUIRE(fixture.until([&] { return work.done() && patient.done(); }));
  CHECK(fixture.now() < deadline + std::chrono::seconds(5));
  work.check_each_once();
  if (fixture.works_alone()) return;
  CHECK(fixture.now() >= deadline);
  CHECK(work.operations[0].last.code() == Code::kDeadlineExceeded);
  for (const auto& operation : work.operations) {
    CHECK((operation.last.code() == Code::kDeadlineExceeded || operation.last.code() == Code::kUnavailable));
  }
  CHECK(patient.last.code() == Code::kUnavailable);
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0; }));
  CHECK(c.receiver_a.close_reason.code() == Code::kDeadlineExceeded);
}

CONFORMANCE("with a stopped peer a stall bound without a deadline ends a one-sided operation, and resets") {
  Connection c(fixture);
  Work work(fixture, c);
  fixture.freeze_b(c.pair);
  const Nanos stall = std::chrono::milliseconds(100);
  const TimePoint posted = fixture.now();
  work.operations[1].stall = stall;
  work.post(c);
  REQUIRE(fixture.until([&] { return work.done(); }));
  work.check_each_once();
  if (fixture.works_alone()) return;
  CHECK(fixture.now() >= posted + stall);
  CHECK(fixture.now() < posted + stall + test::patient(std::chrono::seconds(5)));
  CHECK(work.operations[1].last.code() == Code::kDeadlineExceeded);
  CHECK(work.operations[1].last.text().find("made no progress for 0.1 s") != std::string::npos);
  CHECK(work.operations[0].last.code() == Code::kUnavailable);
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0; }));
  CHECK(c.receiver_a.close_reason.code() == Code::kDeadlineExceeded);
}

CONFORMANCE("the last progress of an endpoint is when its own one-sided operations moved bytes") {
  Connection c(fixture);
  TestOperation sending;
  REQUIRE(send(c.a(), as_bytes("hello"), sending).ok());
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 1; }));
  CHECK(c.a().last_progress() == TimePoint{});
  const TimePoint before = fixture.now();
  Work work(fixture, c);
  work.post(c);
  REQUIRE(fixture.until([&] { return work.done(); }));
  CHECK(work.succeeded());
  CHECK(c.a().last_progress() >= before);
  CHECK(c.a().last_progress() <= fixture.now());
  CHECK(c.b().last_progress() == TimePoint{});
}

CONFORMANCE("what a stopped peer does later touches nothing of a region that was closed meanwhile") {
  Connection c(fixture);
  GuardedRegion at_a(fixture.device(0), 16 * kMiB, Rights::kReadWrite, 1);
  GuardedRegion at_b(fixture.device(1), 16 * kMiB, Rights::kLocal, 2);
  const RemoteRegion remote = share(c.b(), at_a.region);
  const CopyBlock copies[] = {{&at_b.region, 0, &remote, 0, 16 * kMiB}};
  // The first bytes tell: comparing all of them takes longer than the peers may be silent.
  const Bytes begin = at_a.bytes().first(64);
  const ByteVector before(begin.begin(), begin.end());
  TestOperation operation;
  REQUIRE(c.b().write(copies, operation).ok());
  REQUIRE(fixture.until([&] { return !std::equal(begin.begin(), begin.end(), before.begin()); }));
  fixture.freeze_b(c.pair);
  at_a.region.close().ignore();
  const ByteVector at_close = at_a.copy();
  fixture.settle();
  fixture.thaw_b(c.pair);
  REQUIRE(fixture.until([&] { return operation.done(); }));
  fixture.settle();
  CHECK(same(at_a.bytes(), at_close));
  if (fixture.works_alone() && operation.last.ok())
    CHECK(std::equal(at_close.begin(), at_close.end(), at_b.bytes().begin(), at_b.bytes().end()));
  else
    CHECK_FALSE(operation.last.ok());
}

CONFORMANCE("more operations than the limit are refused, and taken after on_ready") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 64, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 64, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 64}};
  std::vector<std::unique_ptr<TestOperation>> operations;
  Status refusal;
  while (refusal.ok() && operations.size() <= limits::kMaxOperations) {
    operations.push_back(std::make_unique<TestOperation>());
    refusal = c.a().write(copies, *operations.back());
  }
  CHECK(refusal.code() == Code::kResourceExhausted);
  operations.pop_back();
  CHECK(operations.size() <= limits::kMaxOperations);
  REQUIRE(fixture.until([&] { return c.receiver_a.ready > 0; }));
  TestOperation later;
  REQUIRE(c.a().write(copies, later).ok());
  REQUIRE(fixture.until([&] {
    return later.done() &&
           std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o->done(); });
  }));
  for (const auto& operation : operations) CHECK(operation->last.ok());
}

CONFORMANCE("room for operations is told although no credit is left") {
  Connection c(fixture);
  c.receiver_b.hold = true;
  TestOperation first;
  REQUIRE(send(c.a(), as_bytes("x"), first).ok());
  REQUIRE(fixture.until([&] { return first.done(); }));
  std::vector<std::unique_ptr<TestOperation>> operations;
  const auto post = [&](auto fn) {
    Status status;
    while (status.ok()) {
      operations.push_back(std::make_unique<TestOperation>());
      status = fn(*operations.back());
    }
    operations.pop_back();
  };
  REQUIRE(fixture.until([&] {
    post([&](TestOperation& o) { return send(c.a(), as_bytes("x"), o); });
    fixture.settle();
    return c.a().credits() == 0 && c.a().in_flight() == 0;
  }));
  GuardedRegion local(fixture.device(0), 64, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 64, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 64}};
  const int before = c.receiver_a.ready;
  post([&](TestOperation& o) { return c.a().write(copies, o); });
  REQUIRE(fixture.until([&] { return c.receiver_a.ready > before; }));
  CHECK(c.a().write(copies, first).ok());
  REQUIRE(fixture.until([&] { return c.a().in_flight() == 0; }));
  c.receiver_b.held.clear();
}

CONFORMANCE("a new connection between the same ports works after the old one broke") {
  for (int round = 0; round < 5; ++round) {
    Connection c(fixture);
    TestOperation operation;
    REQUIRE(send(c.a(), as_bytes("hello"), operation).ok());
    REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 1; }));
    if (round % 2 == 0) fixture.cut(c.pair);
    fixture.settle();
  }
  fixture.settle();
  CHECK(fixture.port(0).endpoints() == 0);
  CHECK(fixture.port(1).endpoints() == 0);
}

}  // namespace slime::transport::testing
