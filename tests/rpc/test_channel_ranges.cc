// Messages of ranges of memory, sent without a copy and received into memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/rpc/channel_fixture.h"
#include "tests/rpc/device_regions.h"
#include "tests/support/settings.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace channel_ranges_test {
namespace {

using test::same;
using transport::Rights;
using Length = Outcome<std::uint64_t>;

constexpr std::size_t kLarge = 300'000;

// Registered memory of one side with a pattern.
struct Memory {
  Memory(Fixture& f, int side, std::size_t size, Rights rights, std::uint64_t seed = 0)
      : region(allocate(f, side, size, rights)) {
    if (seed != 0) {
      const ByteVector bytes = pattern(size, seed);
      std::copy(bytes.begin(), bytes.end(), region->bytes().begin());
    }
  }
  [[nodiscard]] Attachment range(std::size_t offset, std::size_t length) const {
    return *Attachment::of(region, offset, length);
  }
  [[nodiscard]] Destination room(std::size_t offset, std::size_t length) const {
    return *Destination::of(region, offset, length);
  }
  [[nodiscard]] Bytes bytes() const { return region->bytes(); }
  std::shared_ptr<const DeviceMemory> region;
};

struct Ranges : Link {
  explicit Ranges(Fixture& f, LinkOptions link_options = {})
      : Link(f, std::move(link_options)),
        source(f, 0, 2 * kLarge, Rights::kRemoteRead, 7),
        target(f, 1, 2 * kLarge, Rights::kLocal) {}
  Ticket send(Done& done, Attachments ranges, Nanos within = 20s) {
    return a().send_ranges(5, std::move(ranges), in(within), done.handler());
  }
  Ticket receive(Length& length, Destinations into, Nanos within = 20s) {
    return b().recv_into(5, std::move(into), in(within), length.handler());
  }
  [[nodiscard]] bool idle() {
    return until([&] { return a().idle() && b().idle(); });
  }
  Memory source;
  Memory target;
};

std::uint64_t length_of(const Length& length) {
  REQUIRE_MESSAGE(length.value->has_value(), length.status().to_string());
  return **length.value;
}

}  // namespace

TEST_CASE("ranges are one message, read straight into the ranges of the receive") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Length length;
  Done sent;
  SUBCASE("the receive waits") {
    link.receive(length, {link.target.room(1, 1000), link.target.room(5000, kLarge)});
    link.send(sent, {link.source.range(10, kLarge), link.source.range(0, 5)});
  }
  SUBCASE("the message waits, in its sender's memory") {
    link.send(sent, {link.source.range(10, kLarge), link.source.range(0, 5)});
    sim.settle();
    CHECK_FALSE(sent.done());
    CHECK(link.b().counters().pulled_bytes == 0);
    CHECK(link.b().counters().held_bytes == 0);
    link.receive(length, {link.target.room(1, 1000), link.target.room(5000, kLarge)});
  }
  REQUIRE(link.until([&] { return length.done() && sent.done(); }));
  CHECK(sent.status.ok());
  CHECK(length_of(length) == kLarge + 5);
  ByteVector whole(link.source.bytes().begin() + 10, link.source.bytes().begin() + 10 + kLarge);
  whole.insert(whole.end(), link.source.bytes().begin(), link.source.bytes().begin() + 5);
  CHECK(same(link.target.bytes().subspan(1, 1000), Bytes(whole).first(1000)));
  CHECK(same(link.target.bytes().subspan(5000, kLarge + 5 - 1000), Bytes(whole).subspan(1000)));
  CHECK(link.target.bytes()[0] == std::byte{0});
  CHECK(link.target.bytes()[1001] == std::byte{0});
  CHECK(link.target.bytes()[5000 + kLarge + 5 - 1000] == std::byte{0});
  CHECK(link.a().counters().registrations == 0);
  CHECK(link.b().counters().registrations == 0);
  CHECK(link.idle());
}

