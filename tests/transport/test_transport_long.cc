// Messages that are larger than a receive slot, over a wire that takes them.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/transport/script_wire.h"
#include "tests/transport/sim_fixture.h"
#include "tests/transport/socket_fixture.h"
#include "transport/soft/pool.h"

namespace slime::transport::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSeed = 20261129;
constexpr PortOptions kSmall{.slot_bytes = 512, .pool_slots = 64, .base_credits = 16, .max_credits = 32};
constexpr std::size_t kEight = 8 * 512;  // a message of eight slots

struct NoOwner final : CreditOwner {
  void on_slot_free() noexcept override {}
};

SimFixture long_sim() { return SimFixture(sim::SimOptions{.seed = kSeed, .long_messages = true}); }

Status send(Endpoint& endpoint, Bytes bytes, TestOperation& operation) {
  return endpoint.send(std::span(&bytes, 1), operation);
}

}  // namespace

TEST_CASE("a long message takes as many credits as slots, in steps above eight, and arrives whole") {
  SimFixture sim = long_sim();
  sim.open({});
  Connection c(sim);
  CHECK(soft::slots_of(8192, 8192) == 1);
  CHECK(soft::slots_of(8193, 8192) == 2);
  CHECK(soft::slots_of(64 << 10, 8192) == 8);
  CHECK(soft::slots_of((64 << 10) + 1, 8192) == 12);
  CHECK(soft::slots_of(limits::kLongMessageBytes, 8192) == 36);
  CHECK(soft::slots_of(0, 8192) == 1);
  const std::uint64_t before = c.a().credits();
  const ByteVector bytes = random_data(30'000, 1);
  TestOperation sent;
  REQUIRE(c.a().takes_long(bytes.size()));
  REQUIRE(send(c.a(), bytes, sent).ok());
  CHECK(c.a().credits() == before - 4);
  REQUIRE(sim.until([&] { return sent.done() && c.receiver_b.messages.size() == 1; }));
  CHECK(sent.last.ok());
  CHECK(c.receiver_b.messages[0] == bytes);
  CHECK(c.b().counters().reads == 0);
}

TEST_CASE("over tcp a message of 256 KiB arrives whole, as soon as the peer gives the credits") {
  auto sockets = SocketFixture::of("tcp");
  sockets->open({});
  Connection c(*sockets);
  const ByteVector bytes = random_data(256 << 10, 2);
  std::vector<std::unique_ptr<TestOperation>> operations;
  // Each refusal is told with the next message, and doubles what the peer gives.
  for (int i = 0; i < 6 && !c.a().takes_long(bytes.size()); ++i) {
    operations.push_back(std::make_unique<TestOperation>());
    REQUIRE(send(c.a(), Bytes(bytes).first(10), *operations.back()).ok());
    const std::uint64_t before = c.a().credits();
    REQUIRE(sockets->until([&] { return c.a().credits() > before; }));
  }
  const std::size_t small = operations.size();
  REQUIRE(c.a().takes_long(bytes.size()));
  operations.push_back(std::make_unique<TestOperation>());
  REQUIRE(send(c.a(), bytes, *operations.back()).ok());
  REQUIRE(sockets->until([&] { return c.receiver_b.messages.size() == small + 1; }));
  CHECK(c.receiver_b.messages.back() == bytes);
}

TEST_CASE("a wire that takes no long messages refuses them, and says so") {
  SimFixture sim(kSeed);
  sim.open({});
  Connection c(sim);
  CHECK(c.a().long_message_bytes() == 0);
  CHECK(!c.a().takes_long(10'000));
  TestOperation operation;
  CHECK(send(c.a(), random_data(10'000, 1), operation).code() == Code::kInvalidArgument);
  auto shm = SocketFixture::of("shm");
  shm->open({});
  Connection over_shm(*shm);
  CHECK(over_shm.a().long_message_bytes() == 0);
}

TEST_CASE("long messages leave half of the credits to others") {
  SimFixture sim = long_sim();
  sim.open(kSmall);
  Connection c(sim);
  c.receiver_b.hold = true;
  TestOperation first;
  REQUIRE(c.a().credits() == 16);
  REQUIRE(c.a().takes_long(kEight));
  REQUIRE(send(c.a(), random_data(kEight, 1), first).ok());
  REQUIRE(sim.until([&] { return c.receiver_b.held.size() == 1; }));
  CHECK(!c.a().takes_long(kEight));
  TestOperation refused;
  CHECK(send(c.a(), random_data(kEight, 2), refused).code() == Code::kResourceExhausted);
  CHECK(refused.completions == 0);
  std::vector<std::unique_ptr<TestOperation>> small;
  for (int i = 0; i < 8; ++i) {
    small.push_back(std::make_unique<TestOperation>());
    CHECK(send(c.a(), random_data(10, 3), *small.back()).ok());
  }
  REQUIRE(sim.until([&] { return c.receiver_b.held.size() == 9; }));
}

TEST_CASE("a message that keeps its buffer gives the credits back, and its bytes stay") {
  SimFixture sim = long_sim();
  sim.open(kSmall);
  Connection c(sim);
  c.receiver_b.hold = true;
  const std::uint32_t free_before = sim.port(1).free_slots();
  std::vector<std::unique_ptr<TestOperation>> sent;
  std::vector<Message> kept;
  for (std::uint64_t i = 0; i < 20; ++i) {
    sent.push_back(std::make_unique<TestOperation>());
    REQUIRE(sim.until([&] { return c.a().takes_long(kEight); }));
    REQUIRE(send(c.a(), random_data(kEight, i), *sent.back()).ok());
    REQUIRE(sim.until([&] { return c.receiver_b.held.size() == 1; }));
    Message& message = c.receiver_b.held.front();
    CHECK(message.keep());
    CHECK(message.keep());  // does nothing more
    kept.push_back(std::move(message));
    c.receiver_b.held.clear();
  }
  for (std::uint64_t i = 0; i < 20; ++i) {
    const ByteVector expected = random_data(kEight, i);
    CHECK(std::equal(expected.begin(), expected.end(), kept[i].bytes().begin(), kept[i].bytes().end()));
  }
  c.a().reset(Status(Code::kCancelled, "the end"));
  REQUIRE(sim.until([&] { return c.receiver_b.closed == 1; }));
  CHECK(sim.port(1).free_slots() >= free_before);
  kept.clear();
}

TEST_CASE("a message in a slot cannot be kept") {
  SimFixture sim = long_sim();
  sim.open(kSmall);
  Connection c(sim);
  c.receiver_b.hold = true;
  TestOperation sent;
  REQUIRE(send(c.a(), random_data(100, 1), sent).ok());
  REQUIRE(sim.until([&] { return c.receiver_b.held.size() == 1; }));
  CHECK(!c.receiver_b.held.front().keep());
}

TEST_CASE("slots and long messages together never have more memory than the pool") {
  auto loop = *Loop::create();
  PortOptions options = kSmall;
  options.max_credits = 64;
  auto pool = std::make_shared<soft::SoftPool>(loop, options);
  NoOwner owner;
  auto account = std::make_shared<CreditAccount>();
  REQUIRE(pool->open(*account));
  account->owner = &owner;
  const auto promise = [&](std::uint32_t count) {
    while (account->promised < account->held + count && pool->promise(*account)) {
    }
    REQUIRE(account->promised >= account->held + count);
  };
  std::vector<ReceiveSlot*> slots;
  promise(24);
  for (int i = 0; i < 24; ++i) slots.push_back(&pool->take_slot(*account));
  CHECK(pool->slots_with_memory() == 24);
  for (ReceiveSlot* slot : slots) pool->recycle(*slot);
  CHECK(pool->slots_with_memory() == 24);  // kept for the next messages
  // Long messages of all slots that one endpoint may have: free slots give up their memory.
  slots.clear();
  promise(32);
  for (int i = 0; i < 4; ++i) slots.push_back(&pool->take_long(8, *account));
  CHECK(pool->slots_with_memory() <= options.pool_slots);
  auto other = std::make_shared<CreditAccount>();
  REQUIRE(pool->open(*other));
  other->owner = &owner;
  slots.push_back(&pool->take_long(16, *other));
  CHECK(pool->slots_with_memory() <= options.pool_slots);
  CHECK(pool->slots_with_memory() >= 48);
  for (ReceiveSlot* slot : slots) pool->recycle(*slot);
  pool->close(*other);
  pool->close(*account);
  CHECK(pool->unreserved() == options.pool_slots);
  pool->shut();
}

TEST_CASE("the memory of a long message is used again for the next one of its size") {
  SimFixture sim = long_sim();
  sim.open(kSmall);
  Connection c(sim);
  const std::byte* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    TestOperation sent;
    c.receiver_b.hold = true;
    REQUIRE(sim.until([&] { return c.a().takes_long(kEight); }));
    REQUIRE(send(c.a(), random_data(kEight, 1), sent).ok());
    REQUIRE(sim.until([&] { return sent.done() && c.receiver_b.held.size() == 1; }));
    Message& message = c.receiver_b.held.front();
    if (first == nullptr) first = message.bytes().data();
    CHECK(message.bytes().data() == first);
    if (i == 1) CHECK(message.keep());
    c.receiver_b.held.clear();
  }
}

TEST_CASE("a wire that takes a long message in parts gets each byte once, and a second one has to wait") {
  Scripted s(nullptr, true);
  const ByteVector bytes = random_data(4000, 7);  // 8 of the peer's slots
  s.wire->deliver(frame({.type = FrameType::kCredit, .value = 2000}));
  s.wire->room = 48 + 1000;
  const Bytes parts[] = {Bytes(bytes).first(10), Bytes(bytes).subspan(10)};
  TestOperation sent;
  REQUIRE(s.endpoint->send(parts, sent).ok());
  CHECK(!s.endpoint->takes_long(limits::kLongMessageBytes));
  CHECK(s.endpoint->takes_long(limits::kLongMessageBytes - 4000));
  s.turns();
  s.wire->take(1500);
  s.turns();
  CHECK(!sent.done());
  s.wire->take(SIZE_MAX);
  s.turns();
  CHECK(sent.last.ok());
  CHECK(sent.done());
  REQUIRE(s.wire->sent.size() == 48 + 4000);
  CHECK(std::equal(bytes.begin(), bytes.end(), s.wire->sent.begin() + 48));
  CHECK(s.endpoint->takes_long(limits::kLongMessageBytes));
}

TEST_CASE("a long message that is not handed to a full wire in time gives its credits back") {
  std::vector<std::unique_ptr<TestOperation>> small;
  TestOperation late;
  Scripted s(nullptr, true);  // ends the operations that are left
  s.wire->deliver(frame({.type = FrameType::kCredit, .value = 2000}));
  s.wire->room = 10;
  // The first frames of a full wire are staged; the long message behind them is not.
  for (std::size_t i = 0; i < limits::kBurstFrames; ++i) {
    small.push_back(std::make_unique<TestOperation>());
    REQUIRE(send(*s.endpoint, random_data(20, i), *small.back()).ok());
  }
  s.turns();
  const std::uint64_t before = s.endpoint->credits();
  late.deadline = s.clock.now() + 100ms;
  REQUIRE(send(*s.endpoint, random_data(limits::kLongMessageBytes, 2), late).ok());
  CHECK(s.endpoint->credits() == before - soft::slots_of(limits::kLongMessageBytes, 512));
  CHECK(!s.endpoint->takes_long(4000));
  s.clock.advance(200ms);
  s.turns();
  CHECK(late.last.code() == Code::kDeadlineExceeded);
  CHECK(s.endpoint->credits() == before);
  CHECK(s.endpoint->takes_long(4000));
}

TEST_CASE("a peer that sends a longer message than it may breaks the connection") {
  SUBCASE("it has not the credits") {
    Scripted s(nullptr, true);  // this side gave 8 credits for slots of 8 KiB
    s.wire->deliver(frame({.type = FrameType::kMessage, .payload_bytes = 8 * 8192 + 1}));
    s.turns();
    CHECK(s.recorder.close_reason.code() == Code::kCorrupt);
  }
  SUBCASE("no message is so long") {
    Scripted s(nullptr, true);
    s.wire->deliver(frame({.type = FrameType::kMessage, .payload_bytes = limits::kLongMessageBytes + 1}));
    s.turns();
    CHECK(s.recorder.close_reason.code() == Code::kCorrupt);
  }
  SUBCASE("the wire takes none") {
    Scripted s;
    s.wire->deliver(frame({.type = FrameType::kMessage, .payload_bytes = 8193}));
    s.turns();
    CHECK(s.recorder.close_reason.code() == Code::kCorrupt);
  }
}

TEST_CASE("a connection that ends in the middle of a long message gives all slots back") {
  Scripted s(nullptr, true);
  const std::uint32_t before = s.port->free_slots();
  s.wire->deliver(frame({.type = FrameType::kMessage, .payload_bytes = 60'000}, random_data(50'000, 1)));
  s.turns();
  CHECK(s.recorder.messages.empty());
  s.endpoint->reset(Status(Code::kCancelled, "the end"));
  s.turns();
  CHECK(s.recorder.closed == 1);
  CHECK(s.port->free_slots() == before + 8);
}

}  // namespace slime::transport::testing
