// Writes of many short blocks, which travel in lists: their bytes, how they are cut, and peers that
// send lists that they must not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/transport/keys.h"
#include "tests/transport/script_wire.h"

namespace slime::transport::testing {
namespace {

using soft::ListedBlock;

// Returns a frame in which the peer writes `bytes` into blocks of `region`.
ByteVector list_frame(const DeviceRegion& region, const std::vector<ListedBlock>& blocks, Bytes bytes,
                      std::uint64_t operation = 3) {
  FrameHeader header{.type = FrameType::kWriteBlocks};
  header.payload_bytes = static_cast<std::uint32_t>(blocks.size() * sizeof(ListedBlock) + bytes.size());
  header.flags = soft::kFlagLast;
  header.operation = operation;
  header.region = region.describe().id.packed();
  header.key = key_of(region.describe());
  header.value = blocks.size();
  ByteVector out = frame(header, std::as_bytes(std::span(blocks)));
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

// Returns `count` copies of `bytes` each, in no order. Places may be there twice.
std::vector<CopyBlock> scattered(DeviceRegion& local, RemoteRegion& remote, std::size_t count,
                                 std::uint64_t bytes) {
  std::vector<CopyBlock> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back({&local, i * 7 % count * bytes, &remote, i * 11 % count * (bytes + 8), bytes});
  return out;
}

DeviceRegion registered(Device& device, ByteVector& memory, Rights rights) {
  return std::move(*device.register_memory(memory.data(), memory.size(), rights));
}

std::uint8_t code_of_only_ack(Scripted& s) {
  const std::vector<FrameHeader> sent = sent_by(s);
  REQUIRE(sent.size() == 1);
  REQUIRE(sent.front().type == FrameType::kAck);
  return sent.front().code;
}

}  // namespace

TEST_CASE("the bytes of a list are those of the documentation") {
  Scripted s;
  GuardedRegion local(s.device, 16, Rights::kLocal, 1);
  for (std::size_t i = 0; i < 16; ++i) local.bytes()[i] = static_cast<std::byte>(i);
  const CopyBlock copies[] = {{&local.region, 8, &s.remote, 0x18, 3}, {&local.region, 1, &s.remote, 0x99, 2}};
  TestOperation writing;
  REQUIRE(s.endpoint->write(copies, writing).ok());
  CHECK(s.take_sent() ==
        "10000100"
        "25000000"
        "0000000001000000"
        "0d0c0b0a04030201"
        "8877665544332211"
        "0000000000000000"
        "0200000000000000"
        "1800000000000000"
        "0300000000000000"
        "9900000000000000"
        "0200000000000000"
        "08090a"
        "0102");
  s.endpoint.reset();
}

TEST_CASE("short blocks of one pair of regions share frames, and others have frames of their own") {
  Scripted s;
  GuardedRegion local(s.device, 1 << 20, Rights::kLocal, 1);
  GuardedRegion other(s.device, 1 << 20, Rights::kLocal, 2);
  const auto short_block = [&](GuardedRegion& from) { return CopyBlock{&from.region, 0, &s.remote, 0, 100}; };
  const CopyBlock long_block{&local.region, 0, &s.remote, 0, limits::kListedBlock + 1};
  std::vector<CopyBlock> copies(limits::kListedBlocks + 2, short_block(local));
  copies.push_back(long_block);
  copies.push_back(short_block(local));
  copies.push_back(short_block(other));
  copies.push_back(short_block(other));
  TestOperation writing;
  REQUIRE(s.endpoint->write(copies, writing).ok());
  std::vector<std::pair<FrameType, std::uint64_t>> frames;
  for (const FrameHeader& header : sent_by(s)) frames.emplace_back(header.type, header.value);
  CHECK(frames == std::vector<std::pair<FrameType, std::uint64_t>>{{FrameType::kWriteBlocks, 64},
                                                                   {FrameType::kWriteBlocks, 2},
                                                                   {FrameType::kWrite, 0},
                                                                   {FrameType::kWrite, 0},
                                                                   {FrameType::kWriteBlocks, 2}});
  s.endpoint.reset();
}

TEST_CASE("lists end with a chunk of bulk data, so that a message waits for no more") {
  for (const std::uint64_t bytes : {100, 1000, 1024, 1536, 4096}) {
    CAPTURE(bytes);
    Scripted s;
    GuardedRegion local(s.device, 4 << 20, Rights::kLocal, 1);
    const std::vector<CopyBlock> copies = scattered(local.region, s.remote, 900, bytes);
    TestOperation writing;
    s.wire->room = 0;  // keeps the first burst
    REQUIRE(s.endpoint->write(copies, writing).ok());
    s.turns();
    TestOperation sending;
    REQUIRE(send(*s.endpoint, as_bytes("through"), sending).ok());
    s.wire->take(SIZE_MAX);
    std::uint64_t before = 0;
    for (const FrameHeader& header : sent_by(s)) {
      if (header.type == FrameType::kMessage) break;
      CHECK(header.payload_bytes <= limits::kListedBytes);
      before += header.payload_bytes;
    }
    CHECK(before > 0);
    CHECK(before <= limits::kChunkBytes + limits::kListedBlock);
    s.endpoint.reset();
  }
}

TEST_CASE("blocks of a list are placed in their order, and one without bytes is left out") {
  Scripted s;
  GuardedRegion local(s.device, 16, Rights::kLocal, 1);
  GuardedRegion target(s.device, 16, Rights::kRemoteWrite, 2);
  RemoteRegion remote = share(*s.endpoint, target.region);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 8},
                              {&local.region, 8, &remote, 2, 4},
                              {&local.region, 0, &remote, 0, 0},
                              {&local.region, 12, &remote, 4, 4},
                              {&local.region, 4, &remote, 5, 1}};
  TestOperation writing;
  REQUIRE(s.endpoint->write_with_imm(copies, 9, writing).ok());
  s.turns();
  ByteVector expected = target.copy();
  for (const CopyBlock& copy : copies)
    std::copy_n(local.bytes().data() + copy.local_offset, copy.length_bytes,
                expected.data() + copy.remote_offset);
  s.wire->deliver(std::exchange(s.wire->sent, {}));
  CHECK(target.copy() == expected);
  CHECK(s.recorder.imms == std::vector<std::uint32_t>{9});
  s.endpoint.reset();
}

