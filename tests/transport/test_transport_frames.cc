// The bytes of the software engine's atomics, and peers that answer what they were not asked.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/transport/keys.h"
#include "tests/transport/script_wire.h"

namespace slime::transport::testing {
TEST_CASE("the bytes of atomics are those of the documentation") {
  Scripted s;
  GuardedRegion local(s.device, 16, Rights::kLocal, 1);
  TestOperation adding;
  TestOperation swapping;
  REQUIRE(s.endpoint->fetch_add({&local.region, 0, &s.remote, 0x18}, 0x99, adding).ok());
  REQUIRE(s.endpoint->compare_swap({&local.region, 8, &s.remote, 0x20}, 0xaabb, 0xccdd, swapping).ok());
  CHECK(s.take_sent() ==
        "0b000000"
        "00000000"
        "0100000000000000"
        "0d0c0b0a04030201"
        "8877665544332211"
        "1800000000000000"
        "9900000000000000"
        "0c000000"
        "08000000"
        "0200000000000000"
        "0d0c0b0a04030201"
        "8877665544332211"
        "2000000000000000"
        "ddcc000000000000"
        "bbaa000000000000");
  s.wire->deliver(frame({.type = FrameType::kAtomicReply, .operation = 1, .value = 0x77}));
  s.wire->deliver(frame({.type = FrameType::kAtomicReply, .code = 4, .operation = 2}));
  CHECK(adding.last.to_string() == "ok");
  CHECK(local.bytes()[0] == std::byte{0x77});
  CHECK(swapping.last.code() == Code::kPermissionDenied);
  CHECK(Bytes(local.copy()).subspan(8).size() == 8);
  CHECK(std::equal(local.bytes().begin() + 8, local.bytes().end(), random_data(16, 1).begin() + 8));
}

TEST_CASE("the wire knows that somebody waits for a message, though nothing is in flight") {
  Scripted s;
  s.turns();
  CHECK_FALSE(s.wire->waiting);
  s.endpoint->set_awaiting(true);
  CHECK(s.wire->waiting);
  GuardedRegion local(s.device, 16, Rights::kLocal, 1);
  TestOperation adding;
  REQUIRE(s.endpoint->fetch_add({&local.region, 0, &s.remote, 0}, 1, adding).ok());
  s.turns();
  s.wire->deliver(frame({.type = FrameType::kAtomicReply, .operation = 1, .value = 1}));
  s.turns();
  REQUIRE(adding.last.ok());
  CHECK(s.wire->waiting);
  s.endpoint->set_awaiting(false);
  CHECK_FALSE(s.wire->waiting);
}

TEST_CASE("a peer's atomics are executed once each and answered in order") {
  Scripted s;
  GuardedRegion target(s.device, 16, Rights::kReadWrite, 1);
  std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0});
  target.bytes()[8] = std::byte{5};
  const RegionDescriptor at = target.region.describe();
  FrameHeader add{.type = FrameType::kFetchAdd, .operation = 1};
  add.region = at.id.packed();
  add.key = key_of(at);
  add.offset = 8;
  add.value = 3;
  FrameHeader swap = add;
  swap.type = FrameType::kCompareSwap;
  swap.payload_bytes = 8;
  swap.operation = 2;
  swap.value = 0x0102;
  const std::byte expected[8] = {std::byte{8}};
  FrameHeader misaligned = add;
  misaligned.operation = 3;
  misaligned.offset = 4;
  ByteVector stream = frame(add);
  for (const ByteVector& more : {frame(swap, expected), frame(misaligned)})
    stream.insert(stream.end(), more.begin(), more.end());
  for (const std::byte byte : stream) s.wire->deliver(Bytes(&byte, 1));  // however it is cut
  CHECK(s.take_sent() ==
        "0d000000"
        "00000000"
        "0100000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "0500000000000000"
        "0d000000"
        "00000000"
        "0200000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "0800000000000000"
        "0d010000"
        "00000000"
        "0300000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000");
  CHECK(target.bytes()[8] == std::byte{2});
  CHECK(target.bytes()[9] == std::byte{1});
}