TEST_CASE("a send of ranges ends when a receive has the bytes, small ones too") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done sent;
  link.send(sent, {link.source.range(0, 100), link.source.range(200, 0), link.source.range(300, 50)});
  sim.settle();
  CHECK_FALSE(sent.done());
  Reply reply;
  link.b().recv(5, link.in(20s), reply.receiver());
  REQUIRE(link.until([&] { return reply.done() && sent.done(); }));
  CHECK(sent.status.ok());
  const Bytes got = (*reply.value)->bytes();
  REQUIRE(got.size() == 150);
  CHECK(same(got.first(100), link.source.bytes().first(100)));
  CHECK(same(got.subspan(100), link.source.bytes().subspan(300, 50)));
  CHECK(link.idle());
}

TEST_CASE("a receive without destinations gets the ranges as one message") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done sent;
  Reply reply;
  link.send(sent, {link.source.range(0, kLarge), link.source.range(kLarge, kLarge)});
  link.b().recv(5, link.in(20s), reply.receiver());
  REQUIRE(link.until([&] { return reply.done() && sent.done(); }));
  CHECK(same((*reply.value)->bytes(), link.source.bytes()));
  CHECK(link.idle());
}

TEST_CASE("a message that was copied is received into memory, and stays if it is too long") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  for (const std::size_t size : {std::size_t{100}, kLarge}) {
    Done sent;
    link.a().send(5, pattern(size), link.in(20s), sent.handler());
    REQUIRE(link.until([&] { return sent.done(); }));
    Length refused;
    link.receive(refused, {link.target.room(0, size - 1)});
    REQUIRE(link.until([&] { return refused.done(); }));
    CHECK(refused.status().code() == Code::kInvalidArgument);
    CHECK(refused.status().text() ==
          str("the message has ", size, " bytes, and the receive has room for ", size - 1));
    CHECK(test::all_are(link.target.bytes().first(size), std::byte{0}));
    Length length;
    link.receive(length, {link.target.room(0, 60), link.target.room(60, size)});
    REQUIRE(link.until([&] { return length.done(); }));
    CHECK(length_of(length) == size);
    CHECK(same(link.target.bytes().first(size), pattern(size)));
    std::memset(link.target.region->bytes().data(), 0, size);
  }
  CHECK(link.idle());
}

TEST_CASE("a message of ranges that is too long is an error at both ends, and nothing is written") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  for (const std::size_t size : {std::size_t{100}, kLarge}) {
    Done sent;
    Length length;
    link.receive(length, {link.target.room(0, 10), link.target.room(10, size - 11)});
    link.send(sent, {link.source.range(0, size)});
    REQUIRE(link.until([&] { return length.done() && sent.done(); }));
    const std::string text = str("the message has ", size, " bytes, and the receive has room for ", size - 1);
    CHECK(sent.status.code() == Code::kInvalidArgument);
    CHECK(sent.status.text() == text);
    CHECK(length.status().code() == Code::kInvalidArgument);
    CHECK(length.status().text() == text);
    CHECK(test::all_are(link.target.bytes(), std::byte{0}));
  }
  CHECK(link.idle());
}

TEST_CASE("a message whose send timed out or was cancelled is gone") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done timed_out;
  Done cancelled;
  Done kept;
  link.send(timed_out, {link.source.range(0, kLarge)}, 1s);
  const Ticket ticket = link.send(cancelled, {link.source.range(0, 10)});
  link.send(kept, {link.source.range(50, 60)});
  sim.settle();
  link.a().cancel(ticket);
  REQUIRE(link.until([&] { return timed_out.done() && cancelled.done(); }));
  CHECK(timed_out.status.code() == Code::kDeadlineExceeded);
  CHECK(cancelled.status.code() == Code::kCancelled);
  sim.settle();
  Length length;
  link.receive(length, {link.target.room(0, 100)});
  REQUIRE(link.until([&] { return length.done() && kept.done(); }));
  CHECK(length_of(length) == 60);
  CHECK(same(link.target.bytes().first(60), link.source.bytes().subspan(50, 60)));
  CHECK(link.idle());
}

