// The counting of uses that revocation relies on, and the memory that Slime allocates.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/settings.h"
#include "transport/loop.h"
#include "transport/owned_memory.h"
#include "transport/region_uses.h"
#include "transport/soft/regions.h"

namespace slime::transport::testing {
namespace {

using namespace std::chrono_literals;

bool mapped(const std::byte* page) { return msync(const_cast<std::byte*>(page), 1, MS_ASYNC) == 0; }

}  // namespace

TEST_CASE("a revoked region takes no new use, and is unused once the old ones have ended") {
  RegionUses uses;
  CHECK(uses.unused());
  CHECK(uses.add_use());
  CHECK(uses.add_use());
  CHECK_FALSE(uses.revoked());
  uses.revoke();
  CHECK(uses.revoked());
  CHECK_FALSE(uses.add_use());
  uses.drop_use();
  CHECK_FALSE(uses.unused());
  CHECK_FALSE(uses.wait_unused(steady_clock().now()));
  uses.drop_use();
  CHECK(uses.unused());
  CHECK(uses.wait_unused(kNever));
}

TEST_CASE("the count may be freed as soon as it is unused, whatever its last user still does") {
  for (int round = 0; round < 300; ++round) {
    auto uses = std::make_unique<RegionUses>();
    std::atomic<bool> started{false};
    std::vector<std::thread> users;
    for (int i = 0; i < 3; ++i) {
      REQUIRE(uses->add_use());
      users.emplace_back([&started, u = uses.get()] {
        started = true;
        // While the first use holds it alive.
        for (int turn = 0; turn < 100; ++turn) {
          if (u->add_use()) u->drop_use();
        }
        u->drop_use();
      });
    }
    while (!started) std::this_thread::yield();
    uses->revoke();
    if (round % 2 == 0) {
      CHECK(uses->wait_unused(deadline_after(steady_clock().now(), 30s)));
    } else {
      while (!uses->unused()) std::this_thread::yield();
    }
    uses.reset();
    for (std::thread& user : users) user.join();
  }
}

TEST_CASE("a record may be freed as soon as nothing pins it, whatever its last user still does") {
  std::byte memory{};
  const int rounds = test::scaled(50'000);
  std::atomic<soft::RegionRecord*> shared{nullptr};
  std::atomic<int> pinned{0};
  std::atomic<int> unpinned{0};
  std::thread user([&] {
    for (int round = 1; round <= rounds; ++round) {
      soft::RegionRecord* record = nullptr;
      while ((record = shared.exchange(nullptr)) == nullptr) std::this_thread::yield();
      CHECK(record->pin_for_own());
      pinned = round;
      // Varies the time of the last unpin, so that it meets every step of the close.
      for (int turn = round % 64; turn > 0; --turn) {
        if (record->pin_for_peer()) record->unpin();
      }
      record->unpin();
      unpinned = round;
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    auto record = std::make_unique<soft::RegionRecord>(&memory, 1, Rights::kReadWrite, 1);
    shared = record.get();
    while (pinned != round) std::this_thread::yield();
    record->revoke();
    record->cut();
    record->wait_unpinned();
    record.reset();
  }
  user.join();
  CHECK(unpinned == rounds);
}

TEST_CASE("whoever waits for uses drives loops without a thread, and waits for the others") {
  auto driven = Loop::create();
  auto threaded = Loop::create();
  REQUIRE(driven.has_value());
  REQUIRE(threaded.has_value());
  (*threaded)->start_thread();
  RegionUses uses;
  REQUIRE(uses.add_use());
  REQUIRE(uses.add_use());
  uses.revoke();
  for (const auto& loop : {*driven, *threaded}) {
    loop->post([&uses, loop] { loop->add_timer(loop->now() + 20ms, [&uses] { uses.drop_use(); }); });
  }
  const std::shared_ptr<Loop> loops[] = {*driven, nullptr, *threaded};
  CHECK(wait_unused(uses, loops, deadline_after(steady_clock().now(), 30s)));
  (*threaded)->stop();
}

TEST_CASE("waiting for uses ends at its deadline, and at once where time stands still") {
  ManualClock clock;
  auto still = Loop::create({.clock = &clock});
  REQUIRE(still.has_value());
  RegionUses uses;
  REQUIRE(uses.add_use());
  uses.revoke();
  const std::shared_ptr<Loop> loops[] = {*still};
  CHECK_FALSE(wait_unused(uses, loops, kNever));
  auto real = Loop::create();
  REQUIRE(real.has_value());
  const std::shared_ptr<Loop> others[] = {*real};
  CHECK_FALSE(wait_unused(uses, others, deadline_after(steady_clock().now(), 5ms)));
  uses.drop_use();
  CHECK(wait_unused(uses, loops, kNever));
}

TEST_CASE("allocated memory is zeroed, shared by its descriptor, and cannot change its size") {
  auto made = OwnedMemory::create(100'000);
  REQUIRE(made.has_value());
  OwnedMemory memory = std::move(*made);
  CHECK_FALSE(static_cast<bool>(*made));
  CHECK(memory.size() == 100'000);
  CHECK(std::all_of(memory.data(), memory.data() + memory.size(),
                    [](std::byte b) { return b == std::byte{}; }));
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % static_cast<std::uintptr_t>(getpagesize()) == 0);
  CHECK(ftruncate(memory.fd(), 10) != 0);
  CHECK(ftruncate(memory.fd(), 1'000'000) != 0);
  memory.data()[99'999] = std::byte{7};
  std::byte seen{};
  CHECK(pread(memory.fd(), &seen, 1, 99'999) == 1);
  CHECK(seen == std::byte{7});
  CHECK(OwnedMemory::create(0).status().code() == Code::kInvalidArgument);
}

TEST_CASE("memory is unmapped with its owner, unless it was given up for ever") {
  auto freed = OwnedMemory::create(4096);
  auto leaked = OwnedMemory::create(4096);
  REQUIRE(freed.has_value());
  REQUIRE(leaked.has_value());
  std::byte* const freed_page = freed->data();
  std::byte* const leaked_page = leaked->data();
  *freed = OwnedMemory();
  leaked->leak();
  *leaked = OwnedMemory();
  CHECK_FALSE(mapped(freed_page));
  CHECK(mapped(leaked_page));
  munmap(leaked_page, 4096);
}

}  // namespace slime::transport::testing
