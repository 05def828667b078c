// One-sided operations with a stall bound, on the software engine with a clock of the test.
#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include "tests/transport/keys.h"
#include "tests/transport/script_wire.h"

namespace slime::transport::testing::transport_stall_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMiB = 1 << 20;
constexpr Nanos kStall = seconds(1);
constexpr Nanos kPause = milliseconds(900);
constexpr Nanos kStep = milliseconds(20);

struct Stalling : Scripted {
  using Scripted::Scripted;
  ~Stalling() { endpoint.reset(); }
  // In steps: the process runs all the time.
  void pass(Nanos span) {
    for (Nanos left = span; left > Nanos::zero(); left -= kStep) {
      clock.advance(std::min(left, kStep));
      turns();
    }
  }
  Status read(TestOperation& operation, const CopyBlock& copy) {
    return endpoint->read({&copy, 1}, operation);
  }
  // What the peer answers to the oldest read.
  [[nodiscard]] ByteVector data(std::uint32_t bytes, std::uint64_t offset = 0) const {
    FrameHeader header{.type = FrameType::kReadData};
    header.payload_bytes = bytes;
    header.operation = 1;
    header.offset = offset;
    return frame(header, ByteVector(bytes, std::byte{7}));
  }
};

// A read of one chunk with a stall bound, which has just been posted.
struct UnderWay {
  UnderWay() {
    reading.stall = kStall;
    REQUIRE(s.read(reading, copy).ok());
  }
  Stalling s;
  GuardedRegion local{s.device, kMiB, Rights::kLocal, 1};
  const CopyBlock copy{&local.region, 0, &s.remote, 0, limits::kChunkBytes};
  TestOperation reading;
};

bool contains(const Status& status, const std::string& part) {
  return status.text().find(part) != std::string::npos;
}

// The operation was on the wire, and its connection was reset for it.
void check_reset(Stalling& s, const TestOperation& operation) {
  CHECK(operation.completions == 1);
  CHECK(operation.last.code() == Code::kDeadlineExceeded);
  s.turns();
  CHECK(s.recorder.closed == 1);
  CHECK(s.recorder.close_reason.code() == Code::kDeadlineExceeded);
}

TEST_CASE("a read whose bytes keep coming outlasts its stall bound, and the deadline of those without one") {
  UnderWay under_way;
  Stalling& s = under_way.s;
  TestOperation& reading = under_way.reading;
  s.turns();
  const TimePoint began = s.clock.now();
  const ByteVector answer = s.data(limits::kChunkBytes);
  for (Bytes left = answer; !left.empty();) {
    const Bytes piece = left.first(std::min<std::size_t>(left.size(), 4096));
    left = left.subspan(piece.size());
    s.wire->deliver(piece);
    s.pass(kPause);
    REQUIRE_FALSE(reading.done());
  }
  s.wire->deliver(frame({.type = FrameType::kReadDone, .operation = 1}));
  s.turns();
  CHECK(reading.last.to_string() == "ok");
  CHECK(s.clock.now() - began > limits::kOperationDeadline);
}

TEST_CASE("a write whose bytes the wire keeps taking outlasts its stall bound, and so does one behind it") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, kMiB};
  TestOperation first;
  TestOperation behind;
  first.stall = behind.stall = kStall;
  s.wire->room = 0;
  REQUIRE(s.endpoint->write({&copy, 1}, first).ok());
  REQUIRE(s.endpoint->write({&copy, 1}, behind).ok());
  for (int i = 0; i < 20; ++i) {
    s.pass(kPause);
    REQUIRE_FALSE(first.done());
    s.wire->take(10'000);
  }
  CHECK_FALSE(first.done());
  CHECK_FALSE(behind.done());
  s.wire->take(SIZE_MAX);
  std::vector<std::uint64_t> writes;
  for (const FrameHeader& header : sent_by(s))
    if ((header.flags & soft::kFlagLast) != 0) writes.push_back(header.operation);
  REQUIRE(writes.size() == 2);
  s.pass(kPause);
  s.wire->deliver(frame({.type = FrameType::kAck, .operation = writes[0]}));
  s.pass(kPause);
  CHECK(first.last.to_string() == "ok");
  CHECK_FALSE(behind.done());  // the ack of the first was progress
  s.wire->deliver(frame({.type = FrameType::kAck, .operation = writes[1]}));
  s.turns();
  CHECK(behind.last.to_string() == "ok");
}

TEST_CASE(
    "a write that the wire has taken outlasts its stall bound while the peer acknowledges bytes, and no "
    "longer") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, kMiB};
  TestOperation writing;
  writing.stall = kStall;
  REQUIRE(s.endpoint->write({&copy, 1}, writing).ok());
  s.turns();
  REQUIRE(s.wire->sent.size() > kMiB);
  s.wire->backlog = kMiB;
  for (int i = 0; i < 20; ++i) {
    s.pass(kStall / 2);
    REQUIRE_FALSE(writing.done());
    s.wire->backlog -= 1000;
  }
  SUBCASE("the peer is silent from now on") {}
  SUBCASE("only other bytes are acknowledged, of which more follow") {
    s.pass(kStall / 2);
    REQUIRE_FALSE(writing.done());
    s.wire->backlog += 5000;
  }
  s.pass(kStall);
  s.pass(kStall);
  check_reset(s, writing);
  CHECK(contains(writing.last, "made no progress for 1 s"));
}

