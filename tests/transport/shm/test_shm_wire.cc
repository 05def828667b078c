// Two wires over one pair of rings, each on a loop that the test drives.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "transport/shm/hub.h"
#include "transport/shm/shm_wire.h"

namespace slime::transport::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Side final : WireHandler {
  Side() : loop(std::move(*Loop::create())), hub(std::move(*Hub::create(*loop))), ours(hub->expect()) {}
  ~Side() {
    wire.reset();
    hub.reset();
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void connect(const Side& other, UniqueFd socket, bool initiator) {
    auto made = ShmWire::create(hub, ours, other.ours, std::move(socket), initiator);
    REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
    wire = std::move(*made);
    wire->start(*this);
  }
  void on_readable() noexcept override {
    ByteVector bytes(64 * 1024);
    const iovec part{bytes.data(), bytes.size()};
    const auto got = wire->read(std::span(&part, 1));
    if (got)
      received.insert(received.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*got));
    else
      ended = std::make_unique<Status>(got.error());
  }
  void on_writable() noexcept override {
    ++writable;
    wire->want_write(false);
  }
  void on_broken(Status reason) noexcept override { ended = std::make_unique<Status>(std::move(reason)); }

  std::size_t write(std::size_t bytes, std::byte value = std::byte{7}) {
    ByteVector data(bytes, value);
    const iovec part{data.data(), data.size()};
    const auto taken = wire->write(std::span(&part, 1));
    REQUIRE(taken.has_value());
    return *taken;
  }
  // Until nothing more is taken.
  std::size_t fill() {
    std::size_t all = 0;
    while (const std::size_t taken = write(64 * 1024)) all += taken;
    return all;
  }
  // Long enough to park the ring and to block.
  void rest() { loop->poll(milliseconds(2)); }

  std::shared_ptr<Loop> loop;
  std::shared_ptr<Hub> hub;
  const Parameters ours;
  std::unique_ptr<Wire> wire;
  ByteVector received;
  int writable = 0;
  std::unique_ptr<Status> ended;
};

struct Pair {
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    a.connect(b, UniqueFd(fds[0]), true);
    b.connect(a, UniqueFd(fds[1]), false);
    REQUIRE(until([&] { return a.write(1) == 1; }));
    REQUIRE(until([&] { return b.received.size() == 1; }));
    b.received.clear();
  }
  template <class F>
  bool until(F done) {
    const TimePoint end = steady_clock().now() + seconds(20);
    while (!done()) {
      if (steady_clock().now() >= end) return false;
      a.loop->poll(Nanos::zero());
      b.loop->poll(Nanos::zero());
    }
    return true;
  }
  Side a;
  Side b;
};

TEST_CASE("what one side writes the other one reads, in both directions") {
  Pair pair;
  CHECK(pair.a.write(1000, std::byte{1}) == 1000);
  CHECK(pair.b.write(3000, std::byte{2}) == 3000);
  REQUIRE(pair.until([&] { return pair.a.received.size() == 3000 && pair.b.received.size() == 1000; }));
  CHECK(pair.b.received == ByteVector(1000, std::byte{1}));
  CHECK(pair.a.received == ByteVector(3000, std::byte{2}));
}

TEST_CASE("a side that sleeps is woken by the first byte") {
  Pair pair;
  // Both park their rings; then one blocks while the other one writes.
  pair.a.rest();
  pair.b.rest();
  std::thread writer([&] { CHECK(pair.a.write(100) == 100); });
  const TimePoint end = steady_clock().now() + seconds(20);
  while (pair.b.received.size() < 100 && steady_clock().now() < end) pair.b.loop->poll(seconds(1));
  writer.join();
  CHECK(pair.b.received.size() == 100);
}

TEST_CASE("a side that parks between two writes hears of the second by the writer's next look") {
  Pair pair;
  const auto read_by_b = [&](std::size_t bytes) {
    const TimePoint end = steady_clock().now() + seconds(20);
    while (pair.b.received.size() < bytes && steady_clock().now() < end) pair.b.loop->poll(Nanos::zero());
    return pair.b.received.size() == bytes;
  };
  CHECK(pair.a.write(10) == 10);
  REQUIRE(read_by_b(10));
  pair.b.rest();
  CHECK(pair.a.write(20) == 20);
  pair.a.loop->poll(Nanos::zero());
  CHECK(read_by_b(30));
}

TEST_CASE("a wire that goes with something untold leaves nothing behind") {
  Pair pair;
  CHECK(pair.a.write(10) == 10);
  CHECK(pair.a.write(20) == 20);
  pair.a.wire.reset();
  pair.a.loop->poll(Nanos::zero());
  REQUIRE(pair.until([&] { return pair.b.ended != nullptr; }));
  CHECK(pair.b.received.size() == 30);
}

TEST_CASE("room that came before anybody looked is found, although the ring was parked") {
  Pair pair;
  pair.a.rest();  // parked: the reader does not look at the ring
  const std::size_t written = pair.a.fill();
  pair.a.wire->want_write(true);
  const TimePoint end = steady_clock().now() + seconds(20);
  while (pair.b.received.size() < written && steady_clock().now() < end) pair.b.loop->poll(Nanos::zero());
  REQUIRE(pair.b.received.size() == written);
  for (int i = 0; i < 10; ++i) pair.a.rest();
  CHECK(pair.a.writable == 1);
}

