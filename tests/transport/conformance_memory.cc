// Promises about one-sided operations, checks and revocation. Run on every provider by
// run_conformance().
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tests/transport/fixture.h"
#include "tests/transport/huge_pool.h"
#include "tests/transport/keys.h"

namespace slime::transport::testing {
namespace {

constexpr std::size_t kMiB = 1 << 20;

}  // namespace

CONFORMANCE("a write moves exactly the named bytes, with different offsets on both sides") {
  Connection c(fixture);
  GuardedRegion source(fixture.device(0), 900'000, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 1'200'000, Rights::kRemoteWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  CHECK(remote.length_bytes() == 1'200'000);
  ByteVector expected = target.copy();
  std::copy_n(source.bytes().begin() + 12'345, 700'001, expected.begin() + 499'999);
  const CopyBlock copies[] = {{&source.region, 12'345, &remote, 499'999, 700'001}};
  const ByteVector source_before = source.copy();
  TestOperation operation;
  REQUIRE(c.a().write(copies, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.to_string() == "ok");
  CHECK(same(target.bytes(), expected));
  CHECK(same(source.bytes(), source_before));
}

CONFORMANCE("a read moves exactly the named bytes, with different offsets on both sides") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 900'000, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 1'200'000, Rights::kRemoteRead, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  ByteVector expected = local.copy();
  std::copy_n(target.bytes().begin() + 499'999, 700'001, expected.begin() + 12'345);
  const CopyBlock copies[] = {{&local.region, 12'345, &remote, 499'999, 700'001}};
  const ByteVector target_before = target.copy();
  TestOperation operation;
  REQUIRE(c.a().read(copies, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.to_string() == "ok");
  CHECK(same(local.bytes(), expected));
  CHECK(same(target.bytes(), target_before));
}

CONFORMANCE("memory of huge pages is read and written like any other, up to its last byte") {
  const HugePool pool;
  if (!pool.has(4)) return;
  Connection c(fixture);
  const std::size_t length = pool.state.page_bytes + 777;
  const auto allocate = [&](int side, Rights rights) {
    auto region = fixture.device(side).allocate(length, rights, MemoryKind::kHost, Pages::kHuge);
    REQUIRE_MESSAGE(region.has_value(), region.status().to_string());
    return std::move(*region);
  };
  DeviceRegion source = allocate(0, Rights::kLocal);
  DeviceRegion target = allocate(1, Rights::kReadWrite);
  REQUIRE(target.length_bytes() == length);
  const RemoteRegion remote = share(c.a(), target);
  Rng(1).fill(source.bytes());
  const ByteVector sent(source.bytes().begin(), source.bytes().end());
  const CopyBlock whole[] = {{&source, 0, &remote, 0, length}};
  TestOperation writing;
  REQUIRE(c.a().write(whole, writing).ok());
  REQUIRE(fixture.until([&] { return writing.done(); }));
  CHECK(writing.last.to_string() == "ok");
  CHECK(same(target.bytes(), sent));
  std::fill(source.bytes().begin(), source.bytes().end(), std::byte{0});
  TestOperation reading;
  REQUIRE(c.a().read(whole, reading).ok());
  REQUIRE(fixture.until([&] { return reading.done(); }));
  CHECK(reading.last.to_string() == "ok");
  CHECK(same(source.bytes(), sent));
  // The rest of the last page is outside the region.
  const CopyBlock beyond[] = {{&source, 0, &remote, 1, length}};
  TestOperation refused;
  CHECK(c.a().read(beyond, refused).code() == Code::kInvalidArgument);
  CHECK(target.close().ok());
}

CONFORMANCE("a batch of a thousand scattered blocks is one operation") {
  Connection c(fixture);
  constexpr std::size_t kBlocks = 1000;
  constexpr std::size_t kBlock = 1024;
  GuardedRegion local(fixture.device(0), kBlocks * kBlock, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 2 * kBlocks * kBlock, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  ByteVector expected = target.copy();
  std::vector<CopyBlock> copies;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const std::size_t from = (i * 7 % kBlocks) * kBlock;
    const std::size_t to = (kBlocks - 1 - i) * 2 * kBlock + 3;
    const std::size_t length = kBlock - i % 5;
    copies.push_back({&local.region, from, &remote, to, length});
    std::copy_n(local.bytes().begin() + static_cast<std::ptrdiff_t>(from), length,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
  }
  TestOperation writing;
  REQUIRE(c.a().write(copies, writing).ok());
  REQUIRE(fixture.until([&] { return writing.done(); }));
  CHECK(writing.last.ok());
  CHECK(same(target.bytes(), expected));

  const ByteVector local_before = local.copy();
  std::fill(local.bytes().begin(), local.bytes().end(), std::byte{0});
  TestOperation reading;
  REQUIRE(c.a().read(copies, reading).ok());
  REQUIRE(fixture.until([&] { return reading.done(); }));
  CHECK(reading.last.ok());
  CHECK(reading.completions == 1);
  // Every block is written from a different place, so what was not named stays zero.
  for (const CopyBlock& copy : copies) {
    const auto offset = static_cast<std::ptrdiff_t>(copy.local_offset);
    CHECK(std::equal(local.bytes().begin() + offset,
                     local.bytes().begin() + offset + static_cast<std::ptrdiff_t>(copy.length_bytes),
                     local_before.begin() + offset));
  }
  CHECK(c.a().counters().reads == 1);
  CHECK(c.a().counters().writes == 1);
}

CONFORMANCE("zero-length blocks do nothing, an empty batch is refused") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 100, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 100, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const ByteVector before = target.copy();
  const CopyBlock nothing[] = {{&local.region, 100, &remote, 100, 0}, {&local.region, 0, &remote, 50, 0}};
  TestOperation writing;
  TestOperation reading;
  REQUIRE(c.a().write(nothing, writing).ok());
  REQUIRE(c.a().read(nothing, reading).ok());
  REQUIRE(fixture.until([&] { return writing.done() && reading.done(); }));
  CHECK(writing.last.ok());
  CHECK(reading.last.ok());
  CHECK(same(target.bytes(), before));
  TestOperation empty;
  CHECK(c.a().write({}, empty).code() == Code::kInvalidArgument);
  CHECK(c.a().read({}, empty).code() == Code::kInvalidArgument);
  CHECK_FALSE(empty.posted());
}

CONFORMANCE("bounds and rights are checked before anything is posted, and only that operation fails") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 1000, Rights::kLocal, 1);
  GuardedRegion readable(fixture.device(1), 1000, Rights::kRemoteRead, 2);
  GuardedRegion writable(fixture.device(1), 1000, Rights::kRemoteWrite, 3);
  const RemoteRegion read_only = share(c.a(), readable.region);
  const RemoteRegion write_only = share(c.a(), writable.region);
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  const CopyBlock bad[] = {
      {&local.region, 0, &write_only, 1, 1000},      {&local.region, 1, &write_only, 0, 1000},
      {&local.region, 0, &write_only, 1001, 0},      {&local.region, 0, &write_only, kHuge, 2},
      {&local.region, kHuge - 1, &write_only, 0, 4}, {&local.region, 4, &write_only, 4, kHuge - 2}};
  TestOperation operation;
  for (const CopyBlock& copy : bad) {
    const CopyBlock batch[] = {{&local.region, 0, &write_only, 0, 8}, copy};
    CHECK(c.a().write(batch, operation).code() == Code::kInvalidArgument);
    CHECK_FALSE(operation.posted());
  }
  const CopyBlock to_read_only[] = {{&local.region, 0, &read_only, 0, 8}};
  CHECK(c.a().write(to_read_only, operation).code() == Code::kPermissionDenied);
  const CopyBlock from_write_only[] = {{&local.region, 0, &write_only, 0, 8}};
  CHECK(c.a().read(from_write_only, operation).code() == Code::kPermissionDenied);
  fixture.settle();
  CHECK(operation.completions == 0);
  CHECK(same(writable.bytes(), random_data(1000, 3)));
  REQUIRE(c.a().write(from_write_only, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.ok());
}

CONFORMANCE("a region of another connection is refused with aborted") {
  Connection first(fixture);
  Connection second(fixture);
  GuardedRegion local(fixture.device(0), 100, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 100, Rights::kReadWrite, 2);
  const RemoteRegion of_first = share(first.a(), target.region);
  const CopyBlock copies[] = {{&local.region, 0, &of_first, 0, 100}};
  TestOperation operation;
  CHECK(second.a().write(copies, operation).code() == Code::kAborted);
  const RemoteRegion none;
  const CopyBlock empty[] = {{&local.region, 0, &none, 0, 0}};
  CHECK(second.a().read(empty, operation).code() == Code::kAborted);
}

CONFORMANCE("the target refuses forged descriptors, and its memory stays untouched") {
  GuardedRegion local(fixture.device(0), 8192, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 4096, Rights::kRemoteRead, 2);
  GuardedRegion secret(fixture.device(1), 4096, Rights::kLocal, 3);
  const RegionDescriptor good = target.region.describe();
  std::vector<RegionDescriptor> forged(6, good);
  forged[0].key = flipped(forged[0].key, 1);
  forged[1].id.generation += 1;
  forged[2].id.index += 1000;
  forged[3].length_bytes = 8192;
  forged[4].rights = Rights::kReadWrite;
  forged[5] = secret.region.describe();
  forged[5].rights = Rights::kReadWrite;
  for (std::size_t i = 0; i < forged.size(); ++i) {
    CAPTURE(i);
    const bool only_id = i == 1 || i == 2;
    if (only_id && !fixture.checks_region_ids()) continue;
    // One connection each: a provider may break it on a refusal by the target.
    Connection c(fixture);
    const auto remote = c.a().import_region(forged[i]);
    if (!remote) continue;
    const std::uint64_t length = i == 3 ? 8192 : 4096;
    const CopyBlock copies[] = {{&local.region, 0, &*remote, 0, length}};
    if (i != 4) {
      const ByteVector before = local.copy();
      TestOperation reading;
      REQUIRE(c.a().read(copies, reading).ok());
      REQUIRE(fixture.until([&] { return reading.done(); }));
      CHECK_FALSE(reading.last.ok());
      CHECK(reading.completions == 1);
    }
    Connection again(fixture);
    RegionDescriptor writable = forged[i];
    writable.rights = Rights::kReadWrite;
    const auto target_region = again.a().import_region(writable);
    REQUIRE(target_region.has_value());
    const CopyBlock writes[] = {{&local.region, 0, &*target_region, 0, length}};
    TestOperation writing;
    REQUIRE(again.a().write(writes, writing).ok());
    REQUIRE(fixture.until([&] { return writing.done(); }));
    CHECK_FALSE(writing.last.ok());
  }
  CHECK(same(target.bytes(), random_data(4096, 2)));
  CHECK(same(secret.bytes(), random_data(4096, 3)));
}

CONFORMANCE("no byte lands after the target closed the region, in the middle of a write") {
  Connection c(fixture);
  GuardedRegion source(fixture.device(0), 16 * kMiB, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 16 * kMiB, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&source.region, 0, &remote, 0, 16 * kMiB}};
  const ByteVector before = target.copy();
  TestOperation operation;
  REQUIRE(c.a().write(copies, operation).ok());
  // Some bytes have arrived, not all: the first differs from what was there.
  REQUIRE(fixture.until([&] { return !same(target.bytes().first(64), Bytes(before).first(64)); }));
  REQUIRE_FALSE(operation.done());
  target.region.close().ignore();
  const ByteVector at_close = target.copy();
  REQUIRE(fixture.until([&] { return operation.done(); }));
  fixture.settle();
  CHECK(same(target.bytes(), at_close));
  if (fixture.works_alone() && operation.last.ok())
    CHECK(same(at_close, source.bytes()));
  else
    CHECK_FALSE(operation.last.ok());
  CHECK(operation.completions == 1);
}

CONFORMANCE("a read ends with an error when the target closes the region in the middle") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 16 * kMiB, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 16 * kMiB, Rights::kRemoteRead, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 16 * kMiB}};
  const ByteVector before = local.copy();
  TestOperation operation;
  REQUIRE(c.a().read(copies, operation).ok());
  REQUIRE(fixture.until([&] { return !same(local.bytes().first(64), Bytes(before).first(64)); }));
  REQUIRE_FALSE(operation.done());
  target.region.close().ignore();
  REQUIRE(fixture.until([&] { return operation.done(); }));
  if (fixture.works_alone() && operation.last.ok())
    CHECK(same(local.bytes(), target.bytes()));
  else
    CHECK_FALSE(operation.last.ok());
  TestOperation later;
  const Status refused = c.a().read(copies, later);
  if (refused.ok()) {
    REQUIRE(fixture.until([&] { return later.done(); }));
    CHECK_FALSE(later.last.ok());
  }
}

CONFORMANCE("closing a region that our own operation uses ends that operation, and nothing lands later") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 16 * kMiB, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 16 * kMiB, Rights::kRemoteRead, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 16 * kMiB}};
  TestOperation operation;
  REQUIRE(c.a().read(copies, operation).ok());
  local.region.close(Nanos::zero()).ignore();
  const ByteVector at_close = local.copy();
  REQUIRE(fixture.until([&] { return operation.done(); }));
  fixture.settle();
  CHECK(same(local.bytes(), at_close));
  CHECK(operation.completions == 1);
}

CONFORMANCE("a closed region cannot be named any more, and closing twice is fine") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 100, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 100, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  CHECK(target.region.close().ok());
  CHECK(target.region.close().ok());
  const CopyBlock copies[] = {{&local.region, 0, &remote, 0, 100}};
  TestOperation operation;
  REQUIRE(c.a().write(copies, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK_FALSE(operation.last.ok());
  CHECK(same(target.bytes(), random_data(100, 2)));
  CHECK(local.region.close().ok());
  TestOperation local_closed;
  CHECK_FALSE(c.a().write(copies, local_closed).ok());
}

CONFORMANCE("memory that the device allocated is zeroed, page aligned and usable") {
  Connection c(fixture);
  auto target = fixture.device(1).allocate(3 * kMiB + 5, Rights::kReadWrite);
  REQUIRE(target.has_value());
  CHECK(target->length_bytes() == 3 * kMiB + 5);
  CHECK(reinterpret_cast<std::uintptr_t>(target->data()) % 4096 == 0);
  CHECK(std::all_of(target->bytes().begin(), target->bytes().end(),
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(target->memory_fd() >= 0);
  GuardedRegion local(fixture.device(0), kMiB, Rights::kLocal, 1);
  const RemoteRegion remote = share(c.a(), *target);
  const CopyBlock copies[] = {{&local.region, 0, &remote, 2 * kMiB + 5, kMiB}};
  TestOperation operation;
  REQUIRE(c.a().write(copies, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.ok());
  CHECK(same(target->bytes().subspan(2 * kMiB + 5), local.bytes()));
}

CONFORMANCE("bad registrations are refused") {
  std::byte byte{};
  CHECK(fixture.device(0).register_memory(nullptr, 8, Rights::kLocal).status().code() ==
        Code::kInvalidArgument);
  CHECK(fixture.device(0).register_memory(&byte, 0, Rights::kLocal).status().code() ==
        Code::kInvalidArgument);
  CHECK(fixture.device(0).allocate(0, Rights::kLocal).status().code() == Code::kInvalidArgument);
  CHECK(fixture.device(0).register_memory(&byte, 1, Rights::kLocal, MemoryKind::kCuda).status().code() ==
        Code::kUnimplemented);
}

CONFORMANCE("reads and writes of both sides at once end right") {
  Connection c(fixture);
  GuardedRegion local_a(fixture.device(0), 4 * kMiB, Rights::kReadWrite, 1);
  GuardedRegion local_b(fixture.device(1), 4 * kMiB, Rights::kReadWrite, 2);
  const ByteVector first_a(local_a.bytes().begin(), local_a.bytes().begin() + kMiB);
  const ByteVector first_b(local_b.bytes().begin(), local_b.bytes().begin() + kMiB);
  const RemoteRegion at_b = share(c.a(), local_b.region);
  const RemoteRegion at_a = share(c.b(), local_a.region);
  // Each side's first MiB is the source of everything; the rest are four separate targets.
  const CopyBlock a_writes[] = {{&local_a.region, 0, &at_b, kMiB, kMiB}};
  const CopyBlock b_writes[] = {{&local_b.region, 0, &at_a, kMiB, kMiB}};
  const CopyBlock a_reads[] = {{&local_a.region, 2 * kMiB, &at_b, 0, kMiB}};
  const CopyBlock b_reads[] = {{&local_b.region, 2 * kMiB, &at_a, 0, kMiB}};
  TestOperation operations[4];
  REQUIRE(c.a().write(a_writes, operations[0]).ok());
  REQUIRE(c.b().write(b_writes, operations[1]).ok());
  REQUIRE(c.a().read(a_reads, operations[2]).ok());
  REQUIRE(c.b().read(b_reads, operations[3]).ok());
  REQUIRE(fixture.until([&] {
    return std::all_of(std::begin(operations), std::end(operations), [](const auto& o) { return o.done(); });
  }));
  for (const auto& operation : operations) CHECK(operation.last.ok());
  CHECK(same(local_b.bytes().subspan(kMiB, kMiB), first_a));
  CHECK(same(local_a.bytes().subspan(kMiB, kMiB), first_b));
  CHECK(same(local_a.bytes().subspan(2 * kMiB, kMiB), first_b));
  CHECK(same(local_b.bytes().subspan(2 * kMiB, kMiB), first_a));
}

}  // namespace slime::transport::testing
