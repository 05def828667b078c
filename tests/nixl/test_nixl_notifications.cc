// Notifications: each arrives once, with its sender, and never before the bytes that it tells of.
#include <doctest/doctest.h>

#include <atomic>
#include <charconv>
#include <thread>
#include <vector>

#include "base/str.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"

namespace slime::test::nixl::notifications_test {
namespace {

// The notifications of an agent until there are `count`, or the patience of eventually() ends.
notif_list_t take(Host& host, std::size_t count) {
  notif_list_t out;
  eventually([&] {
    for (auto& each : host.take_notifications()) out.push_back(std::move(each));
    return out.size() >= count;
  });
  return out;
}

std::uint64_t number_in(const std::string& text) {
  std::uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

constexpr std::size_t kSlots = 16;  // transfers under way at a time
constexpr std::size_t kSlotBytes = 40 << 10;

// Writes transfer i from and to slot i % kSlots, once the receiver has checked what was there.
struct Sender {
  Sender(Host& its_host, Memory& its_memory, std::uintptr_t remote) : host(its_host), memory(its_memory) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      const std::size_t at = slot * kSlotBytes;
      // Odd slots in three descriptors that do not follow each other.
      std::vector<Piece> pieces;
      for (const std::size_t part : {2, 0, 1}) {
        const std::size_t from = part * (kSlotBytes / 4);
        const std::size_t bytes = part == 2 ? kSlotBytes / 2 : kSlotBytes / 4;
        if (slot % 2 == 1) pieces.push_back({memory.address() + at + from, remote + at + from, bytes});
      }
      if (pieces.empty()) pieces.push_back({memory.address() + at, remote + at, kSlotBytes});
      requests.push_back(host.prepared(NIXL_WRITE, "receiver", pieces));
    }
  }
  [[nodiscard]] MutableBytes bytes(std::uint64_t i) const {
    return memory.bytes.subspan(i % kSlots * kSlotBytes, kSlotBytes);
  }
  Host& host;
  Memory& memory;
  std::vector<Request> requests;
};

}  // namespace

TEST_CASE("a notification comes never before its data, in thousands of transfers") {
  const auto transfers = static_cast<std::uint64_t>(scaled(4000));
  Host a("sender");
  Host b("receiver");
  Memory& memory = a.add(kSlots * kSlotBytes);
  Memory& inbox = b.add(kSlots * kSlotBytes);
  REQUIRE(introduce(a, b));
  Sender sender(a, memory, inbox.address());
  std::atomic<std::uint64_t> checked{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> stop{false};
  std::thread receiver([&] {
    std::vector<bool> seen(transfers);
    while (checked < transfers && !stop) {
      for (const auto& [from, message] : b.take_notifications()) {
        const std::uint64_t i = number_in(message);
        const Bytes slot = Bytes(inbox.bytes).subspan(i % kSlots * kSlotBytes, kSlotBytes);
        if (from != "sender" || i >= transfers || seen[i] || !has_pattern(slot, i)) ++wrong;
        if (i < transfers) seen[i] = true;
        ++checked;
      }
    }
  });
  bool well = true;
  for (std::uint64_t i = 0; i < transfers && well; ++i) {
    Request& request = sender.requests[i % kSlots];
    if (i >= kSlots) {
      // All slots wait for all before, so the receiver is done with this one.
      if (i % kSlots == 0) well = eventually([&] { return checked >= i; });
      well = well && request.wait() == NIXL_SUCCESS;
    }
    if (!well) break;
    fill_pattern(sender.bytes(i), i);
    well = request.post(str(i)) >= NIXL_SUCCESS;
  }
  CHECK(well);
  for (Request& request : sender.requests) CHECK(request.wait() == NIXL_SUCCESS);
  CHECK(eventually([&] { return checked >= transfers; }));
  stop = true;
  receiver.join();
  CHECK(checked == transfers);
  CHECK(wrong == 0);
}

TEST_CASE("a WRITE that is small and one that is large are both there when their notifications are") {
  Host a("sender");
  Host b("receiver");
  Memory& from = a.add(8 << 20);
  Memory& to = b.add(8 << 20);
  REQUIRE(introduce(a, b));
  Request large = a.prepared(NIXL_WRITE, "receiver", from.piece(to.address()));
  Request small = a.prepared(NIXL_WRITE, "receiver", Piece{from.address(), to.address(), 8});
  for (std::uint64_t round = 1; round <= 30; ++round) {
    CAPTURE(round);
    fill_pattern(from.bytes, round);
    for (Request* const request : {&large, &small}) {
      REQUIRE(request->post(str(round)) >= NIXL_SUCCESS);
      const notif_list_t got = take(b, 1);
      REQUIRE(got.size() == 1);
      CHECK(got[0].second == str(round));
      CHECK(has_pattern(to.bytes.first(request == &large ? to.bytes.size() : 8), round));
      REQUIRE(request->wait() == NIXL_SUCCESS);
    }
  }
}

TEST_CASE("notifications of 0 bytes to 1 MiB arrive whole, with a transfer and without one") {
  Host a("sender");
  Host b("receiver");
  Memory& from = a.add(4096);
  Memory& to = b.add(4096);
  REQUIRE(introduce(a, b));
  Rng rng(seed_of_test());
  Request request = a.prepared(NIXL_WRITE, "receiver", from.piece(to.address()));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{8} << 10, std::size_t{1} << 20}) {
    CAPTURE(size);
    std::string message(size, '\0');
    rng.fill(std::as_writable_bytes(std::span(message)));
    REQUIRE(request.run(message) == NIXL_SUCCESS);
    notif_list_t got = take(b, 1);
    REQUIRE(got.size() == 1);
    CHECK(got[0].first == "sender");
    CHECK((got[0].second == message));
    REQUIRE(a.engine().genNotif("receiver", message) == NIXL_SUCCESS);
    got = take(b, 1);
    REQUIRE(got.size() == 1);
    CHECK(got[0].first == "sender");
    CHECK((got[0].second == message));
  }
}

