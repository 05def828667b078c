// Parts of the software engine that stand alone: posted operations and their order, and where a
// payload goes.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>

#include "tests/transport/fixture.h"
#include "transport/endpoint/post_checks.h"
#include "transport/soft/bulk_pace.h"
#include "transport/soft/operations.h"
#include "transport/soft/payload.h"

namespace slime::transport::testing {
namespace {

using soft::Kind;
using soft::OneSided;
using soft::Payload;

class Silent final : public Operation {
 public:
  void complete(Status) noexcept override {}
};

std::shared_ptr<soft::RegionRecord> record_over(std::span<std::byte> bytes) {
  return std::make_shared<soft::RegionRecord>(bytes.data(), bytes.size(), Rights::kReadWrite, 1);
}

}  // namespace

TEST_CASE("a barrier is passed once the writes before it are staged and the requests before it completed") {
  soft::OneSidedTable table;
  Silent operation;
  OneSided write(Kind::kWrite);
  OneSided read(Kind::kRead);
  write.operation = read.operation = &operation;
  CHECK(table.barrier_passed(table.barrier()));
  table.add(write);
  table.add(read);
  const std::uint64_t barrier = table.barrier();
  OneSided later(Kind::kWrite);
  later.operation = &operation;
  table.add(later);
  CHECK(table.barrier_passed(0));
  CHECK_FALSE(table.barrier_passed(barrier));
  table.writes().pop_front();  // staged
  CHECK_FALSE(table.barrier_passed(barrier));
  const Handle asked = table.requests().pop_front();
  CHECK_FALSE(table.barrier_passed(barrier));
  CHECK(&table.take(asked) == &operation);
  CHECK(table.find(asked) == nullptr);
  CHECK(table.barrier_passed(barrier));
  CHECK_FALSE(table.barrier_passed(table.barrier()));
  CHECK(table.size() == 2);
}

TEST_CASE("steps are short while messages come with bulk data, and long again when either ends") {
  soft::BulkPace pace;
  const auto mix = [&pace] {
    for (int i = 0; i < 100; ++i) {
      pace.note_bulk(limits::kSharedPieceBytes);
      pace.note_message();
    }
  };
  CHECK_FALSE(pace.shares());
  mix();
  CHECK(pace.shares());
  for (int i = 0; i < 100; ++i) pace.note_message();
  CHECK_FALSE(pace.shares());
  mix();
  for (int i = 0; i < 100; ++i) pace.note_bulk(limits::kBulkAlone);
  CHECK_FALSE(pace.shares());
}

TEST_CASE("steps are short beside one call after the other, whose request follows the reply at once") {
  soft::BulkPace pace;
  for (int i = 0; i < 100; ++i) {
    pace.note_message();
    pace.note_bulk(limits::kSharedPieceBytes);
    pace.note_message();
  }
  CHECK(pace.shares());
}

TEST_CASE("large calls, with a message for many bytes of bulk data, keep the long steps") {
  soft::BulkPace pace;
  for (int i = 0; i < 100; ++i) {
    for (int part = 0; part < 64; ++part) pace.note_bulk(limits::kChunkBytes);
    pace.note_message();
    pace.note_message();
  }
  CHECK_FALSE(pace.shares());
}

TEST_CASE("an operation goes on at its next copy that has bytes") {
  const std::array<CopyBlock, 3> copies{CopyBlock{}, CopyBlock{nullptr, 0, nullptr, 0, 8}, CopyBlock{}};
  OneSided read(Kind::kRead, copies);
  CHECK_FALSE(read.skip_empty());
  CHECK(read.next_copy == 1);
  read.copy_offset = 3;
  ++read.next_copy;
  CHECK(read.skip_empty());
  read.restart();
  CHECK(read.next_copy == 0);
  CHECK(read.copy_offset == 0);
}

TEST_CASE("what the peer refuses says why") {
  OneSided write(Kind::kWrite);
  write.failure = Code::kNotFound;
  CHECK(refused_by_peer(write, "peer").code() == Code::kNotFound);
  // Its kernel may not read this process: the next write takes another way.
  write.failure = Code::kUnimplemented;
  CHECK(refused_by_peer(write, "peer").code() == Code::kUnavailable);
  OneSided atomic(Kind::kFetchAdd);
  atomic.number = CopyBlock{nullptr, 0, nullptr, 4, 8};
  atomic.failure = Code::kInvalidArgument;
  CHECK(refused_by_peer(atomic, "peer").text().find("multiple of 8") != std::string::npos);
}

TEST_CASE("a payload is placed in its region piece by piece") {
  std::array<std::byte, 16> memory{};
  Payload payload;
  CHECK(payload.kind() == Payload::Kind::kNone);
  payload.begin(8);
  payload.place(Payload::Kind::kWrite, record_over(memory), 4);
  CHECK(payload.in_region());
  CHECK(payload.pin());
  std::array<iovec, 4> places;
  REQUIRE(payload.places(places) == 1);
  CHECK(places[0].iov_base == memory.data() + 4);
  CHECK(places[0].iov_len == 8);
  payload.placed(5);
  REQUIRE(payload.places(places) == 1);
  CHECK(places[0].iov_base == memory.data() + 9);
  CHECK(payload.direct_room() == 3);
  payload.placed(3);
  CHECK(payload.left() == 0);
  CHECK(payload.end() == Payload::Kind::kWrite);
  CHECK(payload.kind() == Payload::Kind::kNone);
}

TEST_CASE("a payload of blocks is placed block by block, however it is cut") {
  std::array<std::byte, 16> memory{};
  const std::array<soft::ListedBlock, 3> blocks{{{10, 3}, {0, 2}, {5, 4}}};
  Payload payload;
  payload.begin(9);
  payload.place(Payload::Kind::kWrite, record_over(memory), blocks);
  std::array<iovec, 4> places;
  REQUIRE(payload.places(places) == 3);
  CHECK(places[1].iov_base == memory.data());
  CHECK(places[1].iov_len == 2);
  payload.placed(4);
  REQUIRE(payload.places(places) == 2);
  CHECK(places[0].iov_base == memory.data() + 1);
  CHECK(places[0].iov_len == 1);
  std::array<std::byte, 5> rest;
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = static_cast<std::byte>(i + 1);
  payload.take(rest);
  CHECK(memory[1] == std::byte{1});
  CHECK(memory[5] == std::byte{2});
  CHECK(memory[8] == std::byte{5});
  CHECK(memory[9] == std::byte{0});
  CHECK(payload.left() == 0);
  CHECK(payload.places(places) == 0);
  payload.end();
}

TEST_CASE("a revoked region refuses the rest of a peer's payload, which is thrown away") {
  std::array<std::byte, 16> memory{};
  const std::shared_ptr<soft::RegionRecord> record = record_over(memory);
  Payload payload;
  payload.begin(8);
  payload.place(Payload::Kind::kWrite, record, 0);
  record->revoke();
  CHECK_FALSE(payload.pin());
  payload.discard();
  CHECK(payload.direct_room() == 0);
  payload.placed(8);
  CHECK(payload.left() == 0);
  // Our own read goes on until the region is cut.
  payload.begin(8);
  payload.place(Payload::Kind::kRead, record, 0);
  CHECK(payload.pin());
  record->cut();
  CHECK_FALSE(payload.pin());
  payload.end();
}

}  // namespace slime::transport::testing