TEST_CASE("a writer that sleeps because the ring is full is woken by room") {
  Pair pair;
  const std::size_t written = pair.a.fill();
  pair.a.wire->want_write(true);
  pair.a.rest();  // parked and asleep, asking for room
  CHECK(pair.a.writable == 0);
  std::thread reader([&] {
    const TimePoint end = steady_clock().now() + seconds(20);
    while (pair.b.received.size() < written && steady_clock().now() < end) pair.b.rest();
  });
  const TimePoint end = steady_clock().now() + seconds(20);
  while (pair.a.writable == 0 && steady_clock().now() < end) pair.a.loop->poll(seconds(1));
  reader.join();
  CHECK(pair.a.writable == 1);
  CHECK(pair.b.received.size() == written);
}

TEST_CASE("what a side wrote before it went is read, then the end is told") {
  Pair pair;
  CHECK(pair.a.write(5000) == 5000);
  pair.a.wire.reset();
  REQUIRE(pair.until([&] { return pair.b.ended != nullptr; }));
  CHECK(pair.b.received.size() == 5000);
  CHECK(pair.b.ended->code() == Code::kUnavailable);
  CHECK(pair.b.write(1) == 0);  // the reading side has told the end
}

TEST_CASE("a side that sleeps learns of the end of the other one") {
  Pair pair;
  pair.b.rest();
  pair.a.wire.reset();
  const TimePoint end = steady_clock().now() + seconds(20);
  while (pair.b.ended == nullptr && steady_clock().now() < end) pair.b.loop->poll(seconds(1));
  REQUIRE(pair.b.ended != nullptr);
  CHECK(pair.b.ended->code() == Code::kUnavailable);
}

// One port with as many peers, each on a loop of its own.
struct Crowd {
  // The server's end of one wire.
  struct Far final : WireHandler {
    void on_readable() noexcept override {
      std::byte bytes[256];
      const iovec part{bytes, sizeof bytes};
      if (const auto got = wire->read(std::span(&part, 1))) received += *got;
    }
    void on_writable() noexcept override {
      ++writable;
      wire->want_write(false);
    }
    void on_broken(Status) noexcept override {}
    std::unique_ptr<Wire> wire;
    std::size_t received = 0;
    int writable = 0;
  };
  struct Client {
    Side side;
    Far far;
    Parameters cookie;
  };

  explicit Crowd(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto client = std::make_unique<Client>();
      client->cookie = server.hub->expect();
      int fds[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
      auto near =
          ShmWire::create(client->side.hub, client->side.ours, client->cookie, UniqueFd(fds[0]), true);
      auto far = ShmWire::create(server.hub, client->cookie, client->side.ours, UniqueFd(fds[1]), false);
      REQUIRE(near.has_value());
      REQUIRE(far.has_value());
      client->side.wire = std::move(*near);
      client->far.wire = std::move(*far);
      client->side.wire->start(client->side);
      client->far.wire->start(client->far);
      clients.push_back(std::move(client));
    }
  }
  ~Crowd() {
    for (auto& client : clients) client->far.wire.reset();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // The server's loop never blocks meanwhile.
  template <class F>
  bool until(F done) {
    const TimePoint end = steady_clock().now() + seconds(20);
    while (!done()) {
      if (steady_clock().now() >= end) return false;
      server.loop->poll(Nanos::zero());
      for (auto& client : clients) client->side.loop->poll(Nanos::zero());
    }
    return true;
  }

  Side server;
  std::vector<std::unique_ptr<Client>> clients;
};

TEST_CASE("more wires than a port looks at all move their bytes") {
  Crowd crowd(3 * limits::kShmWatched);
  for (std::size_t round = 1; round <= 20; ++round) {
    for (auto& client : crowd.clients) REQUIRE(crowd.until([&] { return client->side.write(10) == 10; }));
    REQUIRE(crowd.until([&] {
      return std::all_of(crowd.clients.begin(), crowd.clients.end(),
                         [&](const auto& client) { return client->far.received == round * 10; });
    }));
  }
}

TEST_CASE("a writer that waits for room hears of it, although its port never rests and looks at others") {
  Crowd crowd(limits::kShmWatched + 1);
  for (auto& client : crowd.clients) REQUIRE(crowd.until([&] { return client->side.write(10) == 10; }));
  Crowd::Client& slow = *crowd.clients.front();
  REQUIRE(crowd.until([&] { return slow.far.received == 10; }));
  ByteVector data(64 * 1024);
  const iovec part{data.data(), data.size()};
  std::size_t written = 0;
  for (std::size_t taken = 1; taken > 0; written += taken) {
    const auto now = slow.far.wire->write(std::span(&part, 1));
    REQUIRE(now.has_value());
    taken = *now;
  }
  slow.far.wire->want_write(true);
  // The others keep the port busy, in each of its turns, and the slow one does not read.
  const auto busy_turn = [&] {
    for (std::size_t i = 1; i < crowd.clients.size(); ++i) crowd.clients[i]->side.write(10);
    crowd.server.loop->poll(Nanos::zero());
  };
  for (int turn = 0; turn < 100; ++turn) busy_turn();
  CHECK(slow.far.writable == 0);
  const TimePoint end = steady_clock().now() + seconds(20);
  while (slow.side.received.size() < written && steady_clock().now() < end)
    slow.side.loop->poll(Nanos::zero());
  REQUIRE(slow.side.received.size() == written);
  for (int turn = 0; turn < 100; ++turn) {
    slow.side.loop->poll(Nanos::zero());
    busy_turn();
  }
  CHECK(slow.far.writable == 1);
}

}  // namespace
}  // namespace slime::transport::shm
