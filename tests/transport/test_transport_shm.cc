#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/transport/socket_fixture.h"

namespace slime::transport::testing {

TEST_CASE("shm keeps every promise of the transport between processes that cannot read each other's memory") {
  run_conformance([] { return SocketFixture::of_strangers(); });
}

TEST_CASE("shm keeps every promise of the transport with memory that the kernel reads for the peer") {
  run_conformance([] { return SocketFixture::of_readers(); });
}

TEST_CASE(
    "shm keeps every promise of the transport with memory that the kernel reads and writes for the peer") {
  run_conformance([] { return SocketFixture::of("shm"); });
}

TEST_CASE("shm keeps every promise of the transport with memory that the peer maps") {
  run_conformance([] { return SocketFixture::of_allocated("shm"); });
}

// So that the runs before are about what they say.
TEST_CASE(
    "bulk data goes the way that its memory and the kernel allow, and each way copies it once or twice") {
  enum class Way { kMapped, kMoved, kFetched, kRings };
  for (const Way way : {Way::kMapped, Way::kMoved, Way::kFetched, Way::kRings}) {
    CAPTURE(static_cast<int>(way));
    const auto fixture = way == Way::kMapped    ? SocketFixture::of_allocated("shm")
                         : way == Way::kMoved   ? SocketFixture::of("shm")
                         : way == Way::kFetched ? SocketFixture::of_readers()
                                                : SocketFixture::of_strangers();
    fixture->open({});
    Connection c(*fixture);
    for (const bool initiator : {true, false}) {
      CAPTURE(initiator);
      Endpoint& user = initiator ? c.a() : c.b();
      Endpoint& owner = initiator ? c.b() : c.a();
      Recorder& told = initiator ? c.receiver_b : c.receiver_a;
      GuardedRegion local(fixture->device(initiator ? 0 : 1), 1 << 20, Rights::kLocal, 1);
      GuardedRegion target(fixture->device(initiator ? 1 : 0), 1 << 20, Rights::kReadWrite, 2);
      const RemoteRegion remote = share(user, target.region);
      const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 1 << 20}};
      const CopyBlock few[] = {{&local.region, 0, &remote, 0, 64}};
      const EndpointCounters before = user.counters();
      for (const auto& batch : {std::span<const CopyBlock>(copies), std::span<const CopyBlock>(few)}) {
        TestOperation writing;
        TestOperation notifying;
        TestOperation reading;
        REQUIRE(user.write(batch, writing).ok());
        REQUIRE(fixture->until([&] { return writing.done(); }));
        REQUIRE(user.write_with_imm(batch, 7, notifying).ok());
        REQUIRE(fixture->until([&] { return notifying.done(); }));
        CHECK(target.copy() == local.copy());
        REQUIRE(user.read(batch, reading).ok());
        CHECK_FALSE(reading.done());  // never inside the post
        REQUIRE(fixture->until([&] { return reading.done(); }));
        CHECK((writing.last.ok() && notifying.last.ok() && reading.last.ok()));
      }
      CHECK(told.imms.size() == 2);
      const EndpointCounters mine = user.counters();
      const EndpointCounters theirs = owner.counters();
      const bool mapped = way == Way::kMapped;
      const bool moved = way == Way::kMoved;
      const bool fetched = way == Way::kFetched;
      CHECK(mine.direct_copies - before.direct_copies == (mapped ? 6 : 0));
      CHECK(mine.direct_bytes - before.direct_bytes == (mapped ? 3 * ((1 << 20) + 64) : 0));
      // The poster makes all copies; or the poster makes those of reads, and the owner of the
      // target makes the long ones of writes.
      CHECK(mine.fetched_copies - before.fetched_copies == (moved ? 6 : fetched ? 2 : 0));
      CHECK(mine.fetched_bytes - before.fetched_bytes == ((1 << 20) + 64) * (moved ? 3 : fetched ? 1 : 0));
      CHECK(theirs.fetched_copies >= (fetched ? 2 : 0));
      CHECK(theirs.fetched_bytes >= (fetched ? 2 << 20 : 0));
      CHECK((mine.bytes_sent - before.bytes_sent > 1 << 20) == (way == Way::kRings));
    }
  }
}

