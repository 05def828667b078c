// Writes whose bytes the target reads out of the initiator's memory: their frames, and peers that
// say what they must not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/transport/keys.h"
#include "tests/transport/script_wire.h"

namespace slime::transport::testing {
namespace {

using soft::FetchBlock;

constexpr std::size_t kMiB = 1 << 20;

// The peer is in this process, so its addresses are ours.
class ScriptMemory final : public PeerMemory {
 public:
  Reach reach(const RemoteRegion&) override { return {}; }
  Outcome fetch(PeerBlocks& list) override {
    ++calls;
    if (how != Outcome::kDone) return how;
    for (std::size_t i = 0; i < list.count(); ++i)
      std::memcpy(list.here()[i].iov_base, list.there()[i].iov_base, list.there()[i].iov_len);
    return how;
  }
  Outcome store(PeerBlocks&, const PeerWindow&) override { return Outcome::kDenied; }
  [[nodiscard]] bool fetches() const override { return agreed; }
  [[nodiscard]] Known peer_fetches() override { return known; }
  void withdraw() override { withdrawn = true; }

  Outcome how = Outcome::kDone;
  bool agreed = true;
  Known known = Known::kYes;
  bool withdrawn = false;
  int calls = 0;
};

Bytes bytes_of(const std::vector<FetchBlock>& blocks) { return std::as_bytes(std::span(blocks)); }

// What the peer sends to have blocks of its memory written into `region`.
ByteVector fetch_frame(const DeviceRegion& region, std::uint64_t operation,
                       const std::vector<FetchBlock>& blocks, bool last = true) {
  FrameHeader header{.type = FrameType::kFetch};
  header.payload_bytes = static_cast<std::uint32_t>(blocks.size() * sizeof(FetchBlock));
  header.flags = last ? soft::kFlagLast : 0;
  header.operation = operation;
  header.region = region.describe().id.packed();
  header.key = key_of(region.describe());
  return frame(header, bytes_of(blocks));
}

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

TEST_CASE("a long write sends these bytes, and a short one its own") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 16, &s.remote, 0x18, 0x8000},
                              {&local.region, 0, &s.remote, 0, 0},
                              {&local.region, 0x9000, &s.remote, 0x9abc, 0x100}};
  TestOperation writing;
  REQUIRE(s.endpoint->write(copies, writing).ok());
  s.turns();
  const ByteVector sent = std::exchange(s.wire->sent, {});
  REQUIRE(sent.size() == 48 + 2 * 24);
  CHECK(to_hex(Bytes(sent).first(8)) == "0e00010030000000");
  CHECK(to_hex(Bytes(sent).subspan(16, 32)) ==
        "0d0c0b0a04030201"
        "8877665544332211"
        "0000000000000000"
        "0000000000000000");
  std::vector<FetchBlock> blocks(2);
  std::memcpy(blocks.data(), sent.data() + 48, 48);
  CHECK(blocks[0].source == address_of(local.bytes().data() + 16));
  CHECK(blocks[0].offset == 0x18);
  CHECK(blocks[0].length == 0x8000);
  CHECK(blocks[1].source == address_of(local.bytes().data() + 0x9000));
  CHECK(blocks[1].offset == 0x9abc);
  CHECK(blocks[1].length == 0x100);
  FrameHeader header;
  std::memcpy(&header, sent.data(), sizeof header);
  s.wire->deliver(frame({.type = FrameType::kAck, .operation = header.operation, .value = 0x8100}));
  s.turns();
  CHECK(writing.last.to_string() == "ok");

  const CopyBlock few[] = {{&local.region, 0, &s.remote, 0, limits::kFetchLeastBytes - 1}};
  TestOperation shorter;
  REQUIRE(s.endpoint->write(few, shorter).ok());
  const auto headers = sent_by(s);
  REQUIRE(headers.size() == 1);
  CHECK(headers[0].type == FrameType::kWrite);
  s.endpoint.reset();
}

