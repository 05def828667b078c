// Writes whose acks may wait for those behind them: which ones ask for that, and what the target
// does.
#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "tests/transport/keys.h"
#include "tests/transport/script_wire.h"

namespace slime::transport::testing::transport_acks_test {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// The flags of the last frames of `count` writes of `bytes` that are posted together.
std::vector<int> flags_of(Scripted& s, std::size_t count, std::uint64_t bytes) {
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  std::deque<TestOperation> writing(count);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, bytes};
  for (TestOperation& operation : writing) REQUIRE(s.endpoint->write({&copy, 1}, operation).ok());
  std::vector<int> flags;
  for (const FrameHeader& header : sent_by(s)) {
    REQUIRE(header.type == FrameType::kWrite);
    if ((header.flags & soft::kFlagLast) == 0) continue;
    flags.push_back(header.flags);
    s.wire->deliver(frame({.type = FrameType::kAck, .operation = header.operation}));
  }
  s.turns();
  for (const TestOperation& operation : writing) CHECK(operation.done());
  return flags;
}

// A write of the peer into `region`.
ByteVector write_frame(const DeviceRegion& region, std::uint64_t operation, std::uint8_t flags) {
  FrameHeader header{.type = FrameType::kWrite};
  header.payload_bytes = 16;
  header.flags = flags;
  header.operation = operation;
  header.region = region.describe().id.packed();
  header.key = key_of(region.describe());
  return frame(header, ByteVector(16, std::byte{7}));
}

constexpr int kAtOnce = soft::kFlagLast;
constexpr int kPatient = soft::kFlagLast | soft::kFlagPatient;

TEST_CASE("a write with nothing behind it wants its ack at once") {
  Scripted s;
  CHECK(flags_of(s, 1, 100) == std::vector<int>{kAtOnce});
  CHECK(flags_of(s, 1, kMiB) == std::vector<int>{kAtOnce});
  CHECK(flags_of(s, 2, 100) == std::vector<int>{kAtOnce, kAtOnce});
  s.endpoint.reset();
}

TEST_CASE("of writes that follow each other half may wait for one, and no more than a bound of bytes") {
  Scripted s;
  CHECK(flags_of(s, 4, 100) == std::vector<int>{kPatient, kAtOnce, kPatient, kAtOnce});
  std::vector<int> expected;
  expected.reserve(20);
  for (int i = 0; i < 20; ++i) expected.push_back(i % 4 == 3 ? kAtOnce : kPatient);
  CHECK(flags_of(s, 20, limits::kAckBytes / 4) == expected);
  s.endpoint.reset();
}

TEST_CASE("the ack of a patient write leaves with the next one, or after a while") {
  Scripted s;
  GuardedRegion local(s.device, 4096, Rights::kReadWrite, 1);
  s.wire->deliver(write_frame(local.region, 1, kPatient));
  s.wire->deliver(write_frame(local.region, 2, kPatient));
  CHECK(sent_by(s).empty());
  s.wire->deliver(write_frame(local.region, 3, kAtOnce));
  const auto together = sent_by(s);
  REQUIRE(together.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(together[i].type == FrameType::kAck);
    CHECK(together[i].operation == i + 1);
    CHECK(together[i].code == 0);
  }
  s.wire->deliver(write_frame(local.region, 4, kPatient));
  CHECK(sent_by(s).empty());
  s.clock.advance(limits::kAckPatience);
  const auto late = sent_by(s);
  REQUIRE(late.size() == 1);
  CHECK(late[0].operation == 4);
  s.wire->deliver(write_frame(local.region, 5, kPatient));
  CHECK(sent_by(s).empty());  // that one waits again
  s.endpoint.reset();
}

TEST_CASE("a close sends the acks that wait before it says goodbye") {
  Scripted s;
  GuardedRegion local(s.device, 4096, Rights::kReadWrite, 1);
  s.wire->deliver(write_frame(local.region, 1, kPatient));
  s.endpoint->close();
  const auto sent = sent_by(s);
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].type == FrameType::kAck);
  CHECK(sent[1].type == FrameType::kGoodbye);
  s.endpoint.reset();
}

TEST_CASE("only the last frame of a write can be patient") {
  Scripted s;
  GuardedRegion local(s.device, 4096, Rights::kReadWrite, 1);
  s.wire->deliver(write_frame(local.region, 1, soft::kFlagPatient));
  s.turns();
  CHECK(s.endpoint->error().code() == Code::kCorrupt);
  s.endpoint.reset();
}

}  // namespace
}  // namespace slime::transport::testing::transport_acks_test
