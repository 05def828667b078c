#include "tests/transport/fixture.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace slime::transport::testing {
namespace {

constexpr std::byte kGuardByte{0xa5};

}  // namespace

Connection::Connection(Fixture& f) : fixture(f) {
  auto connected = f.connect();
  REQUIRE_MESSAGE(connected.has_value(), connected.status().to_string());
  pair = std::move(*connected);
  pair.a->set_receiver(receiver_a);
  pair.b->set_receiver(receiver_b);
}

Connection::~Connection() {
  receiver_a.held.clear();
  receiver_b.held.clear();
  pair.a.reset();
  pair.b.reset();
}

GuardedRegion::GuardedRegion(Device& device, std::size_t bytes, Rights rights, std::uint64_t seed)
    : size_(bytes), memory_(AllocatedMemory::count > 0 ? 0 : bytes + 2 * kGuard, kGuardByte) {
  auto made = memory_.empty() ? device.allocate(bytes, rights)
                              : device.register_memory(this->bytes().data(), bytes, rights);
  REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
  region = std::move(*made);
  Rng(seed).fill(this->bytes());
}

GuardedRegion::~GuardedRegion() { CHECK(guards_intact()); }

bool GuardedRegion::guards_intact() const {
  if (memory_.empty()) {
    const std::size_t rest = (kGuard - size_ % kGuard) % kGuard;  // of the page
    return std::all_of(region.data() + size_, region.data() + size_ + rest,
                       [](std::byte b) { return b == std::byte{0}; });
  }
  const auto is_guard = [](std::byte b) { return b == kGuardByte; };
  return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_guard) &&
         std::all_of(memory_.end() - kGuard, memory_.end(), is_guard);
}

ByteVector random_data(std::size_t size, std::uint64_t seed) {
  ByteVector out(size);
  Rng(seed).fill(out);
  return out;
}

RemoteRegion share(Endpoint& user, const DeviceRegion& region) {
  auto imported = user.import_region(region.describe());
  REQUIRE_MESSAGE(imported.has_value(), imported.status().to_string());
  return *imported;
}

Status send(Endpoint& endpoint, Bytes bytes, Operation& operation, SendOptions options) {
  const Bytes parts[] = {bytes};
  return endpoint.send(parts, operation, options);
}

std::vector<ConformanceTest>& conformance_tests() {
  static std::vector<ConformanceTest> tests;
  return tests;
}

void run_conformance(const UniqueFunction<std::unique_ptr<Fixture>()>& make) {
  auto& factory = const_cast<UniqueFunction<std::unique_ptr<Fixture>()>&>(make);
  for (const ConformanceTest& test : conformance_tests()) {
    SUBCASE(test.name) {
      const auto fixture = factory();
      fixture->open(test.options);
      test.run(*fixture);
    }
  }
}

}  // namespace slime::transport::testing