TEST_CASE(
    "what is asked for is bounded by what the peer has dealt with, so that messages do not wait for long") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, 3 * kMiB, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 3 * kMiB}};
  TestOperation writing;
  REQUIRE(s.endpoint->write_with_imm(copies, 5, writing).ok());
  std::uint64_t asked = sent_by(s).size() * limits::kChunkBytes;
  CHECK(asked == limits::kFetchAhead);
  TestOperation sending;
  REQUIRE(send(*s.endpoint, as_bytes("through"), sending).ok());
  CHECK(sent_by(s).size() == 1);
  for (std::uint64_t done = limits::kChunkBytes; done <= 3 * kMiB; done += limits::kChunkBytes) {
    CAPTURE(done);
    s.wire->deliver(frame({.type = FrameType::kFetched, .value = done}));
    const auto headers = sent_by(s);
    if (asked == 3 * kMiB) {
      CHECK(headers.empty());
      continue;
    }
    REQUIRE_FALSE(headers.empty());
    CHECK(headers[0].type == FrameType::kFetch);
    CHECK(headers[0].flags == 0);
    asked += limits::kChunkBytes;
    CHECK(headers.size() == (asked == 3 * kMiB ? 2 : 1));
    if (asked == 3 * kMiB) CHECK(headers[1].type == FrameType::kImm);
  }
  CHECK_FALSE(writing.done());
  s.endpoint.reset();
}

TEST_CASE("what the peer has dealt with is progress, for a write with a stall bound") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, 3 * kMiB, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 3 * kMiB}};
  TestOperation writing;
  writing.stall = std::chrono::seconds(1);
  REQUIRE(s.endpoint->write(copies, writing).ok());
  std::vector<FrameHeader> headers = sent_by(s);
  for (std::uint64_t done = limits::kChunkBytes; done <= 3 * kMiB; done += limits::kChunkBytes) {
    s.clock.advance(std::chrono::milliseconds(900));
    s.turns();
    REQUIRE_FALSE(writing.done());
    s.wire->deliver(frame({.type = FrameType::kFetched, .value = done}));
    sent_by(s);
  }
  s.clock.advance(std::chrono::milliseconds(900));
  s.wire->deliver(frame({.type = FrameType::kAck, .operation = headers[0].operation}));
  s.turns();
  CHECK(writing.last.to_string() == "ok");
  s.endpoint.reset();
}

TEST_CASE("many blocks are asked for with few frames, and short ones bring their bytes") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  std::vector<CopyBlock> copies;
  for (std::size_t i = 0; i < 200; ++i)
    copies.push_back({&local.region, (i * 7 % 200) * 5000, &s.remote, i * 6000, 5000});
  TestOperation writing;
  REQUIRE(s.endpoint->write(copies, writing).ok());
  const auto headers = sent_by(s);
  CHECK(headers.size() == 4);
  CHECK(headers.back().type == FrameType::kFetch);
  CHECK(headers.back().flags == soft::kFlagLast);
  std::vector<CopyBlock> short_copies = copies;
  for (CopyBlock& copy : short_copies) copy.length_bytes = 1000;
  TestOperation shorter;
  REQUIRE(s.endpoint->write(short_copies, shorter).ok());
  CHECK(sent_by(s).front().type == FrameType::kWriteBlocks);
  // Unless they lie one behind the other.
  Scripted again(&memory);
  GuardedRegion other(again.device, kMiB, Rights::kLocal, 1);
  std::vector<CopyBlock> in_a_row;
  for (std::size_t i = 0; i < 1000; ++i)
    in_a_row.push_back({&other.region, 1000 * i, &again.remote, 5 + 1000 * i, 1000});
  TestOperation adjacent;
  REQUIRE(again.endpoint->write(in_a_row, adjacent).ok());
  CHECK(sent_by(again).size() == 4);
  again.endpoint.reset();
  s.endpoint.reset();
}