TEST_CASE("what the peer acknowledges of other bytes is no progress of a read") {
  UnderWay under_way;
  Stalling& s = under_way.s;
  TestOperation& reading = under_way.reading;
  s.turns();
  s.wire->backlog = 10'000;
  s.pass(kStall / 2);
  s.wire->backlog = 0;
  s.pass(kStall / 2);
  check_reset(s, reading);
}

TEST_CASE("a silent peer ends an operation after its stall bound, from the post or the last byte on") {
  UnderWay under_way;
  Stalling& s = under_way.s;
  TestOperation& reading = under_way.reading;
  s.turns();
  SUBCASE("it never answered") {}
  SUBCASE("it stopped in the middle of a frame") {
    s.pass(kPause);
    s.wire->deliver(Bytes(s.data(limits::kChunkBytes)).first(1000));
  }
  s.pass(kStall - Nanos(1));
  CHECK_FALSE(reading.done());
  s.pass(Nanos(1));
  check_reset(s, reading);
  CHECK(contains(reading.last, "made no progress for 1 s"));
  CHECK(contains(s.recorder.close_reason, "made no progress for 1 s"));
}

TEST_CASE("of a deadline and a stall bound the earlier one ends an operation") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, limits::kChunkBytes};
  TestOperation reading;
  reading.stall = kStall;
  SUBCASE("the deadline, although bytes come") {
    reading.deadline = s.clock.now() + 2 * kPause;
    REQUIRE(s.read(reading, copy).ok());
    s.turns();
    s.pass(kPause);
    s.wire->deliver(Bytes(s.data(limits::kChunkBytes)).first(1000));
    s.pass(kPause - Nanos(1));
    CHECK_FALSE(reading.done());
    s.pass(Nanos(1));
    CHECK(contains(reading.last, "before its deadline"));
  }
  SUBCASE("the stall bound, long before the deadline") {
    reading.deadline = s.clock.now() + seconds(20);
    REQUIRE(s.read(reading, copy).ok());
    s.turns();
    s.pass(kStall);
    CHECK(contains(reading.last, "no progress"));
  }
  check_reset(s, reading);
}

TEST_CASE("an operation that has not started ends alone, and others go on") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, kMiB};
  TestOperation patient;
  TestOperation waiting;
  waiting.stall = kStall;
  s.wire->room = 0;
  REQUIRE(s.endpoint->write({&copy, 1}, patient).ok());
  REQUIRE(s.endpoint->write({&copy, 1}, waiting).ok());
  s.turns();
  s.pass(kStall);
  CHECK(waiting.last.code() == Code::kDeadlineExceeded);
  CHECK(contains(waiting.last, "could not start: its connection made no progress for 1 s"));
  CHECK_FALSE(patient.done());
  s.wire->take(SIZE_MAX);
  const auto sent = sent_by(s);
  REQUIRE(sent.size() == kMiB / limits::kChunkBytes);
  s.wire->deliver(frame({.type = FrameType::kAck, .operation = sent.back().operation}));
  s.turns();
  CHECK(patient.last.to_string() == "ok");
  CHECK(s.recorder.closed == 0);
}

TEST_CASE("a deadline without a stall bound holds, also after the end of an operation with an earlier one") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, limits::kChunkBytes};
  TestOperation reading;
  reading.deadline = s.clock.now() + seconds(5);
  REQUIRE(s.read(reading, copy).ok());
  s.turns();
  s.wire->room = 0;
  const CopyBlock large{&local.region, 0, &s.remote, 0, kMiB};
  TestOperation writing;
  writing.deadline = s.clock.now() + seconds(60);
  TestOperation waiting;
  waiting.deadline = s.clock.now() + seconds(1);
  REQUIRE(s.endpoint->write({&large, 1}, writing).ok());
  REQUIRE(s.endpoint->write({&copy, 1}, waiting).ok());
  s.pass(seconds(1));
  REQUIRE(waiting.last.code() == Code::kDeadlineExceeded);
  CHECK_FALSE(reading.done());
  s.pass(seconds(4));
  check_reset(s, reading);
}

TEST_CASE("after a pause of whoever drives the loop the wire is looked at before an operation ends") {
  UnderWay under_way;
  Stalling& s = under_way.s;
  TestOperation& reading = under_way.reading;
  s.turns();
  s.clock.advance(seconds(10));
  s.loop->poll(Nanos::zero());                       // timers run first in a turn,
  s.wire->deliver(Bytes(s.data(1000)).first(1000));  // then what came meanwhile is seen
  s.turns();
  CHECK_FALSE(reading.done());
  s.pass(kPause);
  CHECK_FALSE(reading.done());
  s.pass(kStall - kPause);
  check_reset(s, reading);
}

