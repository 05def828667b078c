#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rpc/channel/lending.h"
#include "tests/rpc/parts_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

struct LendingTest {
  explicit LendingTest(ChannelOptions options = {.peer_name = "peer"}) : base(sim, std::move(options)) {}
  ~LendingTest() { base.finish(); }
  // Lends a body of so many bytes.
  Handle lend(std::size_t bytes) {
    OutFrame frame;
    Handle lent;
    const Status status = lending.put_body(frame, pattern(bytes), lent);
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    return lent;
  }
  Status admit(OutFrame& frame, Handle lent, TimePoint deadline) {
    Account::Held held;
    return lending.admit_answer(frame, lent, deadline, held);
  }
  SimFixture sim{kSeed};
  PartsBase base;
  Lending lending{*base.connection, base, base.account};
};

constexpr std::size_t kLarge = 300'000;

}  // namespace

TEST_CASE("a body that fits lies in the frame, a larger one is lent until it is released") {
  LendingTest test;
  OutFrame small;
  Handle lent;
  REQUIRE(test.lending.put_body(small, pattern(100), lent).ok());
  CHECK(small.body == pattern(100));
  CHECK(small.header.flags == 0);
  CHECK(lent.generation == 0);

  OutFrame large;
  REQUIRE(test.lending.put_body(large, pattern(kLarge), lent).ok());
  CHECK((large.header.flags & wire::kFlagRendezvous) != 0);
  const auto offer = wire::decode_offer(large.body);
  REQUIRE(offer.has_value());
  CHECK(offer->lease == lent);
  CHECK(offer->length_bytes == kLarge);
  std::vector<std::uint64_t> released;
  test.lending.find(lent)->released = [&](std::uint64_t bytes) { released.push_back(bytes); };
  CHECK(test.lending.size() == 1);
  test.lending.release(lent);
  test.lending.release(lent);
  CHECK(released == std::vector<std::uint64_t>{kLarge});
  CHECK(test.lending.empty());
  CHECK(test.lending.counters().rendezvous == 1);
}

TEST_CASE("more than the peer takes, and more loans than the table has, are refused") {
  LendingTest test({.peer_name = "peer", .max_calls = 1, .max_payload_bytes = kLarge});
  OutFrame frame;
  Handle lent;
  CHECK(test.lending.put_body(frame, pattern(kLarge + 1), lent).code() == Code::kInvalidArgument);
  while (!test.lending.full()) test.lend(kLarge);
  CHECK(test.lending.size() == 4);
  CHECK(test.lending.put_body(frame, pattern(kLarge), lent).code() == Code::kResourceExhausted);
  test.lending.release_all();
  CHECK(test.lending.empty());
}

TEST_CASE("an answer beyond the account is not lent, and its frame offers nothing") {
  LendingTest test({.peer_name = "peer", .memory_bytes = 6 * kLarge});
  OutFrame frame;
  Handle lent = test.lend(kLarge);
  REQUIRE(test.admit(frame, lent, kNever).ok());
  CHECK(test.base.account->held() == kLarge);

  const Handle more = test.lend(kLarge);
  frame.header.flags = wire::kFlagRendezvous;
  CHECK(test.admit(frame, more, kNever).code() == Code::kResourceExhausted);
  CHECK(test.lending.find(more) == nullptr);
  CHECK(frame.header.flags == 0);
  CHECK(test.lending.counters().over_budget == 1);
  test.lending.release(lent);
  CHECK(test.base.account->held() == 0);
}

TEST_CASE("an answer that nobody reads is revoked after its deadline and the grace") {
  LendingTest test({.peer_name = "peer", .answer_grace = 1s});
  OutFrame frame;
  const Handle late = test.lend(kLarge);
  const Handle lasting = test.lend(kLarge);
  REQUIRE(test.admit(frame, late, test.sim.now() + 2s).ok());
  REQUIRE(test.admit(frame, lasting, kNever).ok());
  test.sim.pass(2900ms);
  CHECK(test.lending.size() == 2);
  CHECK(test.base.turns == 0);
  test.sim.pass(200ms);
  CHECK(test.lending.find(late) == nullptr);
  CHECK(test.lending.find(lasting) != nullptr);
  CHECK(test.lending.counters().revoked == 1);
  CHECK(test.base.turns == 1);
}

TEST_CASE("an answer after its deadline is not lent") {
  LendingTest test;
  OutFrame frame;
  const Handle lent = test.lend(kLarge);
  CHECK(test.admit(frame, lent, test.sim.now()).code() == Code::kDeadlineExceeded);
  CHECK(test.lending.empty());
}

TEST_CASE("attachments travel in the frame as far as they fit, the others are lent under one lease") {
  LendingTest test;
  AttachedBody body;
  body.body = pattern(10);
  body.attachments.push_back(Attachment(pattern(100)));
  body.attachments.push_back(Attachment(pattern(kLarge)));
  OutFrame frame;
  Handle lent;
  const Status status = test.lending.put_body(frame, std::move(body), lent);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  CHECK(frame.header.flags == wire::kFlagAttachments);
  const auto table = wire::decode_attachments(frame.body);
  REQUIRE(table.has_value());
  CHECK(table->lease == lent);
  REQUIRE(table->entries.size() == 2);
  CHECK(!table->entries[0].lent);
  CHECK(table->entries[1].lent);
  CHECK(test.lending.counters().copied_bytes == 100);
  CHECK(test.lending.find(lent)->own_bytes() == kLarge);
  test.lending.release_all();
}

TEST_CASE("attachments are refused for a peer that knows none") {
  LendingTest test;
  test.base.greet(wire::kOptionalFeatures & ~wire::kFeatureAttachments);
  AttachedBody body;
  body.attachments.push_back(Attachment(pattern(100)));
  OutFrame frame;
  Handle lent;
  CHECK(test.lending.put_body(frame, std::move(body), lent).code() == Code::kUnimplemented);
}
