// Messages beside bulk data: how large its frames are.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/transport/script_wire.h"

namespace slime::transport::testing::transport_pace_test {
namespace {

// Returns the largest frame of bulk data among `sent`.
std::uint32_t largest_of(const std::vector<FrameHeader>& sent) {
  std::uint32_t largest = 0;
  for (const FrameHeader& header : sent) {
    if (header.type == FrameType::kWrite) largest = std::max(largest, header.payload_bytes);
  }
  return largest;
}

// Posts a write of 1 MiB and returns what was sent for it.
std::vector<FrameHeader> write_one(Scripted& s, const DeviceRegion& local) {
  const CopyBlock copy{&local, 0, &s.remote, 0, 1 << 20};
  TestOperation writing;
  REQUIRE(s.endpoint->write({&copy, 1}, writing).ok());
  std::vector<FrameHeader> sent = sent_by(s);
  for (const FrameHeader& header : sent) {
    if ((header.flags & soft::kFlagLast) != 0)
      s.wire->deliver(frame({.type = FrameType::kAck, .operation = header.operation}));
  }
  s.turns();
  REQUIRE(writing.done());
  return sent;
}

void receive_message(Scripted& s) {
  s.wire->deliver(frame({.type = FrameType::kMessage, .payload_bytes = 8}, ByteVector(8)));
}

}  // namespace

TEST_CASE("frames of bulk data are short only while messages come between") {
  Scripted s;
  GuardedRegion local(s.device, 1 << 20, Rights::kLocal, 1);
  CHECK(largest_of(write_one(s, local.region)) == limits::kChunkBytes);
  for (int i = 0; i < 32; ++i) {
    receive_message(s);
    write_one(s, local.region);
  }
  CHECK(largest_of(write_one(s, local.region)) == limits::kSharedChunkBytes);
  for (int i = 0; i < 128; ++i) write_one(s, local.region);
  CHECK(largest_of(write_one(s, local.region)) == limits::kChunkBytes);
  s.endpoint.reset();
}

}  // namespace slime::transport::testing::transport_pace_test
