// Registrations: thousands of them, and what queryMem says of them.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/str.h"
#include "tests/nixl/pieces.h"

namespace slime::test::nixl::registrations_test {
namespace {

constexpr std::size_t kPage = 4096;

// Pages of zeros, without one allocation for each registration.
struct Pages {
  explicit Pages(std::size_t its_count) : count(its_count) {
    void* const at =
        ::mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    base = static_cast<std::byte*>(at);
  }
  ~Pages() { ::munmap(base, count * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] MutableBytes page(std::size_t i) const { return {base + i * kPage, kPage}; }

  std::byte* base = nullptr;
  std::size_t count;
};

std::string nanoseconds(Nanos all, std::size_t count) {
  return str(all.count() / static_cast<Nanos::rep>(count), " ns");
}

}  // namespace

TEST_CASE("10,000 regions are registered and deregistered, and each can be written while it is registered") {
  const auto count = static_cast<std::size_t>(scaled(10'000));
  const std::size_t some = std::min<std::size_t>(1000, count);
  const Pages pages(count);
  Host a("a");
  Host b("b");
  Memory& local = a.add(kPage);
  std::vector<Memory*> regions(count);
  std::vector<TimePoint> added{steady_clock().now()};
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(b.add(pages.page(i), regions[i]) == NIXL_SUCCESS);
    added.push_back(steady_clock().now());
  }
  MESSAGE(str("registered: ", nanoseconds(added[some] - added[0], some), " each of the first ", some, ", ",
              nanoseconds(added[count] - added[count - some], some), " each of the last"));
  REQUIRE(a.load(b.metadata()) == NIXL_SUCCESS);
  for (std::size_t i = 0; i < count; i += 97) {
    CAPTURE(i);
    fill_pattern(local.bytes, i);
    REQUIRE(a.prepared(NIXL_WRITE, "b", local.piece(regions[i]->address())).run() == NIXL_SUCCESS);
    REQUIRE(has_pattern(pages.page(i), i));
  }
  a.unload("b");
  std::vector<TimePoint> removed{steady_clock().now()};
  for (Memory* const each : regions) {
    REQUIRE(b.deregister(*each) == NIXL_SUCCESS);
    removed.push_back(steady_clock().now());
  }
  MESSAGE(str("deregistered: ", nanoseconds(removed[some] - removed[0], some), " each of the first ", some,
              ", ", nanoseconds(removed[count] - removed[count - some], some), " each of the last"));
}

TEST_CASE("one transfer has descriptors in 1,000 registrations of its peer") {
  constexpr std::size_t kCount = 1000;
  const Pages pages(kCount);
  Host a("a");
  Host b("b");
  Memory& local = a.add(kCount * kPage);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kCount; ++i) {
    Memory* region = nullptr;
    REQUIRE(b.add(pages.page(i), region) == NIXL_SUCCESS);
    pieces.push_back({local.address() + i * kPage, region->address(), kPage});
  }
  REQUIRE(introduce(a, b));
  fill_pattern(local.bytes, 6);
  Request request = a.prepared(NIXL_WRITE, "b", pieces);
  CHECK(request.run() == NIXL_SUCCESS);
  CHECK(same_bytes(pieces));
}

TEST_CASE("memory that is registered again is used under its new metadata, and not under the old") {
  const Pages pages(1);
  Host a("a");
  Host b("b");
  Memory& local = a.add(kPage);
  Memory* region = nullptr;
  REQUIRE(b.add(pages.page(0), region) == NIXL_SUCCESS);
  REQUIRE(introduce(a, b));
  const Piece piece = local.piece(region->address());
  Request old = a.prepared(NIXL_WRITE, "b", piece);
  REQUIRE(old.run() == NIXL_SUCCESS);
  b.remove(*region);
  REQUIRE(b.add(pages.page(0), region) == NIXL_SUCCESS);
  CHECK(old.run() < NIXL_SUCCESS);
  REQUIRE(a.load(b.metadata()) == NIXL_SUCCESS);
  fill_pattern(local.bytes, 7);
  CHECK(a.prepared(NIXL_WRITE, "b", piece).run() == NIXL_SUCCESS);
  CHECK(has_pattern(pages.page(0), 7));
  CHECK(old.run() < NIXL_SUCCESS);
}

TEST_CASE("two registrations of the same bytes both serve, and each ends by itself") {
  const Pages pages(1);
  Host a("a");
  Host b("b");
  nixlBlobDesc desc;
  desc.addr = reinterpret_cast<std::uintptr_t>(pages.base);
  desc.len = kPage;
  desc.devId = 0;
  nixlBackendMD* second = nullptr;
  Memory* first = nullptr;
  REQUIRE(b.add(pages.page(0), first) == NIXL_SUCCESS);
  REQUIRE(b.engine().registerMem(desc, DRAM_SEG, second) == NIXL_SUCCESS);
  Memory& local = a.add(kPage);
  REQUIRE(introduce(a, b));
  Request request = a.prepared(NIXL_WRITE, "b", local.piece(desc.addr));
  CHECK(request.run() == NIXL_SUCCESS);
  CHECK(b.engine().deregisterMem(second) == NIXL_SUCCESS);
  fill_pattern(local.bytes, 3);
  CHECK(request.run() == NIXL_SUCCESS);
  CHECK(has_pattern(pages.page(0), 3));
}

TEST_CASE("queryMem finds what is inside of a registration, and nothing else") {
  Host a("a");
  Memory& memory = a.add(4096);
  const std::uintptr_t at = memory.address();
  const auto found = [&a](std::uintptr_t address, std::size_t length) {
    nixl_reg_dlist_t list(DRAM_SEG);
    nixlBlobDesc desc;
    desc.addr = address;
    desc.len = length;
    desc.devId = 0;
    list.addDesc(desc);
    std::vector<nixl_query_resp_t> answers;
    REQUIRE(a.engine().queryMem(list, answers) == NIXL_SUCCESS);
    REQUIRE(answers.size() == 1);
    return answers[0].has_value();
  };
  CHECK(found(at, 4096));
  CHECK(found(at + 100, 1));
  CHECK_FALSE(found(at, 4097));
  CHECK_FALSE(found(at - 1, 2));
  CHECK_FALSE(found(at + 4090, 7));
  CHECK_FALSE(found(at + 1, SIZE_MAX));
  CHECK(a.deregister(memory) == NIXL_SUCCESS);
  CHECK_FALSE(found(at, 1));
}

TEST_CASE("queryMem knows registrations that overlap, contain each other or repeat, as they come and go") {
  constexpr std::size_t kMost = 400;
  Rng rng(seed_of_test());
  Host a("a");
  const auto bytes = std::make_unique<std::byte[]>(kMost * 2);
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.get());
  struct One {
    nixlBlobDesc desc;
    nixlBackendMD* meta = nullptr;
  };
  std::vector<One> registered;
  for (int round = 0; round < scaled(1000); ++round) {
    CAPTURE(round);
    if (registered.size() < 12 && rng.chance(3, 5)) {
      One& one = registered.emplace_back();
      one.desc.addr = first + rng.below(kMost);
      one.desc.len = 1 + rng.below(rng.chance(1, 2) ? kMost : 20);
      if (registered.size() > 1 && rng.chance(1, 4)) one.desc = registered[0].desc;
      one.desc.devId = 0;
      REQUIRE(a.engine().registerMem(one.desc, DRAM_SEG, one.meta) == NIXL_SUCCESS);
    } else if (!registered.empty()) {
      std::swap(registered[rng.below(registered.size())], registered.back());
      REQUIRE(a.engine().deregisterMem(registered.back().meta) == NIXL_SUCCESS);
      registered.pop_back();
    }
    nixl_reg_dlist_t asked(DRAM_SEG);
    for (int i = 0; i < 20; ++i) {
      nixlBlobDesc desc;
      desc.addr = first + rng.below(2 * kMost);
      desc.len = rng.below(rng.chance(1, 2) ? kMost : 20);
      desc.devId = 0;
      asked.addDesc(desc);
    }
    std::vector<nixl_query_resp_t> answers;
    REQUIRE(a.engine().queryMem(asked, answers) == NIXL_SUCCESS);
    REQUIRE(answers.size() == 20);
    for (std::size_t i = 0; i < 20; ++i) {
      const nixlBlobDesc& desc = asked[i];
      const bool inside = std::any_of(registered.begin(), registered.end(), [&desc](const One& one) {
        return one.desc.addr <= desc.addr && desc.addr + desc.len <= one.desc.addr + one.desc.len;
      });
      REQUIRE(answers[i].has_value() == inside);
    }
  }
  for (const One& one : registered) CHECK(a.engine().deregisterMem(one.meta) == NIXL_SUCCESS);
}

TEST_CASE("queryMem of an unknown address takes no longer beside thousands of registrations") {
  const auto count = static_cast<std::size_t>(scaled(4000));
  const Pages pages(count + 1);
  Host a("a");
  Memory* region = nullptr;
  nixl_reg_dlist_t unknown(DRAM_SEG);
  nixlBlobDesc desc;
  desc.addr = reinterpret_cast<std::uintptr_t>(pages.base) + count * kPage;  // above all of them
  desc.len = 8;
  desc.devId = 0;
  for (int i = 0; i < 1000; ++i) unknown.addDesc(desc);
  const auto ask = [&] {
    std::vector<nixl_query_resp_t> answers;
    const TimePoint began = steady_clock().now();
    REQUIRE(a.engine().queryMem(unknown, answers) == NIXL_SUCCESS);
    const Nanos took = steady_clock().now() - began;
    REQUIRE(std::none_of(answers.begin(), answers.end(), [](const auto& each) { return each.has_value(); }));
    return took;
  };
  REQUIRE(a.add(pages.page(0), region) == NIXL_SUCCESS);
  const Nanos with_one = ask();
  for (std::size_t i = 1; i < count; ++i) REQUIRE(a.add(pages.page(i), region) == NIXL_SUCCESS);
  const Nanos with_all = ask();
  MESSAGE(str("a miss: ", nanoseconds(with_one, 1000), " with 1 registration, ", nanoseconds(with_all, 1000),
              " with ", count));
  CHECK(with_all < std::max<Nanos>(20 * with_one, patient(std::chrono::milliseconds(10))));
}

}  // namespace slime::test::nixl::registrations_test
