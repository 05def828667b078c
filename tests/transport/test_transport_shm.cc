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

}  // namespace slime::transport::testing
