// Registration of memory: parts, rights, ordering, shared registrations, errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <span>

#include "base/random.h"
#include "tests/transport/verbs/verbs_keys.h"
#include "tests/transport/verbs/watched_device.h"
#include "transport/loop.h"

namespace slime::transport::testing {
namespace {

using verbs::part_bytes;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr unsigned kRelaxed = IBV_ACCESS_RELAXED_ORDERING;

FakeOptions with_largest_registration(std::uint64_t bytes) {
  FakeOptions options = FakeOptions::roce(1);
  options.devices[0].attributes.max_mr_size = bytes;
  return options;
}

std::uint64_t address_of(const DeviceRegion& region) {
  return reinterpret_cast<std::uintptr_t>(region.data());
}

}  // namespace

TEST_CASE("any length and number of keys gives parts that cover the region, and no key too few") {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  INFO("seed ", seed);
  Rng rng(seed);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t length = rng.next() >> (rng.next() % 64);
    const auto keys = static_cast<std::uint8_t>(rng.next() % 256);
    const std::uint64_t part = part_bytes(length, keys);
    CAPTURE(length);
    CAPTURE(keys);
    REQUIRE(part > 0);
    if (keys > 1) REQUIRE(part % (2 * kMiB) == 0);
    if (length > 0) REQUIRE((length - 1) / part < std::max<std::uint64_t>(keys, 1));
  }
  CHECK(part_bytes(std::numeric_limits<std::uint64_t>::max(), 1) ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(part_bytes(std::numeric_limits<std::uint64_t>::max(), 2) == std::uint64_t{1} << 63);
  CHECK(part_bytes(0, 0) > 0);
  CHECK(part_bytes(5 * kMiB, 2) == 4 * kMiB);
}

TEST_CASE("a region is registered once, with the access that its rights say") {
  struct Expected {
    Rights rights;
    unsigned access;
  };
  const Expected all[] = {
      {Rights::kLocal, IBV_ACCESS_LOCAL_WRITE},
      {Rights::kRemoteRead, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ},
      {Rights::kRemoteWrite, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
      {Rights::kReadWrite,
       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC},
  };
  WatchedDevice watched;
  ByteVector memory(100'000);
  for (const Expected& expected : all) {
    watched.registered.clear();
    DeviceRegion region = watched.add(memory.data() + 3, 90'001, expected.rights);
    REQUIRE(watched.registered.size() == 1);
    const Registered& made = watched.registered[0];
    CHECK(made.address == address_of(region));
    CHECK(made.bytes == 90'001);
    CHECK((made.access & ~kRelaxed) == expected.access);
    const RegionDescriptor descriptor = region.describe();
    const VerbsKeys told = verbs_keys(descriptor);
    CHECK(told.base == address_of(region));
    CHECK(descriptor.length_bytes == 90'001);
    CHECK(descriptor.rights == expected.rights);
    CHECK(told.keys == std::vector<std::uint64_t>{made.mr->rkey});
    const auto local = WatchedDevice::impl(region).local_key(40'000);
    CHECK(local.lkey == made.mr->lkey);
    CHECK(local.bytes == 50'001);
    CHECK(region.close().ok());
    CHECK(watched.alive() == 0);
  }
}

TEST_CASE("a device without atomics is not asked for them") {
  FakeOptions options = FakeOptions::roce(1);
  options.devices[0].attributes.atomic_cap = IBV_ATOMIC_NONE;
  WatchedDevice watched(options);
  const DeviceRegion region = watched.allocate(4096);
  CHECK((watched.registered.at(0).access & IBV_ACCESS_REMOTE_ATOMIC) == 0);
}

TEST_CASE("every region has an id of its own, also after others were closed") {
  WatchedDevice watched;
  ByteVector memory(64);
  std::vector<Handle> seen;
  for (int i = 0; i < 20; ++i) {
    DeviceRegion region = watched.add(memory.data(), memory.size());
    const Handle id = region.describe().id;
    CHECK(id.generation != 0);
    CHECK(std::find(seen.begin(), seen.end(), id) == seen.end());
    seen.push_back(id);
  }
}

TEST_CASE("memory beyond what the device takes at once is registered in equal parts") {
  WatchedDevice watched(with_largest_registration(4 * kMiB + 1));
  const std::uint64_t length = 10 * kMiB + 5;
  DeviceRegion region = watched.allocate(length);
  const std::vector<std::uint64_t> keys = verbs_keys(region.describe()).keys;
  REQUIRE(keys.size() == 3);
  REQUIRE(watched.registered.size() == 3);
  const std::uint64_t part = part_bytes(length, keys.size());
  CHECK(part == 4 * kMiB);
  for (std::size_t i = 0; i < 3; ++i) {
    const Registered& made = watched.registered[i];
    CHECK(made.address == address_of(region) + i * part);
    CHECK(made.bytes == std::min(part, length - i * part));
    CHECK(keys[i] == made.mr->rkey);
  }
  const verbs::VerbsRegion& impl = WatchedDevice::impl(region);
  CHECK(impl.local_key(0).lkey == watched.registered[0].mr->lkey);
  CHECK(impl.local_key(0).bytes == part);
  CHECK(impl.local_key(part - 1).bytes == 1);
  CHECK(impl.local_key(part).lkey == watched.registered[1].mr->lkey);
  CHECK(impl.local_key(length - 1).lkey == watched.registered[2].mr->lkey);
  CHECK(impl.local_key(length - 1).bytes == 1);
  CHECK(region.close().ok());
  CHECK(watched.alive() == 0);
}

TEST_CASE("memory beyond eight parts is refused, and the text names the device's limit") {
  WatchedDevice watched(with_largest_registration(2 * kMiB));
  DeviceRegion most = watched.allocate(16 * kMiB);
  CHECK(verbs_keys(most.describe()).keys.size() == 8);
  const Status status = watched.device->allocate(16 * kMiB + 1, Rights::kLocal, MemoryKind::kHost).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find("max_mr_size") != std::string::npos);
  CHECK(status.text().find("2097152") != std::string::npos);
  CHECK(status.text().find("16777216") != std::string::npos);
  CHECK(watched.alive() == 8);
}

TEST_CASE("memory that may not be locked is an error that says ulimit -l, and leaves nothing behind") {
  FakeOptions options = with_largest_registration(4 * kMiB);
  options.memlock_bytes = 9 * kMiB;
  WatchedDevice watched(options);
  const Status status = watched.device->allocate(12 * kMiB, Rights::kLocal, MemoryKind::kHost).status();
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(status.text().find("ulimit -l") != std::string::npos);
  CHECK(status.text().find("4194304 bytes") != std::string::npos);
  CHECK(watched.registered.size() == 2);
  CHECK(watched.alive() == 0);
  CHECK(watched.allocate(8 * kMiB).valid());
}

TEST_CASE("a range that no memory can be is refused before the device is asked") {
  WatchedDevice watched;
  std::byte byte{};
  CHECK(watched.device->register_memory(nullptr, 8, Rights::kLocal, MemoryKind::kHost).status().code() ==
        Code::kInvalidArgument);
  CHECK(watched.device->register_memory(&byte, 0, Rights::kLocal, MemoryKind::kHost).status().code() ==
        Code::kInvalidArgument);
  CHECK(
      watched.device
          ->register_memory(&byte, std::numeric_limits<std::size_t>::max(), Rights::kLocal, MemoryKind::kHost)
          .status()
          .code() == Code::kInvalidArgument);
  CHECK(watched.registered.empty());
}

TEST_CASE("memory that is mapped read-only can be registered for reading, and for nothing more") {
  verbs::Options options;
  options.relaxed_ordering = false;
  WatchedDevice watched(FakeOptions::roce(1), options);
  watched.plain_error = EFAULT;  // the kernel's error for write access to read-only memory
  ByteVector memory(4096);
  const DeviceRegion region = watched.add(memory.data(), memory.size(), Rights::kRemoteRead);
  CHECK(watched.registered.at(0).access == IBV_ACCESS_REMOTE_READ);
  CHECK(watched.device->register_memory(memory.data(), memory.size(), Rights::kReadWrite, MemoryKind::kHost)
            .status()
            .code() == Code::kInvalidArgument);
}

// ---------------------------------------------------------------------------------------- ordering

TEST_CASE("regions are registered with relaxed ordering, what a port uses for itself is not") {
  WatchedDevice watched;
  auto loop = Loop::create();
  REQUIRE(loop.has_value());
  auto port = watched.device->open_port(**loop, {});
  REQUIRE_MESSAGE(port.has_value(), port.status().text());
  REQUIRE_FALSE(watched.registered.empty());
  for (const Registered& made : watched.registered) CHECK((made.access & kRelaxed) == 0);
  const std::size_t before = watched.registered.size();
  const DeviceRegion region = watched.allocate(4096);
  REQUIRE(watched.registered.size() == before + 1);
  CHECK((watched.registered.back().access & kRelaxed) != 0);
  CHECK(watched.registered.back().call == "ibv_reg_mr_iova2");
}

TEST_CASE("relaxed ordering can be switched off, and is not asked of a library that does not know it") {
  verbs::Options off;
  FakeOptions options = FakeOptions::roce(1);
  SUBCASE("switched off") { off.relaxed_ordering = false; }
  SUBCASE("an old library") { options.has_iova2 = false; }
  WatchedDevice watched(options, off);
  const DeviceRegion region = watched.allocate(4096);
  CHECK(watched.registered.at(0).call == "ibv_reg_mr");
  CHECK((watched.registered.at(0).access & kRelaxed) == 0);
}

TEST_CASE("a driver that refuses relaxed ordering is asked once") {
  WatchedDevice watched;
  watched.iova2_error = EINVAL;
  const DeviceRegion first = watched.allocate(4096);
  CHECK(watched.registered.at(0).call == "ibv_reg_mr");
  watched.iova2_error = 0;
  const DeviceRegion second = watched.allocate(4096);
  CHECK(watched.registered.at(1).call == "ibv_reg_mr");
}

TEST_CASE("an error that has nothing to do with ordering is reported, and ordering asked for again") {
  WatchedDevice watched;
  watched.iova2_error = ENOMEM;
  CHECK(watched.device->allocate(4096, Rights::kLocal, MemoryKind::kHost).status().code() ==
        Code::kResourceExhausted);
  watched.iova2_error = EINVAL;
  watched.plain_error = EINVAL;
  CHECK(watched.device->allocate(4096, Rights::kLocal, MemoryKind::kHost).status().code() ==
        Code::kInvalidArgument);
  watched.iova2_error = watched.plain_error = 0;
  const DeviceRegion region = watched.allocate(4096);
  CHECK((watched.registered.at(0).access & kRelaxed) != 0);
}

// ---------------------------------------------------------------------------- shared registrations

TEST_CASE("a range of our own side inside an allocation needs no registration of its own") {
  WatchedDevice watched(with_largest_registration(4 * kMiB));
  DeviceRegion whole = watched.allocate(10 * kMiB);
  REQUIRE(watched.registered.size() == 3);
  DeviceRegion part = watched.add(whole.data() + 4 * kMiB - 100, 300, Rights::kLocal);
  // One more page, registered once, for the key without access.
  REQUIRE(watched.registered.size() == 4);
  DeviceRegion other = watched.add(whole.data(), 10 * kMiB, Rights::kLocal);
  CHECK(watched.registered.size() == 4);

  const verbs::VerbsRegion& impl = WatchedDevice::impl(part);
  CHECK(impl.local_key(0).lkey == watched.registered[0].mr->lkey);
  CHECK(impl.local_key(0).bytes == 100);
  CHECK(impl.local_key(100).lkey == watched.registered[1].mr->lkey);
  CHECK(impl.local_key(100).bytes == 200);  // ends at the region, though the registration goes on

  CHECK(part.close().ok());
  CHECK(other.close().ok());
  CHECK(watched.alive() == 4);
  CHECK(whole.close().ok());
  CHECK(watched.alive() == 1);
}

TEST_CASE("the key of a region of our own side gives peers nothing") {
  WatchedDevice watched;
  DeviceRegion whole = watched.allocate(kMiB);
  const DeviceRegion shared = watched.add(whole.data() + 64, 4096, Rights::kLocal);
  ByteVector memory(4096);
  const DeviceRegion own = watched.add(memory.data(), memory.size(), Rights::kLocal);
  constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  for (const DeviceRegion* region : {&shared, &own}) {
    const std::vector<std::uint64_t> keys = verbs_keys(region->describe()).keys;
    REQUIRE(keys.size() == 1);
    const Registered* made = watched.with_remote_key(keys[0]);
    REQUIRE(made != nullptr);
    CHECK((made->access & kRemote) == 0);
  }
}

TEST_CASE("a range that peers may use has keys of its own, which end with it") {
  WatchedDevice watched;
  DeviceRegion whole = watched.allocate(kMiB);
  DeviceRegion part = watched.add(whole.data(), kMiB, Rights::kReadWrite);
  REQUIRE(watched.registered.size() == 2);
  CHECK(verbs_keys(part.describe()).keys != verbs_keys(whole.describe()).keys);
  DeviceRegion readable = watched.add(whole.data() + 64, 64, Rights::kRemoteRead);
  const Registered& made = watched.registered.at(2);
  CHECK(made.bytes == 64);
  CHECK((made.access & IBV_ACCESS_REMOTE_WRITE) == 0);
  CHECK(part.close().ok());
  CHECK(readable.close().ok());
  CHECK(watched.alive() == 1);
}

TEST_CASE("only ranges that lie wholly inside a living allocation share its registration") {
  WatchedDevice watched;
  DeviceRegion whole = watched.allocate(kMiB);
  CHECK(watched.state->find_allocation(whole.data(), kMiB) != nullptr);
  CHECK(watched.state->find_allocation(whole.data() + kMiB - 1, 1) != nullptr);
  CHECK(watched.state->find_allocation(whole.data() + kMiB - 1, 2) == nullptr);
  CHECK(watched.state->find_allocation(whole.data() - 1, 2) == nullptr);
  std::byte* const address = whole.data();
  CHECK(whole.close().ok());
  CHECK(watched.state->find_allocation(address, 1) == nullptr);
}

// ------------------------------------------------------------------------------------------ device

TEST_CASE("ports hear what happens to the device, after its port was probed again") {
  class Listener final : public verbs::RegionUsers {
   public:
    explicit Listener(const verbs::Context& context) : context_(context) {}
    void reset_users(const RegionUses*) override {}
    [[nodiscard]] std::shared_ptr<Loop> users_loop() const override { return nullptr; }
    void on_device_event(ibv_event_type type, std::uint32_t queue_pair) override {
      heard.emplace_back(type, queue_pair);
      state = context_.port_attributes().state;
    }
    std::vector<std::pair<ibv_event_type, std::uint32_t>> heard;
    ibv_port_state state{};

   private:
    const verbs::Context& context_;
  };
  WatchedDevice watched;
  const std::shared_ptr<verbs::Context> held = watched.state->context();
  const verbs::Context& context = *held;
  const auto listener = std::make_shared<Listener>(context);
  watched.state->add_users(listener);
  watched.state->add_users(std::make_shared<Listener>(context));  // destroyed at once
  CHECK(watched.state->users().size() == 1);

  watched.fabric.set_port_state("fake0", IBV_PORT_DOWN);
  ibv_async_event event{};
  REQUIRE(context.functions.get_async_event(context.handle, &event) == 0);
  context.functions.ack_async_event(&event);
  watched.state->tell_event(event.event_type, 0);
  CHECK(listener->state == IBV_PORT_DOWN);
  watched.state->tell_event(IBV_EVENT_QP_FATAL, 17);
  const std::vector<std::pair<ibv_event_type, std::uint32_t>> expected{{IBV_EVENT_PORT_ERR, 0},
                                                                       {IBV_EVENT_QP_FATAL, 17}};
  CHECK(listener->heard == expected);
}

}  // namespace slime::transport::testing