// As where a virtual machine is halted, with the peer and the path to it.
TEST_CASE("a pause of the machine does not count towards a stall") {
  UnderWay under_way;
  Stalling& s = under_way.s;
  TestOperation& reading = under_way.reading;
  s.turns();
  s.pass(kStall / 2);
  for (int pause = 0; pause < 3; ++pause) {
    s.clock.advance(seconds(10));
    s.turns();
    REQUIRE_FALSE(reading.done());
    s.pass(milliseconds(100));
    REQUIRE_FALSE(reading.done());
  }
  s.pass(kStall / 2);
  check_reset(s, reading);
}

TEST_CASE("a write whose bytes are acknowledged late in its first stall bound does not stall") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, kMiB};
  TestOperation writing;
  writing.stall = kStall;
  s.wire->backlog = kMiB;
  REQUIRE(s.endpoint->write({&copy, 1}, writing).ok());
  s.pass(kStall / 4);
  s.wire->backlog -= 1000;
  s.pass(kPause);
  CHECK_FALSE(writing.done());
  s.pass(kStall);
  check_reset(s, writing);
}

TEST_CASE("a peer's own reads and writes, and messages, are no progress of our operations") {
  Stalling s;
  GuardedRegion local(s.device, kMiB, Rights::kReadWrite, 1);
  const CopyBlock copy{&local.region, 0, &s.remote, 0, limits::kChunkBytes};
  TestOperation reading;
  reading.stall = kStall;
  REQUIRE(s.read(reading, copy).ok());
  s.pass(kPause);
  TestOperation sending;
  REQUIRE(send(*s.endpoint, as_bytes("hello"), sending).ok());
  FrameHeader write{.type = FrameType::kWrite};
  write.payload_bytes = 16;
  write.flags = soft::kFlagLast;
  write.operation = 1;
  write.region = local.region.describe().id.packed();
  write.key = key_of(local.region.describe());
  s.wire->deliver(frame(write, ByteVector(16, std::byte{7})));
  FrameHeader asked{.type = FrameType::kReadRequest};
  asked.operation = 1;
  asked.region = write.region;
  asked.key = write.key;
  asked.value = 16;
  s.wire->deliver(frame(asked));
  s.turns();
  CHECK(sending.done());
  s.pass(kStall - kPause);
  check_reset(s, reading);
}

TEST_CASE("a message ignores the stall bound") {
  Stalling s;
  TestOperation sending;
  sending.stall = kStall;
  s.wire->room = 0;
  REQUIRE(send(*s.endpoint, ByteVector(400), sending).ok());
  s.turns();
  s.pass(limits::kOperationDeadline - Nanos(1));
  CHECK_FALSE(sending.done());
  s.pass(Nanos(1));
  CHECK(sending.last.code() == Code::kDeadlineExceeded);
}

// All of the peer's memory is mapped here.
class MappedMemory final : public PeerMemory {
 public:
  explicit MappedMemory(MutableBytes there, std::uint64_t key) {
    window_.data = there.data();
    window_.length_bytes = there.size();
    window_.key = key;
    window_.rights = Rights::kReadWrite;
    window_.ticket = 1;
    window_.in_use = &in_use_;
    window_.shown = &shown_;
  }
  Reach reach(const RemoteRegion&) override { return {Way::kDirect, &window_}; }
  Outcome fetch(PeerBlocks&) override { return Outcome::kDenied; }
  Outcome store(PeerBlocks&, const PeerWindow&) override { return Outcome::kDenied; }
  [[nodiscard]] bool fetches() const override { return false; }
  [[nodiscard]] Known peer_fetches() override { return Known::kNo; }
  void withdraw() override {}

 private:
  std::atomic<std::uint64_t> in_use_{0};
  const std::atomic<std::uint64_t> shown_{1};
  PeerWindow window_;
};

TEST_CASE("copies past the wire are progress") {
  constexpr std::uint64_t kKey = 0x1111;
  ByteVector there(8 * kMiB, std::byte{5});
  MappedMemory memory(there, kKey);
  Stalling s(&memory);
  const RegionDescriptor far{s.remote.id(), there.size(), s.remote.rights(), soft::pack_key(kKey)};
  const RemoteRegion remote = *s.endpoint->import_region(far);
  GuardedRegion local(s.device, 8 * kMiB, Rights::kLocal, 1);
  const CopyBlock copy{&local.region, 0, &remote, 0, 8 * kMiB};
  TestOperation reading;
  reading.stall = kStall;
  REQUIRE(s.read(reading, copy).ok());
  int pauses = 0;
  for (; !reading.done() && pauses < 100; ++pauses) {
    s.loop->poll(Nanos::zero());  // a step of the copy
    s.clock.advance(kPause);
  }
  CHECK(reading.last.to_string() == "ok");
  CHECK(pauses >= 8);
  CHECK(same(local.bytes(), there));
}

}  // namespace
}  // namespace slime::transport::testing::transport_stall_test
