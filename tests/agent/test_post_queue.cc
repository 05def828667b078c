// One-sided operations that wait for room on their connection, over an endpoint whose room the
// test sets.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <vector>

#include "agent/connecting/post_queue.h"
#include "agent/limits.h"
#include "base/clock.h"
#include "tests/agent/agents.h"
#include "transport/loop.h"

namespace slime::agent {
namespace {

using std::chrono::seconds;
using test::take;

// Takes as many operations as it has room for.
class RoomyEndpoint final : public transport::Endpoint {
 public:
  using Copies = std::span<const transport::CopyBlock>;

  void set_receiver(transport::Receiver&) override {}
  Status send(std::span<const Bytes>, transport::Operation&, transport::SendOptions) override { return {}; }
  Status read(Copies, transport::Operation& operation) override { return take("read", operation); }
  Status write(Copies, transport::Operation& operation) override { return take("write", operation); }
  Status write_with_imm(Copies, std::uint32_t, transport::Operation& operation) override {
    return take("write_with_imm", operation);
  }
  Status fetch_add(const transport::AtomicTarget&, std::uint64_t, transport::Operation& operation) override {
    return take("fetch_add", operation);
  }
  Status compare_swap(const transport::AtomicTarget&, std::uint64_t, std::uint64_t,
                      transport::Operation& operation) override {
    return take("compare_swap", operation);
  }
  Result<RemoteRegion> import_region(const transport::RegionDescriptor&) override {
    return Status(Code::kUnimplemented, "");
  }
  void close(Nanos) override {}
  void reset(Status) override {}
  void hold_credit() override {}
  void release_credits(std::uint32_t) override {}
  void set_awaiting(bool) override {}
  [[nodiscard]] bool closed() const override { return false; }
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::uint32_t max_message_bytes() const override { return 0; }
  [[nodiscard]] std::uint64_t id() const override { return 1; }
  [[nodiscard]] std::size_t in_flight() const override { return posted.size(); }
  [[nodiscard]] std::uint64_t credits() const override { return 0; }
  [[nodiscard]] TimePoint last_progress() const override { return progress; }
  [[nodiscard]] transport::EndpointCounters counters() const override { return {}; }
  [[nodiscard]] std::string describe() const override { return "roomy"; }

  void finish_all() {
    for (transport::Operation* const each : std::exchange(posted, {})) each->finish({});
  }

  std::size_t room = 0;
  Status refusal;  // not OK: what each post gets
  TimePoint progress{};
  std::vector<transport::Operation*> posted;
  std::vector<std::string> kinds;

