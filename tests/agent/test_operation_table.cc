// The table of operations: its order, what waits in it, and when an operation leaves.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/operations/operation_table.h"
#include "base/clock.h"
#include "tests/agent/agents.h"
#include "transport/loop.h"

namespace slime::agent {
namespace {

using std::chrono::seconds;
using test::take;

// An operation that the test ends by hand. It never runs: no test here has a session.
class TabledOperation final : public ResultOperation<None> {
 public:
  explicit TabledOperation(State& state, std::string name, bool connects)
      : ResultOperation(state), name_(std::move(name)), connects_(connects) {}
  void start(Session&) override {}
  [[nodiscard]] bool connects() const override { return connects_; }
  [[nodiscard]] std::string describe() const override { return name_; }
  void finish() { conclude(None{}); }

 private:
  const std::string name_;
  const bool connects_;
};
using Tabled = OperationPtr<TabledOperation>;
using Stage = OperationRecord::State;

Tabled make(std::string name, bool connects = true) {
  return make_operation<TabledOperation>(nullptr, true, std::move(name), connects);
}

struct TableRig {
  ManualClock clock;
  std::shared_ptr<transport::Loop> loop = take(transport::Loop::create({.clock = &clock}));
  OperationTable table;
  WaitingOperations queue{*loop, "peer"};
  std::vector<std::string> late;
  ~TableRig() {
    while (!queue.empty()) queue.take_first()->fail(Status(Code::kCancelled, "the test is over"));
  }

  Tabled add(std::string name, bool connects = true) {
    Tabled out = make(std::move(name), connects);
    table.add(*out);
    return out;
  }
  void wait(const Tabled& operation, TimePoint until = kNever) {
    queue.add(operation, until, [this](const OperationPtr<PeerOperation>& each) {
      late.push_back(each->describe());
      each->fail(Status(Code::kDeadlineExceeded, "late"));
    });
  }
  void pass(Nanos span) {
    clock.advance(span);
    loop->poll(Nanos::zero());
  }
  // The names in the table, oldest first.
  [[nodiscard]] std::string names() const {
    std::string out;
    table.for_each([&](const PeerOperation& each) { out += each.describe(); });
    return out;
  }
};

TEST_CASE("the table shows operations in the order in which they began, until they end") {
  TableRig rig;
  const Tabled a = rig.add("a");
  Tabled b = rig.add("b");
  const Tabled c = rig.add("c");
  CHECK(rig.names() == "abc");
  CHECK(a->state() == Stage::kNew);
  CHECK(a->peer().empty());
  a->finish();
  CHECK(a->state() == Stage::kEnded);
  CHECK(rig.names() == "bc");
  b = nullptr;  // destroyed without an outcome
  CHECK(rig.names() == "c");
  c->finish();
  CHECK(rig.names().empty());
}

TEST_CASE("an operation counts from count_in() until it ends, in the table or not") {
  std::atomic<std::size_t> count{0};
  TableRig rig;
  const Tabled added = rig.add("a");
  const Tabled alone = make("b");
  added->count_in(count);
  alone->count_in(count);
  alone->count_in(count);  // once
  CHECK(count == 2);
  added->finish();
  CHECK(count == 1);
  added->fail(Status(Code::kAborted, "again"));
  CHECK(count == 1);
  alone->fail(Status(Code::kAborted, "refused"));
  CHECK(count == 0);
}

TEST_CASE("operations outlive their table") {
  std::atomic<std::size_t> count{0};
  auto table = std::make_unique<OperationTable>();
  const Tabled a = make("a");
  const Tabled b = make("b");
  a->count_in(count);
  table->add(*a);
  table->add(*b);
  table.reset();
  CHECK(count == 0);
  a->finish();
  CHECK(a->future().wait().has_value());
}

TEST_CASE("waiting operations are kept alive, in order, and stay in the table") {
  TableRig rig;
  for (const char* const name : {"a", "b", "c"}) rig.wait(rig.add(name));
  CHECK(rig.queue.size() == 3);
  CHECK(rig.names() == "abc");
  const auto first = rig.queue.take_first();
  CHECK(first->describe() == "a");
  CHECK(first->state() == Stage::kNew);
  CHECK(rig.names() == "abc");
  rig.wait(Tabled(static_cast<TabledOperation*>(first.get())));
  CHECK(first->state() == Stage::kWaiting);
  CHECK(first->peer() == "peer");
  CHECK(first->stage() == "waits for a connection");
  CHECK(rig.queue.take_first()->describe() == "b");
  CHECK(rig.names() == "ac");
  CHECK(rig.queue.take_first()->describe() == "c");
  CHECK(rig.queue.take_first().get() == first.get());
  CHECK(rig.queue.empty());
}

TEST_CASE("an operation that waits too long is taken out, once") {
  TableRig rig;
  const Tabled a = rig.add("a");
  const Tabled b = rig.add("b");
  rig.wait(a, rig.loop->now() + seconds(2));
  rig.wait(b, rig.loop->now() + seconds(1));
  CHECK(rig.queue.withdraw(*b).get() == b.get());
  rig.pass(seconds(1));
  CHECK(rig.late.empty());
  rig.pass(seconds(1));
  CHECK(rig.late == std::vector<std::string>{"a"});
  CHECK(a->state() == Stage::kEnded);
  CHECK(a->future().wait().status().code() == Code::kDeadlineExceeded);
  CHECK(rig.queue.empty());
  CHECK(rig.names() == "b");
}

TEST_CASE("take_if() takes out what is wanted, in order") {
  TableRig rig;
  rig.wait(rig.add("a", false));
  rig.wait(rig.add("b"));
  rig.wait(rig.add("c", false));
  rig.wait(rig.add("d"));
  CHECK(rig.queue.any_connects());
  const auto taken = rig.queue.take_if([](const PeerOperation& each) { return each.connects(); });
  REQUIRE(taken.size() == 2);
  CHECK(taken[0]->describe() == "b");
  CHECK(taken[1]->describe() == "d");
  CHECK_FALSE(rig.queue.any_connects());
  CHECK(rig.queue.size() == 2);
  CHECK(rig.queue.take_first()->stage() == "about to begin");
}

TEST_CASE("a cancelled operation that waits leaves the queue and the table") {
  TableRig rig;
  const Tabled a = rig.add("a", false);
  rig.wait(a, rig.loop->now() + seconds(1));
  CHECK(a->stage() == "waits for its peer to connect");
  a->cancel();
  CHECK(a->future().wait().status().code() == Code::kCancelled);
  CHECK(rig.queue.empty());
  CHECK(rig.names().empty());
  rig.pass(seconds(2));
  CHECK(rig.late.empty());
  a->cancel();
  CHECK(a->state() == Stage::kEnded);
}

}  // namespace
}  // namespace slime::agent