TEST_CASE("lists arrive whole, however the wire cuts them") {
  const auto seed = static_cast<std::uint64_t>(test::setting("SLIME_TEST_SEED", 1));
  CAPTURE(seed);
  Rng rng(seed);
  for (int round = 0; round < 20; ++round) {
    Scripted s;
    const std::size_t count = 1 + rng.below(600);
    const std::uint64_t bytes = 1 + rng.below(600);
    GuardedRegion local(s.device, count * bytes, Rights::kLocal, seed + 1);
    GuardedRegion target(s.device, count * (bytes + 8), Rights::kRemoteWrite, seed + 2);
    const ByteVector before = target.copy();
    RemoteRegion remote = share(*s.endpoint, target.region);
    const std::vector<CopyBlock> copies = scattered(local.region, remote, count, bytes);
    TestOperation writing;
    s.wire->room = rng.below(2000);
    REQUIRE(s.endpoint->write(copies, writing).ok());
    s.turns();
    while (s.wire->room == 0) s.wire->take(1 + rng.below(5000));
    ByteVector stream = std::exchange(s.wire->sent, {});
    s.wire->room = SIZE_MAX;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t part = std::min<std::size_t>(stream.size() - at, 1 + rng.below(5000));
      s.wire->deliver(Bytes(stream).subspan(at, part));
      at += part;
    }
    ByteVector expected = before;
    for (const CopyBlock& copy : copies)
      std::copy_n(local.bytes().begin() + static_cast<std::ptrdiff_t>(copy.local_offset), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(copy.remote_offset));
    CHECK(target.copy() == expected);
    CHECK(code_of_only_ack(s) == 0);
    s.endpoint.reset();
  }
}

TEST_CASE("a list with a block outside the region is refused before a byte is placed, and the next is not") {
  Scripted s;
  GuardedRegion target(s.device, 64, Rights::kRemoteWrite, 1);
  const ByteVector before = target.copy();
  const ByteVector bytes(16, std::byte{7});
  const ListedBlock bad[] = {{57, 8}, {~std::uint64_t{0}, 8}, {64, 8}};
  std::uint64_t operation = 0;
  for (const ListedBlock& block : bad) {
    s.wire->deliver(list_frame(target.region, {{0, 8}, block}, bytes, ++operation));
    CHECK(code_of_only_ack(s) == static_cast<std::uint8_t>(Code::kPermissionDenied));
    CHECK(target.copy() == before);
  }
  s.wire->deliver(list_frame(target.region, {{0, 8}, {56, 8}}, bytes, ++operation));
  CHECK(code_of_only_ack(s) == 0);
  CHECK(target.bytes()[0] == std::byte{7});
  CHECK(target.bytes()[63] == std::byte{7});
  CHECK(target.bytes()[8] == before[8]);
}

TEST_CASE("a list that needs another right, or another key, is refused") {
  Scripted s;
  GuardedRegion target(s.device, 64, Rights::kRemoteRead, 1);
  const ByteVector before = target.copy();
  const ByteVector bytes(16, std::byte{7});
  s.wire->deliver(list_frame(target.region, {{0, 8}, {8, 8}}, bytes, 1));
  CHECK(code_of_only_ack(s) == static_cast<std::uint8_t>(Code::kPermissionDenied));
  GuardedRegion other(s.device, 64, Rights::kRemoteWrite, 2);
  ByteVector forged = list_frame(other.region, {{0, 8}, {8, 8}}, bytes, 2);
  forged[24] ^= std::byte{1};
  s.wire->deliver(forged);
  CHECK(code_of_only_ack(s) == static_cast<std::uint8_t>(Code::kPermissionDenied));
  CHECK(target.copy() == before);
}