 private:
  Status take(const char* kind, transport::Operation& operation) {
    if (!refusal.ok()) return refusal;
    if (room == 0) return Status(Code::kResourceExhausted, "no room");
    --room;
    operation.mark_posted();
    posted.push_back(&operation);
    kinds.emplace_back(kind);
    return {};
  }
};

class Recorded final : public transport::Operation {
 public:
  void complete(Status status) noexcept override {
    ++completions;
    last = std::move(status);
  }
  int completions = 0;
  Status last;
};

struct Rig {
  ManualClock clock;
  std::shared_ptr<transport::Loop> loop = take(transport::Loop::create({.clock = &clock}));
  RoomyEndpoint endpoint;
  PostQueue queue{*loop, endpoint, "peer"};
  ~Rig() {
    endpoint.finish_all();
    queue.fail_all(Status(Code::kCancelled, "the test is over"));
  }
  void pass(Nanos span) {
    clock.advance(span);
    loop->poll(Nanos::zero());
  }
};

TEST_CASE("operations that the endpoint has room for are posted at once, each as its kind") {
  std::array<Recorded, 5> operations;
  Rig rig;
  rig.endpoint.room = 5;
  const OneSided kinds[] = {OneSided::kRead, OneSided::kWrite, OneSided::kWriteWithImm, OneSided::kFetchAdd,
                            OneSided::kCompareSwap};
  for (std::size_t i = 0; i < 5; ++i) rig.queue.post({.kind = kinds[i]}, operations[i]);
  CHECK(rig.queue.empty());
  CHECK(rig.endpoint.kinds ==
        std::vector<std::string>{"read", "write", "write_with_imm", "fetch_add", "compare_swap"});
}

TEST_CASE("operations that wait for room are posted in order, also behind those that came before") {
  std::array<Recorded, 3> operations;
  Rig rig;
  for (Recorded& each : operations) rig.queue.post({}, each);
  CHECK_FALSE(rig.queue.empty());
  rig.endpoint.room = 2;
  rig.queue.on_writable();
  CHECK(rig.endpoint.posted == std::vector<transport::Operation*>{&operations[0], &operations[1]});
  Recorded late;
  rig.endpoint.room = 0;
  rig.queue.post({}, late);
  rig.endpoint.room = 9;
  rig.queue.on_writable();
  CHECK(rig.endpoint.posted ==
        std::vector<transport::Operation*>{&operations[0], &operations[1], &operations[2], &late});
  CHECK(rig.queue.empty());
  rig.endpoint.finish_all();
}

TEST_CASE("an operation that the endpoint refuses ends with the endpoint's error, waiting or not") {
  Recorded at_once;
  Recorded waiting;
  Rig rig;
  rig.queue.post({}, waiting);
  CHECK(waiting.completions == 0);
  rig.endpoint.refusal = Status(Code::kPermissionDenied, "no");
  rig.queue.on_writable();
  CHECK(waiting.last.code() == Code::kPermissionDenied);
  rig.queue.post({}, at_once);
  CHECK(at_once.last.code() == Code::kPermissionDenied);
  CHECK((waiting.completions == 1 && at_once.completions == 1));
}

TEST_CASE("a waiting operation ends at its deadline") {
  Recorded operation;
  Rig rig;
  operation.deadline = rig.clock.now() + seconds(2);
  rig.queue.post({}, operation);
  rig.pass(seconds(1));
  CHECK(operation.completions == 0);
  rig.pass(seconds(1));
  CHECK(operation.completions == 1);
  CHECK(operation.last.code() == Code::kDeadlineExceeded);
  CHECK(rig.queue.empty());
}

TEST_CASE("a waiting operation with a stall bound lives as long as its connection makes progress") {
  Recorded operation;
  Rig rig;
  operation.stall = seconds(1);
  rig.queue.post({}, operation);
  for (int i = 0; i < 5; ++i) {
    rig.endpoint.progress = rig.clock.now();
    rig.pass(std::chrono::milliseconds(900));
  }
  CHECK(operation.completions == 0);
  for (int i = 0; i < 5 && operation.completions == 0; ++i) rig.pass(seconds(1));
  CHECK(operation.last.code() == Code::kDeadlineExceeded);
  CHECK(operation.last.text().find("made no progress for 1 s") != std::string::npos);
}

TEST_CASE("a waiting operation can be withdrawn, a posted one cannot") {
  Recorded posted;
  Recorded waiting;
  Rig rig;
  rig.endpoint.room = 1;
  rig.queue.post({}, posted);
  rig.queue.post({}, waiting);
  CHECK_FALSE(rig.queue.withdraw(posted));
  CHECK(rig.queue.withdraw(waiting));
  CHECK_FALSE(rig.queue.withdraw(waiting));
  CHECK(waiting.completions == 0);
  CHECK(rig.queue.empty());
  rig.endpoint.finish_all();
}

TEST_CASE("the number of waiting operations is bounded") {
  std::vector<Recorded> operations(limits::kStalledOperations);
  Recorded one_more;
  Rig rig;
  for (Recorded& each : operations) rig.queue.post({}, each);
  rig.queue.post({}, one_more);
  CHECK(one_more.last.code() == Code::kResourceExhausted);
  CHECK(operations.back().completions == 0);
  rig.queue.fail_all(Status(Code::kUnavailable, "broken"));
  for (const Recorded& each : operations) {
    REQUIRE(each.completions == 1);
    REQUIRE(each.last.code() == Code::kUnavailable);
  }
}

}  // namespace
}  // namespace slime::agent
