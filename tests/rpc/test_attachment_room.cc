#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "rpc/channel/attachment_room.h"
#include "rpc/limits.h"
#include "tests/rpc/parts_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

struct RoomTest {
  ~RoomTest() { base.finish(); }
  // Finds memory for one attachment of a table of its own.
  Attachment find(std::uint64_t length, const Destination* to = nullptr) {
    room.begin_table();
    MutableBytes bytes;
    Attachment out;
    const Status status = room.find(length, to, bytes, out);
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    CHECK(bytes.size() == length);
    CHECK(out.bytes().data() == bytes.data());
    return out;
  }
  SimFixture sim{kSeed};
  PartsBase base{sim};
  AttachmentRoom room{*base.connection};
};

}  // namespace

TEST_CASE("the memory that a call names is known until its handler is called") {
  RoomTest test;
  ByteVector memory(100);
  Destinations into;
  into.emplace_back(MutableBytes(memory));
  std::uint64_t number = 0;
  int calls = 0;
  CallHandler handler = test.room.keep(
      std::move(into), [&](Result<Payload>) { ++calls; }, number);
  REQUIRE(number != 0);
  const Destination* const first = test.room.destination(number, 0);
  REQUIRE(first != nullptr);
  CHECK(first->bytes().data() == memory.data());
  CHECK(test.room.destination(number, 1) == nullptr);
  CHECK(test.room.destination(number + 1, 0) == nullptr);
  handler(Status(Code::kCancelled, "cancelled"));
  CHECK(calls == 1);
  CHECK(test.room.destination(number, 0) == nullptr);
}

TEST_CASE("each call that names memory has a number of its own") {
  RoomTest test;
  ByteVector memory(10);
  const auto keep = [&] {
    Destinations into;
    into.emplace_back(MutableBytes(memory));
    std::uint64_t number = 0;
    test.room.keep(
        std::move(into), [](Result<Payload>) {}, number);
    return number;
  };
  const std::uint64_t first = keep();
  CHECK(keep() != first);
}

TEST_CASE("an attachment lies at the beginning of the memory that was named for it") {
  RoomTest test;
  ByteVector memory(100);
  const Destination to{MutableBytes(memory)};
  const Attachment attachment = test.find(40, &to);
  CHECK(attachment.bytes().data() == memory.data());
  CHECK(attachment.size() == 40);
}

TEST_CASE("without a name an attachment gets memory of its own, and none for no bytes") {
  RoomTest test;
  const Attachment attachment = test.find(1000);
  CHECK(attachment.owns_memory());
  CHECK(attachment.memory() == nullptr);
  CHECK(test.find(0).size() == 0);
}

TEST_CASE("a block of the connection is earned by an attachment that was received, and used again") {
  RoomTest test;
  const std::uint64_t length = 1 << 20;
  Attachments received;
  received.push_back(test.find(length));
  CHECK(received[0].memory() == nullptr);
  test.room.note_received(received);
  Attachment second = test.find(length);
  REQUIRE(second.memory() != nullptr);
  const std::byte* const block = second.bytes().data();
  second.release();
  CHECK(test.find(length).bytes().data() == block);
}