TEST_CASE("a message that its receive gave up is the next receive's") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done sent;
  Length given_up;
  link.send(sent, {link.source.range(0, 2 * kLarge)});
  sim.settle();
  const Ticket ticket = link.receive(given_up, {link.target.room(0, 2 * kLarge)});
  REQUIRE(link.until([&] { return link.b().endpoint().in_flight() > 0; }));  // the read is under way
  link.b().cancel(ticket);
  REQUIRE(link.until([&] { return given_up.done(); }));
  CHECK(given_up.status().code() == Code::kCancelled);
  CHECK_FALSE(sent.done());
  std::memset(link.target.region->bytes().data(), 0, 2 * kLarge);
  Length length;
  link.receive(length, {link.target.room(0, 2 * kLarge)});
  REQUIRE(link.until([&] { return length.done() && sent.done(); }));
  CHECK(sent.status.ok());
  CHECK(same(link.target.bytes(), link.source.bytes()));
  CHECK(link.idle());
}

TEST_CASE("messages of a tag are received in order, whatever they lie in") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  const std::size_t sizes[] = {10, kLarge, 20, 9'000, 200'000};
  std::vector<std::unique_ptr<Done>> sent;
  for (int i = 0; i < 10; ++i) {
    const std::size_t size = sizes[i % 5];
    sent.push_back(std::make_unique<Done>());
    if (i % 2 == 0) {
      link.send(*sent.back(), {link.source.range(static_cast<std::size_t>(i), size)});
    } else {
      const Bytes bytes = link.source.bytes().subspan(static_cast<std::size_t>(i), size);
      link.a().send(5, {bytes.begin(), bytes.end()}, link.in(20s), sent.back()->handler());
    }
  }
  for (int i = 0; i < 10; ++i) {
    Length length;
    link.receive(length, {link.target.room(0, 2 * kLarge)});
    REQUIRE(link.until([&] { return length.done(); }));
    REQUIRE(length_of(length) == sizes[i % 5]);
    CHECK(same(link.target.bytes().first(sizes[i % 5]),
               link.source.bytes().subspan(static_cast<std::size_t>(i), sizes[i % 5])));
  }
  REQUIRE(link.idle());
  for (const auto& done : sent) CHECK(done->status.ok());
}

TEST_CASE("a channel that closes refuses messages of ranges that wait, and ends the read of one") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done read;
  Done waits;
  Length length;
  link.send(read, {link.source.range(0, 2 * kLarge)});
  link.send(waits, {link.source.range(0, 10)});
  sim.settle();
  link.receive(length, {link.target.room(0, 2 * kLarge)});
  REQUIRE(link.until([&] { return link.b().endpoint().in_flight() > 0; }));
  link.b().close(5s);
  REQUIRE(link.until([&] { return read.done() && waits.done() && length.done(); }));
  CHECK(read.status.ok());
  CHECK(same(link.target.bytes(), link.source.bytes()));
  CHECK(waits.status.code() == Code::kUnavailable);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(link.owners[0].reason.code() != Code::kCancelled);
}

TEST_CASE("a peer that breaks ends sends and receives of ranges") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  Done sent;
  Length length;
  Length waits;
  link.send(sent, {link.source.range(0, 2 * kLarge)});
  sim.settle();
  link.receive(length, {link.target.room(0, 2 * kLarge)});
  link.receive(waits, {link.target.room(0, 10)});
  REQUIRE(link.until([&] { return link.b().endpoint().in_flight() > 0; }));
  link.a().reset(Status(Code::kUnavailable, "broken"));
  REQUIRE(link.until([&] { return sent.done() && length.done() && waits.done(); }));
  CHECK_FALSE(sent.status.ok());
  CHECK_FALSE(length.status().ok());
  CHECK_FALSE(waits.status().ok());
}

