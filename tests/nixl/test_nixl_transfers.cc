// READ and WRITE between engines of this process: each byte arrives at its place.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/str.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"

namespace slime::test::nixl::transfers_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Two engines that know each other, with one memory each.
struct Two {
  explicit Two(std::size_t bytes) : local(a.add(bytes)), remote(b.add(bytes)) { REQUIRE(introduce(a, b)); }
  [[nodiscard]] Request prepared(nixl_xfer_op_t operation, std::span<const Piece> pieces) const {
    return a.prepared(operation, "b", pieces);
  }
  Host a{"a"};
  Host b{"b"};
  Memory& local;
  Memory& remote;
};

void check_both_ways(Two& two, const std::vector<Piece>& pieces) {
  fill_pattern(two.local.bytes, 1);
  fill_pattern(two.remote.bytes, 2);
  CHECK(two.prepared(NIXL_WRITE, pieces).run() == NIXL_SUCCESS);
  CHECK(same_bytes(pieces));
  CHECK(has_pattern(two.local.bytes, 1));
  fill_pattern(two.remote.bytes, 3);
  CHECK(two.prepared(NIXL_READ, pieces).run() == NIXL_SUCCESS);
  CHECK(same_bytes(pieces));
  CHECK(has_pattern(two.remote.bytes, 3));
}

}  // namespace

TEST_CASE("a WRITE and a READ of one descriptor move all of its bytes") {
  Two two(kMiB);
  check_both_ways(two, {two.local.piece(two.remote.address())});
}

TEST_CASE("a transfer between the middles of two registrations leaves the other bytes alone") {
  Two two(4096);
  fill_pattern(two.remote.bytes, 5);
  const Piece piece{two.local.address() + 1001, two.remote.address() + 2003, 777};
  CHECK(two.a.prepared(NIXL_READ, "b", piece).run() == NIXL_SUCCESS);
  CHECK(same_bytes({piece}));
  const auto zero = [](std::byte each) { return each == std::byte{}; };
  CHECK(std::all_of(two.local.bytes.begin(), two.local.bytes.begin() + 1001, zero));
  CHECK(std::all_of(two.local.bytes.begin() + 1778, two.local.bytes.end(), zero));
}

TEST_CASE("descriptors of random order and lengths, empty ones among them, each arrive at their place") {
  Rng rng(seed_of_test());
  for (const std::size_t most : {std::size_t{17}, std::size_t{3000}, kMiB / 2}) {
    CAPTURE(most);
    Two two(most < 100 ? 20'000 : 3 * kMiB);
    check_both_ways(two, random_pieces(rng, two.local, two.remote.address(), most));
  }
}

TEST_CASE("descriptors that touch at one end or at both move the same bytes as one that covers them") {
  Two two(64 << 10);
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < (32 << 10); at += 512)  // at both ends
    pieces.push_back({two.local.address() + at, two.remote.address() + at, 512});
  for (std::size_t at = 32 << 10; at < (48 << 10); at += 512)  // at the local end
    pieces.push_back(
        {two.local.address() + at, two.remote.address() + (32 << 10) + 2 * (at - (32 << 10)), 512});
  check_both_ways(two, pieces);
}

TEST_CASE("descriptors that touch but are of two registrations move the bytes of both") {
  Host a("a");
  Host b("b");
  auto bytes = std::make_unique<std::byte[]>(8192);
  Memory* first = nullptr;
  Memory* second = nullptr;
  REQUIRE(a.add({bytes.get(), 4096}, first) == NIXL_SUCCESS);
  REQUIRE(a.add({bytes.get() + 4096, 4096}, second) == NIXL_SUCCESS);
  Memory& remote = b.add(8192);
  REQUIRE(introduce(a, b));
  fill_pattern({bytes.get(), 8192}, 9);
  const std::vector<Piece> pieces = {first->piece(remote.address()), second->piece(remote.address() + 4096)};
  CHECK(a.prepared(NIXL_WRITE, "b", pieces).run() == NIXL_SUCCESS);
  CHECK(has_pattern(remote.bytes, 9));
}

TEST_CASE("a transfer of empty descriptors, or of none, ends well and delivers its notification") {
  Two two(4096);
  const std::vector<Piece> empty(3, {two.local.address() + 4096, two.remote.address(), 0});
  int sent = 0;
  for (const auto operation : {NIXL_READ, NIXL_WRITE}) {
    for (const auto& pieces : {std::vector<Piece>(), empty}) {
      CAPTURE(operation);
      CAPTURE(pieces.size());
      Request request = two.a.request(operation, "b", pieces);
      REQUIRE(request.prepare() == NIXL_SUCCESS);
      CHECK(request.run(str("empty ", sent)) == NIXL_SUCCESS);
      ++sent;
    }
  }
  notif_list_t got;
  CHECK(eventually([&] {
    for (auto& each : two.b.take_notifications()) got.push_back(std::move(each));
    return got.size() >= 4;
  }));
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(got[i].second == str("empty ", i));
}

TEST_CASE("an engine moves bytes between its own registrations") {
  Host alone("alone");
  Memory& from = alone.add(kMiB);
  Memory& to = alone.add(kMiB);
  fill_pattern(from.bytes, 4);
  CHECK(alone.prepared(NIXL_WRITE, "alone", from.piece(to.address())).run("to myself") == NIXL_SUCCESS);
  CHECK(has_pattern(to.bytes, 4));
  fill_pattern(from.bytes, 5);
  CHECK(alone.prepared(NIXL_READ, "alone", to.piece(from.address())).run() == NIXL_SUCCESS);
  CHECK(has_pattern(to.bytes, 5));
  notif_list_t got;
  CHECK(eventually([&] { return !(got = alone.take_notifications()).empty(); }));
  REQUIRE(got.size() == 1);
  CHECK(got[0] == std::pair<std::string, std::string>("alone", "to myself"));
}

