// A device that fails fatally, and comes back.
#include <cerrno>

#include "tests/transport/verbs/endpoint_rig.h"
#include "transport/choice.h"

namespace slime::transport::testing {
namespace {

FakeOptions fabric_that_forgets() {
  FakeOptions out = FakeOptions::roce();
  out.dead_end_error = EIO;  // the kernel has freed everything already
  return out;
}

bool usable(FakeVerbsFixture& fixture) { return fixture.device(0).usable().ok(); }

// Reads all of `there` over a new connection.
void read_again(Rig& rig, GuardedRegion& here) {
  Connection connection(rig.fixture);
  const RemoteRegion remote = share(connection.a(), rig.there.region);
  const CopyBlock copies[] = {{&here.region, 0, &remote, 0, 4096}};
  TestOperation operation;
  REQUIRE(connection.a().read(copies, operation).ok());
  REQUIRE(rig.fixture.until([&] { return operation.done(); }));
  CHECK_MESSAGE(operation.last.ok(), operation.last.text());
  CHECK(std::equal(here.bytes().begin(), here.bytes().begin() + 4096, rig.there.bytes().begin()));
}

TEST_CASE("a device that failed for good is offered no more, and again once it can be opened") {
  Rig rig(1 << 20, {}, fabric_that_forgets());
  Device& device = rig.fixture.device(0);
  auto allocated = device.allocate(1 << 16, Rights::kReadWrite);
  REQUIRE(allocated.has_value());
  auto part = device.register_memory(allocated->data() + 4096, 4096, Rights::kLocal);
  REQUIRE(part.has_value());

  rig.fabric().kill("fake0");
  REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  const Status reason = rig.connection.receiver_a.close_reason;
  CHECK(reason.code() == Code::kUnavailable);
  CHECK_MESSAGE(contains(reason.text(), "device fatal"), reason.text());
  CHECK(device.usable().code() == Code::kUnavailable);
  CHECK_MESSAGE(contains(device.usable().text(), "device fatal"), device.usable().text());
  const Result<Pair> refused = rig.fixture.connect();
  CHECK(refused.status().code() == Code::kUnavailable);
  CHECK_MESSAGE(contains(refused.status().text(), "device fatal"), refused.status().text());

  // Memory is allocated meanwhile, and registered later.
  GuardedRegion meanwhile(device, 4096, Rights::kLocal, 3);
  CHECK_FALSE(meanwhile.region.registered().ok());
  rig.connection.pair.a.reset();
  rig.connection.pair.b.reset();
  rig.fixture.pass(std::chrono::milliseconds(400));  // several attempts to reopen the device
  CHECK_FALSE(usable(rig.fixture));

  rig.fabric().revive("fake0");
  REQUIRE(rig.fixture.until([&] { return usable(rig.fixture); }));
  CHECK(meanwhile.region.registered().ok());
  CHECK(rig.here.region.registered().ok());
  read_again(rig, rig.here);
  read_again(rig, meanwhile);
  CHECK(part->registered().ok());
  CHECK(part->close().ok());
  CHECK(allocated->close().ok());
  CHECK(rig.fixture.port(0).counters().endpoints.reads == 2);
}

TEST_CASE("a device may be lost again and again") {
  Rig rig(1 << 16, {}, fabric_that_forgets());
  rig.connection.pair.a.reset();
  rig.connection.pair.b.reset();
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    rig.fabric().kill("fake0");
    REQUIRE(rig.fixture.until([&] { return !usable(rig.fixture); }));
    rig.fabric().revive("fake0");
    REQUIRE(rig.fixture.until([&] { return usable(rig.fixture); }));
    read_again(rig, rig.here);
  }
  CHECK(rig.fixture.until([&] { return rig.fabric().objects().contexts == 2; }));
}

TEST_CASE("a region of a device that is gone is closed at once") {
  Rig rig(1 << 16, {}, fabric_that_forgets());
  std::deque<GuardedRegion> regions;
  for (std::uint64_t i = 0; i < 5; ++i)
    regions.emplace_back(rig.fixture.device(0), 4096, Rights::kReadWrite, i);
  rig.fabric().kill("fake0");
  SUBCASE("after the event") {
    REQUIRE(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
  }
  SUBCASE("before anybody has read the event") {}
  const TimePoint begin = rig.fixture.now();
  for (GuardedRegion& region : regions) {
    const Status closed = region.region.close();
    CHECK_MESSAGE(closed.ok(), closed.text());
  }
  CHECK(rig.fixture.now() - begin < limits::kDeregisterBound);
  CHECK(rig.fixture.until([&] { return rig.connection.receiver_a.closed == 1; }));
}

TEST_CASE("an error of a call that ends a region is no lost device while that one answers") {
  FakeOptions fabric = FakeOptions::roce(1);
  fabric.dead_end_error = EIO;
  FakeFabric machine(fabric);
  {
    verbs::Options options;
    options.device = "fake0";
    auto context = verbs::Context::open(machine.functions(), options);
    REQUIRE(context.has_value());
    CHECK((*context)->ended(EIO) == EIO);
    CHECK((*context)->ended(EBUSY) == EBUSY);
    machine.kill("fake0");
    CHECK((*context)->ended(EIO) == 0);
    CHECK((*context)->ended(EBUSY) == EBUSY);
  }
}

TEST_CASE("a port may be closed while its lost device is being opened") {
  FakeVerbsFixture fixture({}, fabric_that_forgets());
  fixture.open({});
  fixture.fabric().kill("fake0");
  REQUIRE(fixture.until([&] { return !usable(fixture); }));
  fixture.fabric().revive("fake0");
  fixture.fabric().hold_call(Call::kOpenDevice);
  REQUIRE(fixture.until([&] { return fixture.fabric().held_calls() > 0; }));
  fixture.close();
  CHECK(fixture.fabric().held_calls() > 0);
  fixture.fabric().hold_call(Call::kOpenDevice, false);
}

}  // namespace
}  // namespace slime::transport::testing