TEST_CASE("answers that do not fit what was asked break the connection as corrupt") {
  const auto reply = [](std::uint64_t operation, std::uint8_t code, std::uint64_t value) {
    return frame({.type = FrameType::kAtomicReply, .code = code, .operation = operation, .value = value});
  };
  const std::byte data[8] = {};
  FrameHeader read_data{.type = FrameType::kReadData, .payload_bytes = 8, .operation = 1};
  const struct {
    const char* what;
    ByteVector bytes;
  } bad[] = {{"an answer to a later request", reply(2, 0, 1)},
             {"an answer to no request", reply(9, 0, 1)},
             {"a value of a refused atomic", reply(1, 4, 1)},
             {"an unknown code", reply(1, 200, 0)},
             {"the end of a read", frame({.type = FrameType::kReadDone, .operation = 1})},
             {"data of a read", frame(read_data, data)},
             {"an ack", frame({.type = FrameType::kAck, .operation = std::uint64_t{1} << 32})},
             {"an unknown type", frame({.type = static_cast<FrameType>(17)})},
             {"an ack of fetches", frame({.type = FrameType::kFetched, .value = 1})},
             {"a compare_swap without its payload",
              frame({.type = FrameType::kCompareSwap, .operation = 1, .value = 1})},
             {"a fetch_add with a payload",
              frame({.type = FrameType::kFetchAdd, .payload_bytes = 8, .operation = 1}, data)},
             {"a request out of order", frame({.type = FrameType::kFetchAdd, .operation = 2})}};
  for (const auto& one : bad) {
    CAPTURE(one.what);  // not a structured binding: clang 14 cannot capture those
    Scripted s;
    GuardedRegion local(s.device, 8, Rights::kLocal, 1);
    GuardedRegion other(s.device, 8, Rights::kLocal, 2);
    TestOperation adding;
    TestOperation reading;
    const CopyBlock copies[] = {{&other.region, 0, &s.remote, 0, 8}};
    REQUIRE(s.endpoint->fetch_add({&local.region, 0, &s.remote, 0}, 1, adding).ok());
    REQUIRE(s.endpoint->read(copies, reading).ok());
    s.turns();
    s.wire->deliver(one.bytes);
    s.turns();
    CHECK(s.endpoint->error().code() == Code::kCorrupt);
    CHECK(adding.completions == 1);
    CHECK(reading.completions == 1);
    CHECK(s.recorder.closed == 1);
    CHECK(local.copy() == random_data(8, 1));
    CHECK(other.copy() == random_data(8, 2));
  }
}

TEST_CASE("an atomic's answer does not end a read") {
  Scripted s;
  GuardedRegion local(s.device, 8, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 8}};
  TestOperation reading;
  REQUIRE(s.endpoint->read(copies, reading).ok());
  s.turns();
  s.wire->deliver(frame({.type = FrameType::kAtomicReply, .operation = 1, .value = 3}));
  s.turns();
  CHECK(s.endpoint->error().code() == Code::kCorrupt);
  CHECK(reading.completions == 1);
  CHECK(local.copy() == random_data(8, 1));
}

TEST_CASE("a peer with more than 64 unanswered atomics breaks the connection") {
  Scripted s;
  GuardedRegion target(s.device, 8, Rights::kReadWrite, 1);
  std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0});
  const RegionDescriptor at = target.region.describe();
  ByteVector stream;
  for (std::uint64_t i = 1; i <= limits::kReadWindow + 1; ++i) {
    FrameHeader add{.type = FrameType::kFetchAdd, .operation = i};
    add.region = at.id.packed();
    add.key = key_of(at);
    add.value = 1;
    const ByteVector bytes = frame(add);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  s.wire->deliver(stream);
  CHECK(s.endpoint->error().code() == Code::kCorrupt);
  CHECK(target.bytes()[0] == std::byte{limits::kReadWindow});
}

TEST_CASE("an engine of another version is refused by name") {
  soft::Parameters old{.version = 1, .slot_bytes = 512, .initial_credits = 8};
  const auto decoded = soft::Parameters::decode(old.encode());
  CHECK(decoded.status().code() == Code::kCorrupt);
  CHECK(decoded.status().text().find("version 1") != std::string::npos);
}

}  // namespace slime::transport::testing