TEST_CASE("one handle is posted 10,000 times, and moves the bytes of each time") {
  const int posts = scaled(10'000);
  Two two(4096);
  Request request = two.a.prepared(NIXL_WRITE, "b", two.local.piece(two.remote.address()));
  for (int i = 0; i < posts; ++i) {
    CAPTURE(i);
    fill_pattern(two.local.bytes, i);
    REQUIRE(request.run() == NIXL_SUCCESS);
    REQUIRE(has_pattern(two.remote.bytes, i));
  }
}

TEST_CASE("a list of 100,000 descriptors moves each of them") {
  Two two(100'000 * 64);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 100'000; ++i)
    pieces.push_back({two.local.address() + i * 64, two.remote.address() + (99'999 - i) * 64, 1 + i % 64});
  Rng rng(seed_of_test());
  rng.fill(two.local.bytes);
  Request request = two.prepared(NIXL_WRITE, pieces);
  REQUIRE(request.run() == NIXL_SUCCESS);
  CHECK(same_bytes(pieces));
  rng.fill(two.local.bytes);
  REQUIRE(request.run() == NIXL_SUCCESS);
  CHECK(same_bytes(pieces));
}

TEST_CASE("many handles of one engine are under way together, and each moves its own bytes") {
  constexpr std::size_t kHandles = 200;
  constexpr std::size_t kBytes = 16 << 10;
  Two two(kHandles * kBytes);
  fill_pattern(two.local.bytes, 1);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kHandles; ++i) {
    const std::size_t at = i * kBytes;
    requests.push_back(
        two.a.prepared(NIXL_WRITE, "b", Piece{two.local.address() + at, two.remote.address() + at, kBytes}));
  }
  for (Request& request : requests) REQUIRE(request.post() >= NIXL_SUCCESS);
  for (Request& request : requests) CHECK(request.wait() == NIXL_SUCCESS);
  CHECK(has_pattern(two.remote.bytes, 1));
}

TEST_CASE("eight engines write to and read from each other, all to all") {
  constexpr std::size_t kEngines = 8;
  constexpr std::size_t kBytes = 32 << 10;
  // Part j of the outbox of an engine goes to engine j; part i of its inbox is what engine i wrote;
  // part k of `fetched` is what it read from the outbox of engine k.
  struct One {
    explicit One(std::size_t number)
        : host(str("engine ", number)),
          outbox(host.add(kEngines * kBytes)),
          inbox(host.add(kEngines * kBytes)),
          fetched(host.add(kEngines * kBytes)) {
      fill_pattern(outbox.bytes, number);
    }
    Host host;
    Memory& outbox;
    Memory& inbox;
    Memory& fetched;
    std::vector<Request> requests;
  };
  std::vector<std::unique_ptr<One>> all;
  for (std::size_t i = 0; i < kEngines; ++i) all.push_back(std::make_unique<One>(i));
  for (const auto& one : all) {
    for (const auto& other : all) {
      if (one != other) REQUIRE(one->host.load(other->host.metadata()) == NIXL_SUCCESS);
    }
  }
  for (std::size_t i = 0; i < kEngines; ++i) {
    One& one = *all[i];
    for (std::size_t j = 0; j < kEngines; ++j) {
      const One& other = *all[j];
      const std::string& name = other.host.name();
      one.requests.push_back(one.host.prepared(
          NIXL_WRITE, name,
          Piece{one.outbox.address() + j * kBytes, other.inbox.address() + i * kBytes, kBytes}));
      one.requests.push_back(one.host.prepared(
          NIXL_READ, name,
          Piece{one.fetched.address() + j * kBytes, other.outbox.address() + i * kBytes, kBytes}));
    }
  }
  for (const auto& one : all) {
    for (Request& request : one->requests) REQUIRE(request.post() >= NIXL_SUCCESS);
  }
  for (const auto& one : all) {
    for (Request& request : one->requests) REQUIRE(request.wait() == NIXL_SUCCESS);
  }
  for (std::size_t i = 0; i < kEngines; ++i) {
    for (std::size_t j = 0; j < kEngines; ++j) {
      CAPTURE(i);
      CAPTURE(j);
      const Bytes wrote = all[j]->inbox.bytes.subspan(i * kBytes, kBytes);
      CHECK(std::ranges::equal(wrote, all[i]->outbox.bytes.subspan(j * kBytes, kBytes)));
      const Bytes read = all[i]->fetched.bytes.subspan(j * kBytes, kBytes);
      CHECK(std::ranges::equal(read, all[j]->outbox.bytes.subspan(i * kBytes, kBytes)));
    }
  }
}

TEST_CASE("the estimated cost of a transfer is positive before and after it has run") {
  Two two(kMiB);
  Request request = two.a.prepared(NIXL_WRITE, "b", two.local.piece(two.remote.address()));
  for (int round = 0; round < 2; ++round) {
    std::chrono::microseconds duration{};
    std::chrono::microseconds margin{};
    nixl_cost_t method{};
    const nixl_meta_dlist_t none(DRAM_SEG);
    CHECK(two.a.engine().estimateXferCost(NIXL_WRITE, none, none, "b", request.handle(), duration, margin,
                                          method, nullptr) == NIXL_SUCCESS);
    CHECK(duration.count() > 0);
    CHECK(margin.count() >= 0);
    REQUIRE(request.run() == NIXL_SUCCESS);
  }
}

}  // namespace slime::test::nixl::transfers_test