TEST_CASE(
    "while the peer has not said whether it reads us a long write waits, and then goes one way or the "
    "other") {
  for (const PeerMemory::Known known : {PeerMemory::Known::kYes, PeerMemory::Known::kNo}) {
    ScriptMemory memory;
    memory.known = PeerMemory::Known::kOpen;
    Scripted s(&memory);
    GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
    const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 100'000}};
    TestOperation writing;
    REQUIRE(s.endpoint->write(copies, writing).ok());
    CHECK(sent_by(s).empty());
    memory.known = known;
    s.wire->tell_peer_memory();
    const auto headers = sent_by(s);
    REQUIRE(headers.size() == 1);
    CHECK(headers[0].type == (known == PeerMemory::Known::kYes ? FrameType::kFetch : FrameType::kWrite));
    s.endpoint.reset();
  }
}

TEST_CASE("a peer's blocks are read into the region, and acknowledged with what was read") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion target(s.device, 1000, Rights::kRemoteWrite, 1);
  const ByteVector source = random_data(1000, 2);
  ByteVector expected = target.copy();
  std::copy_n(source.begin() + 5, 100, expected.begin() + 300);
  std::copy_n(source.begin() + 900, 100, expected.begin());
  const ByteVector bytes =
      fetch_frame(target.region, 77,
                  {{address_of(source.data() + 5), 300, 100}, {address_of(source.data() + 900), 0, 100}});
  for (const std::byte byte : bytes) s.wire->deliver(Bytes(&byte, 1));  // however it is cut
  CHECK(target.copy() == expected);
  CHECK(memory.calls == 1);
  CHECK(s.take_sent() ==
        "06000000"
        "00000000"
        "4d00000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "c800000000000000");
  CHECK(s.endpoint->counters().fetched_copies == 1);
  CHECK(s.endpoint->counters().fetched_bytes == 200);
  // The first part of another one.
  s.wire->deliver(fetch_frame(target.region, 78, {{address_of(source.data()), 0, 10}}, false));
  CHECK(s.take_sent() ==
        "0f000000"
        "00000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "d200000000000000");
}

TEST_CASE("parts of writes that come together are read together, and a bad one fails its own write alone") {
  const ByteVector source = random_data(1000, 2);
  const std::uint64_t from = address_of(source.data());
  for (const bool good : {true, false}) {
    CAPTURE(good);
    ScriptMemory memory;
    Scripted s(&memory);
    GuardedRegion target(s.device, 1000, Rights::kRemoteWrite, 1);
    ByteVector expected = target.copy();
    ByteVector bytes;
    const auto part = [&](std::uint64_t operation, std::uint64_t offset, bool last, bool arrives) {
      const ByteVector more = fetch_frame(target.region, operation, {{from + 7, offset, 50}}, last);
      bytes.insert(bytes.end(), more.begin(), more.end());
      if (arrives)
        std::copy_n(source.begin() + 7, 50, expected.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    part(1, 0, true, true);
    part(2, 100, false, true);
    part(2, good ? 200 : 951, false, good);  // beyond the end
    part(2, 300, true, good);
    part(3, 400, false, true);
    s.wire->deliver(bytes);
    CHECK(target.copy() == expected);
    if (good) CHECK(memory.calls == 1);
    s.wire->deliver(frame({.type = FrameType::kImm, .operation = 3, .value = 4}));
    const auto code_of = [headers = sent_by(s)](std::uint64_t operation) {
      int acks = 0;
      Code code = Code::kInternal;
      for (const FrameHeader& header : headers) {
        if (header.type != FrameType::kAck || header.operation != operation) continue;
        ++acks;
        code = static_cast<Code>(header.code);
      }
      CHECK(acks == 1);
      return code;
    };
    CHECK(code_of(1) == Code::kOk);
    CHECK(code_of(2) == (good ? Code::kOk : Code::kPermissionDenied));
    CHECK(code_of(3) == Code::kOk);
    CHECK(s.recorder.imms == std::vector<std::uint32_t>{4});
    CHECK(s.endpoint->counters().fetched_copies == (good ? 3 : 2));
  }
}

TEST_CASE(
    "what the target cannot read, or the peer may not write, is refused alone, and brings no notification") {
  const ByteVector source = random_data(100, 2);
  const struct {
    const char* what;
    PeerMemory::Outcome how;
    std::uint64_t offset;
    bool writable;
    bool open;
    Code code;
    int calls;
  } cases[] = {
      {"memory that is not there", PeerMemory::Outcome::kFault, 0, true, true, Code::kInvalidArgument, 1},
      {"the kernel", PeerMemory::Outcome::kDenied, 0, true, true, Code::kUnimplemented, 1},
      {"a process that is gone", PeerMemory::Outcome::kGone, 0, true, true, Code::kUnavailable, 1},
      {"bounds", PeerMemory::Outcome::kDone, 901, true, true, Code::kPermissionDenied, 0},
      {"an offset", PeerMemory::Outcome::kDone, ~std::uint64_t{0} - 10, true, true, Code::kPermissionDenied,
       0},
      {"rights", PeerMemory::Outcome::kDone, 0, false, true, Code::kPermissionDenied, 0},
      {"a region that was closed", PeerMemory::Outcome::kDone, 0, true, false, Code::kNotFound, 0}};
  for (const auto& one : cases) {
    CAPTURE(one.what);
    ScriptMemory memory;
    memory.how = one.how;
    Scripted s(&memory);
    GuardedRegion target(s.device, 1000, one.writable ? Rights::kRemoteWrite : Rights::kRemoteRead, 1);
    const ByteVector before = target.copy();
    const ByteVector fetch =
        fetch_frame(target.region, 9, {{address_of(source.data()), one.offset, 100}}, false);
    if (!one.open) CHECK(target.region.close().ok());
    s.wire->deliver(fetch);
    s.wire->deliver(frame({.type = FrameType::kImm, .operation = 9, .value = 4}));
    const auto headers = sent_by(s);
    CHECK(s.endpoint->error().ok());
    CHECK(target.copy() == before);
    CHECK(memory.calls == one.calls);
    CHECK(s.recorder.imms.empty());
    CHECK(std::any_of(headers.begin(), headers.end(), [&](const FrameHeader& header) {
      return header.type == FrameType::kAck && header.operation == 9 &&
             header.code == static_cast<std::uint8_t>(one.code);
    }));
  }
}

TEST_CASE("a write that the peer was refused by its kernel fails, and the next one brings its bytes") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 100'000}};
  TestOperation refused;
  REQUIRE(s.endpoint->write(copies, refused).ok());
  auto headers = sent_by(s);
  REQUIRE(headers.size() == 1);
  s.wire->deliver(frame({.type = FrameType::kAck,
                         .code = static_cast<std::uint8_t>(Code::kUnimplemented),
                         .operation = headers[0].operation,
                         .value = 100'000}));
  s.turns();
  CHECK(refused.last.code() == Code::kUnavailable);
  TestOperation next;
  REQUIRE(s.endpoint->write(copies, next).ok());
  headers = sent_by(s);
  REQUIRE(headers.size() == 1);
  CHECK(headers[0].type == FrameType::kWrite);
  s.endpoint.reset();
}

TEST_CASE("a write that waited for its turn when the kernel refused the one before brings its bytes") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock all[] = {{&local.region, 0, &s.remote, 0, kMiB}};
  TestOperation refused;
  TestOperation waiting;
  REQUIRE(s.endpoint->write(all, refused).ok());
  REQUIRE(s.endpoint->write(all, waiting).ok());
  auto headers = sent_by(s);
  REQUIRE(headers.size() == limits::kFetchAhead / limits::kChunkBytes);
  s.wire->deliver(frame({.type = FrameType::kAck,
                         .code = static_cast<std::uint8_t>(Code::kUnimplemented),
                         .operation = headers[0].operation,
                         .value = kMiB}));
  headers = sent_by(s);
  CHECK(refused.last.code() == Code::kUnavailable);
  REQUIRE(headers.size() == kMiB / limits::kChunkBytes);
  CHECK(std::all_of(headers.begin(), headers.end(),
                    [](const FrameHeader& header) { return header.type == FrameType::kWrite; }));
  s.endpoint.reset();
}

TEST_CASE("fetches and their answers that cannot be break the connection as corrupt") {
  ScriptMemory memory;
  const ByteVector source(2 * limits::kChunkBytes);
  const std::uint64_t from = address_of(source.data());
  ByteVector big(kMiB);
  for (int i = 0; i < 9; ++i) {
    CAPTURE(i);
    memory.agreed = i != 0;
    Scripted s(&memory);
    GuardedRegion target(s.device, kMiB, Rights::kRemoteWrite, 1);
    const auto fetch = [&](const std::vector<FetchBlock>& blocks) {
      return fetch_frame(target.region, 3, blocks);
    };
    ByteVector bad;
    switch (i) {
      case 0:  // not agreed on
        bad = fetch({{from, 0, 1}});
        break;
      case 1:
        bad = fetch({{from, 0, 1}, {from, 0, 0}});
        break;
      case 2:
        bad = fetch({{from, 0, limits::kChunkBytes + 1}});
        break;
      case 3:
        bad = fetch({{from, 0, limits::kChunkBytes}, {from, 0, 1}});
        break;
      case 4:
        bad = fetch({{from, 0, 8}, {from, 0, ~std::uint64_t{0} - 4}});
        break;
      case 5:  // more than a turn has room for
        for (int n = 0; n < 5; ++n) {
          const ByteVector one = fetch({{from, 0, limits::kChunkBytes}});
          bad.insert(bad.end(), one.begin(), one.end());
        }
        break;
      case 6:  // half a block
        bad =
            frame({.type = FrameType::kFetch, .payload_bytes = 36, .operation = 3}, Bytes(source).first(36));
        break;
      case 7:  // more blocks than one frame may have
        bad = fetch(std::vector<FetchBlock>(limits::kFetchBlocks + 1, FetchBlock{from, 0, 1}));
        break;
      default:  // between the parts of another write
        bad = fetch_frame(target.region, 2, {{from, 0, 1}}, false);
        const ByteVector other = fetch({{from, 0, 1}});
        bad.insert(bad.end(), other.begin(), other.end());
    }
    s.wire->deliver(bad);
    s.turns();
    CHECK(s.endpoint->error().code() == Code::kCorrupt);
  }
  memory.agreed = true;
  const FrameHeader answers[] = {{.type = FrameType::kFetched, .value = 100'001},
                                 {.type = FrameType::kFetched, .value = 0}};
  for (const FrameHeader& header : answers) {
    Scripted s(&memory);
    GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
    const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 100'000}};
    TestOperation writing;
    REQUIRE(s.endpoint->write(copies, writing).ok());
    s.turns();
    s.wire->deliver(frame(header));
    s.turns();
    CHECK(s.endpoint->error().code() == Code::kCorrupt);
    CHECK(writing.completions == 1);
  }
}

TEST_CASE("before the memory of an operation is given back no fetch counts any more") {
  ScriptMemory memory;
  Scripted s(&memory);
  GuardedRegion local(s.device, kMiB, Rights::kLocal, 1);
  const CopyBlock copies[] = {{&local.region, 0, &s.remote, 0, 100'000}};
  TestOperation writing;
  writing.hook = [&] { CHECK(memory.withdrawn); };
  REQUIRE(s.endpoint->write(copies, writing).ok());
  s.turns();
  CHECK_FALSE(memory.withdrawn);
  CHECK(local.region.close(std::chrono::milliseconds(10)).code() == Code::kDeadlineExceeded);
  CHECK(memory.withdrawn);
  s.turns();
  CHECK(writing.done());
}

}  // namespace
}  // namespace slime::transport::testing
