#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "base/str.h"
#include "tests/support/forked.h"
#include "tests/support/settings.h"
#include "tests/transport/handshake_sides.h"
#include "transport/provider.h"

namespace slime::transport::testing {
namespace {

// The key of a new region of `device`; 0 if none can be made.
std::uint64_t new_key(Device& device) {
  static std::byte memory[64];
  const auto region = device.register_memory(memory, sizeof memory, Rights::kRemoteRead);
  return region ? ByteReader(region->describe().key.bytes()).read<std::uint64_t>() : 0;
}

}  // namespace

TEST_CASE("no two regions have one key, also not one in a forked child and one in its parent") {
  constexpr std::size_t kKeys = 200;
  auto provider = make_provider("tcp");
  REQUIRE(provider.has_value());
  auto device = (*provider)->open_device();
  REQUIRE(device.has_value());
  void* const mapped = ::mmap(nullptr, kKeys * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  const std::span<std::uint64_t> of_child(static_cast<std::uint64_t*>(mapped), kKeys);
  std::set<std::uint64_t> keys{new_key(**device)};
  CHECK(slime::test::forked([&] {
    std::ranges::generate(of_child, [&] { return new_key(**device); });
    return true;
  }));
  for (std::size_t i = 1; i < kKeys; ++i) keys.insert(new_key(**device));
  keys.insert(of_child.begin(), of_child.end());
  CHECK(keys.size() == 2 * kKeys);
  CHECK(!keys.contains(0));
  ::munmap(mapped, kKeys * sizeof(std::uint64_t));
}

TEST_CASE("a child of fork() proves a token, whatever other threads of its parent were asking OpenSSL for") {
  std::atomic<bool> stop{false};
  std::thread fetcher([&stop] {
    // OpenSSL holds a lock while it looks up a query that is new to it. Each query here is new.
    for (unsigned i = 0; !stop; ++i)
      ::EVP_MAC_free(::EVP_MAC_fetch(nullptr, "HMAC", str("?number=", i).c_str()));
  });
  const int children = slime::test::scaled(200);
  int good = 0;
  int tried = 0;
  for (; tried < children && good == tried; ++tried) {
    good += slime::test::forked([] {
      Sides s = sides(config("a", 1, "secret"), config("b", 2, "secret"));
      run(s.a, s.b);
      return s.a.state() == State::kDone && s.b.state() == State::kDone;
    });
  }
  stop = true;
  fetcher.join();
  CHECK(good == children);
}

}  // namespace slime::transport::testing