// Reads and writes in turns, each posted by the end of the one before it.
struct Turns final : Operation {
  Turns(Endpoint& over, const CopyBlock& copy) : endpoint(over), copies{copy} {}
  void next() {
    REQUIRE((left % 2 == 0 ? endpoint.write(copies, *this) : endpoint.read(copies, *this)).ok());
  }
  void complete(Status status) noexcept override {
    failed += status.ok() ? 0 : 1;
    if (--left > 0) next();
  }
  Endpoint& endpoint;
  const CopyBlock copies[1];
  int left = 0;
  int failed = 0;
};

TEST_CASE("copies of mapped memory follow each other while the peer is stopped and its ring is full") {
  const auto fixture = SocketFixture::of_allocated("shm");
  fixture->open({.slot_bytes = 64 * 1024});
  Connection c(*fixture);
  GuardedRegion local(fixture->device(0), 64 * 1024, Rights::kLocal, 1);
  GuardedRegion target(fixture->device(1), 64 * 1024, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  Turns turns(c.a(), {&local.region, 0, &remote, 0, 64 * 1024});
  const auto take = [&](int count) {
    turns.left = count;
    turns.next();
    return fixture->until([&] { return turns.left == 0; });
  };
  REQUIRE(take(2));  // from here on it is mapped
  fixture->freeze_b(c.pair);
  TestOperation messages[4];
  for (TestOperation& message : messages) REQUIRE(send(c.a(), random_data(60'000, 3), message, {}).ok());
  for (int i = 0; i < 5; ++i) fixture->step();
  CHECK_FALSE(messages[3].done());  // the ring is full
  CHECK(take(16));
  CHECK(turns.failed == 0);
  fixture->thaw_b(c.pair);
  CHECK(fixture->until([&] { return turns.left == 0 && messages[3].done(); }));
}

TEST_CASE("while messages come and go beside a long copy, little of it is copied between two of them") {
  constexpr std::size_t kBytes = 128 << 20;
  const auto fixture = SocketFixture::of_allocated("shm");
  fixture->open({});
  // Fills them before it connects: a sanitizer takes so long for it that the peer would attach too
  // late.
  GuardedRegion local(fixture->device(0), kBytes, Rights::kLocal, 1);
  GuardedRegion target(fixture->device(1), kBytes, Rights::kReadWrite, 2);
  Connection c(*fixture);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copy{&local.region, 0, &remote, 0, kBytes};
  TestOperation writing;
  REQUIRE(c.a().write({&copy, 1}, writing).ok());
  // Before that, it waits until the peer has shown its memory.
  REQUIRE(fixture->until([&] { return c.a().counters().direct_bytes > 0; }));
  std::uint64_t most = 0;
  for (int i = 0; i < 40; ++i) {
    TestOperation sending;
    const std::uint64_t before = c.a().counters().direct_bytes;
    REQUIRE(send(c.a(), random_data(64, 3), sending, {}).ok());
    const std::size_t arrived = c.receiver_b.messages.size();
    INFO("message ", i, ", ", c.a().counters().direct_bytes, " bytes copied, write done: ", writing.done(),
         ", send: ", sending.done(), " ", sending.last.to_string());
    REQUIRE(fixture->until([&] { return sending.done() && c.receiver_b.messages.size() > arrived; }));
    if (i >= 20) most = std::max(most, c.a().counters().direct_bytes - before);
  }
  CHECK_FALSE(writing.done());
  CHECK(most < limits::kCopyStepBytes);
  REQUIRE(fixture->until([&] { return writing.done(); }));
  CHECK(target.copy() == local.copy());
}

// Makes whole pages inaccessible, for the kernel too. The owner of an open region must not do that.
// This does not unmap them: the sanitizer could then map memory of its own at the same addresses.
void take_away(MutableBytes pages) { REQUIRE(::mprotect(pages.data(), pages.size(), PROT_NONE) == 0); }

TEST_CASE("several reads, or writes, are moved together, and one of memory that is not there fails alone") {
  constexpr std::size_t kBlock = 64 * 1024;
  constexpr std::size_t kBlocks = 8;
  constexpr std::size_t kMissing = 5;
  // Writes by their initiator, and by their target.
  for (const auto& way : {std::pair(false, false), {true, false}, {true, true}}) {
    const bool writing = way.first;
    const bool target_reads = way.second;
    CAPTURE(writing);
    CAPTURE(target_reads);
    const auto fixture = target_reads ? SocketFixture::of_readers() : SocketFixture::of("shm");
    fixture->open({});
    void* const mapped =
        ::mmap(nullptr, kBlocks * kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    auto* const memory = static_cast<std::byte*>(mapped);
    for (std::size_t i = 0; i < kBlocks; ++i) std::fill_n(memory + i * kBlock, kBlock, std::byte(i + 1));
    {
      Connection c(*fixture);
      auto source =
          fixture->device(writing ? 0 : 1)
              .register_memory(memory, kBlocks * kBlock, writing ? Rights::kLocal : Rights::kRemoteRead);
      REQUIRE(source.has_value());
      GuardedRegion target(fixture->device(writing ? 1 : 0), kBlocks * kBlock,
                           writing ? Rights::kRemoteWrite : Rights::kLocal, 1);
      const DeviceRegion& local = writing ? *source : target.region;
      const RemoteRegion remote = share(c.a(), writing ? target.region : *source);
      for (const bool whole : {true, false}) {
        CAPTURE(whole);
        if (!whole) take_away({memory + kMissing * kBlock, kBlock});
        std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0});
        std::vector<CopyBlock> copies;
        for (std::size_t i = 0; i < kBlocks; ++i)
          copies.push_back({&local, i * kBlock, &remote, (kBlocks - 1 - i) * kBlock, kBlock});
        std::vector<TestOperation> operations(kBlocks);
        for (std::size_t i = 0; i < kBlocks; ++i) {
          const std::span<const CopyBlock> copy(&copies[i], 1);
          REQUIRE((writing ? c.a().write(copy, operations[i]) : c.a().read(copy, operations[i])).ok());
        }
        REQUIRE(fixture->until([&] {
          return std::all_of(operations.begin(), operations.end(),
                             [](const TestOperation& operation) { return operation.done(); });
        }));
        for (std::size_t i = 0; i < kBlocks; ++i) {
          CAPTURE(i);
          const std::size_t from = writing ? i : kBlocks - 1 - i;
          const bool there = whole || from != kMissing;
          CHECK(operations[i].completions == 1);
          CHECK(operations[i].last.code() == (there ? Code::kOk : Code::kInvalidArgument));
          const Bytes got = target.bytes().subspan((kBlocks - 1 - from) * kBlock, kBlock);
          if (there)
            CHECK(std::all_of(got.begin(), got.end(), [&](std::byte b) { return b == std::byte(from + 1); }));
        }
        const Endpoint& mover = target_reads ? c.b() : c.a();
        CHECK(mover.counters().fetched_copies == (whole ? kBlocks : 2 * kBlocks - 1));
      }
      CHECK(c.a().error().ok());
    }
    ::munmap(mapped, kBlocks * kBlock);
  }
}

TEST_CASE("of many writes the target tells which it has read before it reads the rest") {
  const auto fixture = SocketFixture::of_readers();
  fixture->open({});
  constexpr std::size_t kBlock = 64 * 1024;
  constexpr std::size_t kBlocks = limits::kFetchTold / kBlock + 4;
  static_assert(kBlocks * kBlock + limits::kChunkBytes <= limits::kFetchAhead);  // asked for at once
  Connection c(*fixture);
  GuardedRegion source(fixture->device(0), kBlocks * kBlock, Rights::kLocal, 1);
  GuardedRegion target(fixture->device(1), kBlocks * kBlock, Rights::kRemoteWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  std::vector<CopyBlock> copies;
  for (std::size_t i = 0; i < kBlocks; ++i)
    copies.push_back({&source.region, i * kBlock, &remote, i * kBlock, kBlock});
  TestOperation first;  // both sides know by then how bytes get there
  REQUIRE(c.a().write(std::span(copies.data(), 1), first).ok());
  REQUIRE(fixture->until([&] { return first.done(); }));
  const std::uint64_t before = c.b().counters().fetched_bytes;
  std::vector<TestOperation> writes(kBlocks);
  for (std::size_t i = 0; i < kBlocks; ++i) REQUIRE(c.a().write(std::span(&copies[i], 1), writes[i]).ok());
  const auto read = [&] { return c.b().counters().fetched_bytes - before; };
  // The target stands still behind what it has read first.
  fixture->loop(0).poll(Nanos::zero());
  for (int i = 0; i < 1000 && read() == 0; ++i) fixture->loop(1).poll(std::chrono::milliseconds(1));
  CHECK(read() == limits::kFetchTold);
  fixture->loop(0).poll(Nanos::zero());
  for (std::size_t i = 0; i < kBlocks; ++i) CHECK(writes[i].done() == (i < limits::kFetchTold / kBlock));
  REQUIRE(fixture->until([&] { return writes.back().done(); }));
  CHECK(read() == kBlocks * kBlock);
  CHECK(target.copy() == source.copy());
}

TEST_CASE("memory that is registered to be read once comes over the rings, and nobody asks for it") {
  const auto fixture = SocketFixture::of("shm");
  fixture->open({});
  Connection c(*fixture);
  ByteVector source(256 * 1024, std::byte{5});
  GuardedRegion local(fixture->device(0), source.size(), Rights::kLocal, 1);
  auto once = fixture->device(1).register_memory(source.data(), source.size(), Rights::kRemoteRead,
                                                 MemoryKind::kHost, Use::kOnce);
  REQUIRE(once.has_value());
  const RemoteRegion remote = share(c.a(), *once);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, source.size()}};
  TestOperation read;
  REQUIRE(c.a().read(copies, read).ok());
  REQUIRE(fixture->until([&] { return read.done(); }));
  CHECK(read.last.ok());
  CHECK(std::equal(source.begin(), source.end(), local.bytes().begin()));
  CHECK(c.a().counters().fetched_copies == 0);
  CHECK(c.a().counters().direct_copies == 0);
}

TEST_CASE("a write of memory that is not there any more fails alone, and the next one is made") {
  const auto fixture = SocketFixture::of("shm");
  fixture->open({});
  constexpr std::size_t kBlock = 256 * 1024;
  void* const mapped =
      ::mmap(nullptr, 2 * kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(mapped);
  std::fill_n(memory, 2 * kBlock, std::byte{7});
  {
    Connection c(*fixture);
    auto source = fixture->device(0).register_memory(memory, 2 * kBlock, Rights::kLocal);
    REQUIRE(source.has_value());
    GuardedRegion target(fixture->device(1), 2 * kBlock, Rights::kReadWrite, 1);
    const RemoteRegion remote = share(c.a(), target.region);
    const CopyBlock all[] = {{&*source, 0, &remote, 0, 2 * kBlock}};
    const CopyBlock half[] = {{&*source, 0, &remote, 0, kBlock}};
    TestOperation first;
    REQUIRE(c.a().write(all, first).ok());
    REQUIRE(fixture->until([&] { return first.done(); }));
    CHECK(first.last.ok());
    take_away({memory + kBlock, kBlock});
    TestOperation missing;
    TestOperation there;
    REQUIRE(c.a().write_with_imm(all, 1, missing).ok());
    REQUIRE(c.a().write_with_imm(half, 2, there).ok());
    REQUIRE(fixture->until([&] { return missing.done() && there.done(); }));
    CHECK(missing.last.code() == Code::kInvalidArgument);
    CHECK(there.last.to_string() == "ok");
    CHECK(c.receiver_b.imms == std::vector<std::uint32_t>{2});
  }
  ::munmap(mapped, 2 * kBlock);
}

}  // namespace slime::transport::testing
