#include <doctest/doctest.h>

#include "tests/transport/socket_fixture.h"

namespace slime::transport::testing {

TEST_CASE("shm keeps every promise of the transport") {
  run_conformance([] { return SocketFixture::of("shm"); });
}

TEST_CASE("shm keeps every promise of the transport with memory that the peer maps") {
  run_conformance([] { return SocketFixture::of_allocated("shm"); });
}

// So that the run before is about what it says.
TEST_CASE("reads and writes of memory that Slime allocated are copied past the rings, others are not") {
  for (const bool allocated : {true, false}) {
    CAPTURE(allocated);
    const auto fixture = allocated ? SocketFixture::of_allocated("shm") : SocketFixture::of("shm");
    fixture->open({});
    Connection c(*fixture);
    GuardedRegion local(fixture->device(0), 1 << 20, Rights::kLocal, 1);
    GuardedRegion target(fixture->device(1), 1 << 20, Rights::kReadWrite, 2);
    const RemoteRegion remote = share(c.a(), target.region);
    const Copy copies[] = {{&local.region, 0, &remote, 0, 1 << 20}};
    const Copy few[] = {{&local.region, 0, &remote, 0, 64}};
    std::uint64_t moved = 0;
    for (const auto& batch : {std::span<const Copy>(copies), std::span<const Copy>(few)}) {
      TestOperation writing;
      TestOperation notifying;
      TestOperation reading;
      REQUIRE(c.a().write(batch, writing).ok());
      REQUIRE(fixture->until([&] { return writing.done(); }));
      REQUIRE(c.a().write_with_imm(batch, 7, notifying).ok());
      REQUIRE(fixture->until([&] { return notifying.done(); }));
      REQUIRE(c.a().read(batch, reading).ok());
      CHECK_FALSE(reading.done());  // never inside the post
      REQUIRE(fixture->until([&] { return reading.done(); }));
      CHECK((writing.last.ok() && notifying.last.ok() && reading.last.ok()));
      moved += 3 * batch.front().length_bytes;
    }
    CHECK(c.receiver_b.imms.size() == 2);
    CHECK(c.a().counters().direct_copies == (allocated ? 6 : 0));
    CHECK(c.a().counters().direct_bytes == (allocated ? moved : 0));
    CHECK((c.a().counters().bytes_sent > moved / 3) == !allocated);
  }
}

// Reads and writes in turns, each posted by the end of the one before it.
struct Turns final : Operation {
  Turns(Endpoint& over, const Copy& copy) : endpoint(over), copies{copy} {}
  void next() {
    REQUIRE((left % 2 == 0 ? endpoint.write(copies, *this) : endpoint.read(copies, *this)).ok());
  }
  void complete(Status status) noexcept override {
    failed += status.ok() ? 0 : 1;
    if (--left > 0) next();
  }
  Endpoint& endpoint;
  const Copy copies[1];
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

}  // namespace slime::transport::testing