TEST_CASE("a receive whose destination cannot be written leaves the message to the next one") {
  SimFixture sim(kSeed);
  Ranges link(sim);
  struct Closed final : Registered {
    explicit Closed(const Memory& m) : memory(m) {}
    [[nodiscard]] MutableBytes bytes() const override { return memory.region->bytes(); }
    [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device&) const override {
      return Status(Code::kInvalidArgument, "closed");
    }
    const Memory& memory;
  };
  Done sent;
  Length refused;
  link.send(sent, {link.source.range(0, kLarge)});
  link.receive(refused, {*Destination::of(std::make_shared<const Closed>(link.target), 0, kLarge)});
  REQUIRE(link.until([&] { return refused.done(); }));
  CHECK(refused.status().text() == "closed");
  CHECK_FALSE(sent.done());
  Length length;
  link.receive(length, {link.target.room(0, kLarge)});
  REQUIRE(link.until([&] { return length.done() && sent.done(); }));
  CHECK(sent.status.ok());
  CHECK(link.idle());
}

TEST_CASE("any order of sends, receives, cancels and times ends every one of them, with right bytes") {
  const std::uint64_t seed = test::setting("SLIME_TEST_SEED", kSeed);
  CAPTURE(seed);
  SimFixture sim(seed);
  Rng rng(seed);
  struct Sent {
    Done done;
    std::size_t offset = 0;
    std::size_t size = 0;
  };
  struct Received {
    Length length;
    std::shared_ptr<Memory> memory;
    std::size_t room = 0;
  };
  std::vector<std::unique_ptr<Sent>> sent;
  std::vector<std::unique_ptr<Received>> received;
  Ranges link(sim);
  for (int step = 0; step < 300; ++step) {
    const std::size_t size = rng.next() % 3 == 0 ? rng.next() % kLarge + 1 : rng.next() % 3000 + 1;
    const Nanos within = rng.next() % 4 == 0 ? Nanos(100us) : Nanos(5s);
    Ticket ticket;
    const bool sends = rng.next() % 2 == 0;
    if (sends) {
      Sent& each = *sent.emplace_back(std::make_unique<Sent>());
      each.offset = rng.next() % kLarge;
      each.size = size;
      const std::size_t half = size / 2;
      ticket = link.send(
          each.done,
          {link.source.range(each.offset, half), link.source.range(each.offset + half, size - half)}, within);
    } else {
      Received& each = *received.emplace_back(std::make_unique<Received>());
      each.room = rng.next() % 4 == 0 ? size : kLarge;
      each.memory = std::make_shared<Memory>(sim, 1, kLarge, Rights::kLocal);
      ticket = link.receive(each.length, {each.memory->room(0, each.room)}, within);
    }
    if (rng.next() % 8 == 0) (sends ? link.a() : link.b()).cancel(ticket);
    if (rng.next() % 4 == 0) sim.settle();
  }
  // Sends and receives without a partner end at their deadlines.
  REQUIRE(link.until([&] {
    return std::all_of(sent.begin(), sent.end(), [](const auto& each) { return each->done.done(); }) &&
           std::all_of(received.begin(), received.end(),
                       [](const auto& each) { return each->length.done(); });
  }));
  // A message that its receive gave up while it was read may come behind later ones.
  std::vector<bool> taken(sent.size());
  std::size_t count = 0;
  for (const auto& each : received) {
    CHECK(each->length.calls == 1);
    if (!each->length.value->has_value()) continue;
    ++count;
    const Bytes got = each->memory->bytes().first(**each->length.value);
    std::size_t i = 0;
    while (i < sent.size() && (taken[i] || sent[i]->size != got.size() ||
                               !same(got, link.source.bytes().subspan(sent[i]->offset, got.size()))))
      ++i;
    REQUIRE_MESSAGE(i < sent.size(), "a message that was not sent");
    taken[i] = true;
    CHECK(test::all_are(each->memory->bytes().subspan(got.size()), std::byte{0}));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) CHECK((taken[i] || !sent[i]->done.status.ok()));
  CHECK(count > 10);
  for (const auto& each : sent) CHECK(each->done.calls == 1);
  CHECK(link.idle());
}

}  // namespace channel_ranges_test