TEST_CASE("the rest of a list whose region is closed is thrown away, and what follows goes on") {
  Scripted s;
  ByteVector memory(64, std::byte{1});
  DeviceRegion region = registered(s.device, memory, Rights::kRemoteWrite);
  const ByteVector bytes(32, std::byte{7});
  const ByteVector stream = list_frame(region, {{0, 16}, {48, 16}}, bytes, 1);
  const std::size_t first = stream.size() - 20;
  s.wire->deliver(Bytes(stream).first(first));
  CHECK(memory[0] == std::byte{7});
  REQUIRE(region.close().ok());
  s.wire->deliver(Bytes(stream).subspan(first));
  CHECK(code_of_only_ack(s) == static_cast<std::uint8_t>(Code::kNotFound));
  CHECK(memory[48] == std::byte{1});
  GuardedRegion target(s.device, 64, Rights::kRemoteWrite, 1);
  s.wire->deliver(list_frame(target.region, {{0, 16}, {48, 16}}, bytes, 2));
  CHECK(code_of_only_ack(s) == 0);
}

TEST_CASE("a list whose region is closed before its table is whole is refused") {
  Scripted s;
  ByteVector memory(64, std::byte{1});
  DeviceRegion region = registered(s.device, memory, Rights::kRemoteWrite);
  const ByteVector stream = list_frame(region, {{0, 16}, {48, 16}}, ByteVector(32, std::byte{7}), 1);
  s.wire->deliver(Bytes(stream).first(sizeof(FrameHeader) + 20));
  REQUIRE(region.close().ok());
  s.wire->deliver(Bytes(stream).subspan(sizeof(FrameHeader) + 20));
  CHECK(code_of_only_ack(s) == static_cast<std::uint8_t>(Code::kNotFound));
  CHECK(memory == ByteVector(64, std::byte{1}));
}

TEST_CASE("lists that are not as documented break the connection as corrupt") {
  const ByteVector bytes(16, std::byte{7});
  const std::vector<ListedBlock> many(limits::kListedBlocks + 1, ListedBlock{0, 1});
  const struct {
    const char* what;
    std::vector<ListedBlock> blocks;
    std::size_t bytes;
  } bad[] = {{"no blocks", {}, 16},
             {"no bytes", {{0, 8}}, 0},
             {"a block of nothing", {{0, 0}, {0, 16}}, 16},
             {"more bytes than blocks", {{0, 8}}, 9},
             {"fewer bytes than blocks", {{0, 8}, {8, 8}}, 15},
             {"lengths whose sum overflows", {{0, 8}, {0, ~std::uint64_t{0}}, {0, 9}}, 16},
             {"too many blocks", many, 16}};
  for (const auto& one : bad) {
    CAPTURE(one.what);
    Scripted s;
    GuardedRegion target(s.device, 64, Rights::kRemoteWrite, 1);
    const ByteVector before = target.copy();
    s.wire->deliver(list_frame(target.region, one.blocks, Bytes(bytes).first(one.bytes)));
    s.turns();
    CHECK(s.endpoint->error().code() == Code::kCorrupt);
    CHECK(target.copy() == before);
  }
  SUBCASE("a list inside another write") {
    Scripted s;
    GuardedRegion target(s.device, 64, Rights::kRemoteWrite, 1);
    FrameHeader write{.type = FrameType::kWrite, .payload_bytes = 16, .operation = 1};
    write.region = target.region.describe().id.packed();
    write.key = key_of(target.region.describe());
    s.wire->deliver(frame(write, bytes));
    s.wire->deliver(list_frame(target.region, {{0, 16}}, bytes, 2));
    s.turns();
    CHECK(s.endpoint->error().code() == Code::kCorrupt);
  }
}

TEST_CASE("a write whose list waits for the wire ends when its local region is closed") {
  Scripted s;
  ByteVector memory(4096, std::byte{1});
  DeviceRegion local = registered(s.device, memory, Rights::kLocal);
  const std::vector<CopyBlock> copies = scattered(local, s.remote, 8, 256);
  TestOperation writing;
  s.wire->room = 300;
  REQUIRE(s.endpoint->write(copies, writing).ok());
  s.turns();
  local.close(Nanos(0)).ignore();
  s.wire->take(SIZE_MAX);
  s.turns();
  CHECK(writing.completions == 1);
  CHECK_FALSE(writing.last.ok());
}

}  // namespace slime::transport::testing