TEST_CASE("a handle that is posted again delivers the notification of each post, or none") {
  Host a("sender");
  Host b("receiver");
  Memory& from = a.add(4096);
  Memory& to = b.add(4096);
  REQUIRE(introduce(a, b));
  Request request = a.prepared(NIXL_WRITE, "receiver", from.piece(to.address()));
  REQUIRE(request.run("first") == NIXL_SUCCESS);
  REQUIRE(request.run() == NIXL_SUCCESS);
  REQUIRE(request.run("third") == NIXL_SUCCESS);
  REQUIRE(request.run("") == NIXL_SUCCESS);
  REQUIRE(request.run("last") == NIXL_SUCCESS);
  const notif_list_t got = take(b, 4);
  REQUIRE(got.size() == 4);
  CHECK(got[0].second == "first");
  CHECK(got[1].second == "third");
  CHECK(got[2].second.empty());
  CHECK(got[3].second == "last");
}

TEST_CASE("a READ with a notification tells the peer once the bytes are here") {
  Host a("reader");
  Host b("receiver");
  Memory& to = a.add(1 << 20);
  Memory& from = b.add(1 << 20);
  REQUIRE(introduce(a, b));
  fill_pattern(from.bytes, 3);
  Request request = a.prepared(NIXL_READ, "receiver", to.piece(from.address()));
  REQUIRE(request.post("you may free it") >= NIXL_SUCCESS);
  const notif_list_t got = take(b, 1);
  REQUIRE(got.size() == 1);
  CHECK(got[0] == std::pair<std::string, std::string>("reader", "you may free it"));
  CHECK(request.wait() == NIXL_SUCCESS);
  CHECK(has_pattern(to.bytes, 3));
}

TEST_CASE("notifications without transfers keep their order, to a peer and to oneself") {
  Host a("sender");
  Host b("receiver");
  REQUIRE(introduce(a, b));
  constexpr std::size_t kCount = 2000;
  for (std::size_t i = 0; i < kCount; ++i) {
    REQUIRE(a.engine().genNotif("receiver", str(i)) == NIXL_SUCCESS);
    REQUIRE(a.engine().genNotif("sender", str(i)) == NIXL_SUCCESS);
  }
  for (Host* const host : {&a, &b}) {
    const notif_list_t got = take(*host, kCount);
    REQUIRE(got.size() == kCount);
    for (std::size_t i = 0; i < kCount; ++i) REQUIRE(got[i].second == str(i));
  }
}

TEST_CASE("getNotifs adds to the list that it gets, and gives each notification once") {
  Host a("sender");
  Host b("receiver");
  REQUIRE(introduce(a, b));
  REQUIRE(a.engine().genNotif("receiver", "new") == NIXL_SUCCESS);
  notif_list_t list = {{"somebody", "old"}};
  CHECK(eventually([&] { return b.engine().getNotifs(list) == NIXL_SUCCESS && list.size() > 1; }));
  REQUIRE(list.size() == 2);
  CHECK(list[0].second == "old");
  CHECK(list[1].second == "new");
  CHECK(b.take_notifications().empty());
}

}  // namespace slime::test::nixl::notifications_test
