#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/support/settings.h"
#include "tests/transport/tcp_host.h"
#include "transport/tcp/tcp_wire.h"

namespace slime::transport::testing {
namespace {

using tcp::TcpWire;

// A wire on one end of a loopback connection, a plain socket on the other, and the engine's place
// between.
struct WireTest final : WireHandler {
  explicit WireTest(const Clock& clock = steady_clock(), Nanos outage = limits::kOutageTolerated) {
    auto made = Loop::create({.clock = &clock});
    REQUIRE(made.has_value());
    loop = *made;
    auto any = SocketAddress::numeric({"127.0.0.1", 0});
    REQUIRE(any.has_value());
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener.get(), any->data(), any->length()) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    auto address = SocketAddress::of_socket(listener.get());
    REQUIRE(address.has_value());
    other = std::make_unique<RawClient>(address->to_string());
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    REQUIRE(socket.valid());
    twin = UniqueFd(::dup(socket.get()));
    auto created = TcpWire::create(*loop, std::move(socket), outage);
    REQUIRE_MESSAGE(created.has_value(), created.status().to_string());
    wire = std::move(*created);
    wire->start(*this);
  }

  void on_readable() noexcept override {
    ++readable;
    if (!reads || end) return;
    std::array<char, 1000> a;
    std::array<char, 3000> b;
    const iovec parts[] = {{a.data(), a.size()}, {b.data(), b.size()}};
    const auto got = wire->read(parts);
    if (!got) {
      end = std::make_unique<Status>(got.error());
      return;
    }
    received.append(a.data(), std::min(*got, a.size()));
    if (*got > a.size()) received.append(b.data(), *got - a.size());
  }
  void on_writable() noexcept override { ++writable; }
  void on_broken(Status reason) noexcept override { broken = std::make_unique<Status>(std::move(reason)); }

  template <class F>
  bool until(F done) {
    const TimePoint deadline = steady_clock().now() + std::chrono::seconds(20);
    while (!done()) {
      if (steady_clock().now() >= deadline) return false;
      loop->poll(std::chrono::milliseconds(1));
    }
    return true;
  }
  std::size_t write(Bytes bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const auto taken = wire->write(std::span(&part, 1));
    REQUIRE_MESSAGE(taken.has_value(), taken.status().to_string());
    return *taken;
  }
  [[nodiscard]] int option(int level, int name) const {
    int value = -1;
    socklen_t length = sizeof value;
    REQUIRE(::getsockopt(twin.get(), level, name, &value, &length) == 0);
    return value;
  }
  // Closes the other end with a reset.
  void reset_other() {
    const linger now{1, 0};
    REQUIRE(::setsockopt(other->fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    other.reset();
  }

  std::shared_ptr<Loop> loop;
  std::unique_ptr<RawClient> other;
  UniqueFd twin;  // the same socket, for its options
  std::unique_ptr<TcpWire> wire;
  bool reads = true;
  int readable = 0;
  int writable = 0;
  std::string received;
  std::unique_ptr<Status> end;
  std::unique_ptr<Status> broken;
};

TEST_CASE("everything that came before the end of the stream is read, then the end") {
  WireTest t;
  const std::string text(100'000, 'x');
  REQUIRE(t.other->send(as_bytes(text)) == 100'000);
  t.other.reset();
  REQUIRE(t.until([&] { return t.end != nullptr; }));
  CHECK(t.received == text);
  CHECK(t.end->code() == Code::kUnavailable);
  // The end was told once, and nothing spins on the dead socket.
  for (int i = 0; i < 5; ++i) CHECK_FALSE(t.loop->poll(Nanos::zero()));
  CHECK(t.broken == nullptr);
}

TEST_CASE("a reset is told to an engine that has nothing to read") {
  WireTest t;
  t.reads = false;
  t.reset_other();
  REQUIRE(t.until([&] { return t.broken != nullptr; }));
  CHECK(t.broken->code() == Code::kUnavailable);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(t.loop->poll(Nanos::zero()));
}

TEST_CASE("writing to a peer that is gone does not lose what it said before") {
  WireTest t;
  REQUIRE(t.other->send(as_bytes("last words")) == 10);
  t.other.reset();
  // The first write provokes the reset, a later one meets it. Full is the answer, not an error.
  const ByteVector data(1000);
  const TimePoint deadline = steady_clock().now() + std::chrono::seconds(20);
  while (t.write(data) > 0) REQUIRE(steady_clock().now() < deadline);
  t.wire->want_write(true);
  REQUIRE(t.until([&] { return t.end != nullptr; }));
  CHECK(t.received == "last words");
  CHECK(t.end->code() == Code::kUnavailable);
}

TEST_CASE("a full socket takes part, says so, and tells when there is room") {
  WireTest t;
  const ByteVector data = [] {
    ByteVector out(64 << 20);
    Rng(7).fill(out);
    return out;
  }();
  std::size_t sent = 0;
  while (const std::size_t n = t.write(Bytes(data).subspan(sent))) sent += n;
  CHECK(sent > 0);
  REQUIRE(sent < data.size());
  for (int i = 0; i < 5; ++i) t.loop->poll(Nanos::zero());
  CHECK(t.writable == 0);  // not asked for
  t.wire->want_write(true);
  for (int i = 0; i < 5; ++i) t.loop->poll(Nanos::zero());
  CHECK(t.writable == 0);
  CHECK(t.until([&] {
    t.other->read();
    return t.writable > 0;
  }));
  t.wire->want_write(false);
  CHECK(t.until([&] {
    if (sent < data.size()) sent += t.write(Bytes(data).subspan(sent));
    t.other->read();
    return t.other->received.size() == data.size();
  }));
  CHECK(as_bytes(t.other->received).size() == data.size());
  CHECK(std::equal(data.begin(), data.end(), as_bytes(t.other->received).begin()));
}

TEST_CASE("more parts than one call takes are a prefix, not an error") {
  WireTest t;
  std::string text(limits::kPackedPart + 1, 'a');
  text.back() = 'z';
  const std::vector<iovec> parts(5000, iovec{text.data(), text.size()});
  const auto taken = t.wire->write(parts);
  REQUIRE(taken.has_value());
  CHECK(*taken > 0);
  CHECK(*taken < parts.size() * text.size());
  CHECK(t.until([&] {
    t.other->read();
    return t.other->received.size() == *taken;
  }));
  CHECK(t.other->received.substr(0, 2 * text.size()) == text + text);
}

TEST_CASE("parts of any lengths arrive in order, whatever part of them the socket takes") {
  const auto seed = static_cast<std::uint64_t>(test::setting("SLIME_TEST_SEED", 11));
  MESSAGE("SLIME_TEST_SEED=", seed);
  Rng rng(seed);
  WireTest t;
  for (int round = 0; round < 20; ++round) {
    // More small parts than are packed, and large ones between them.
    std::vector<ByteVector> pieces(rng.below(900));
    ByteVector all;
    std::vector<iovec> parts;
    for (ByteVector& piece : pieces) {
      piece.resize(rng.below(rng.below(8) == 0 ? 3 * limits::kPackedPart : 1100));
      rng.fill(piece);
      all.insert(all.end(), piece.begin(), piece.end());
      parts.push_back({piece.data(), piece.size()});
    }
    t.other->received.clear();
    std::size_t sent = 0;
    CHECK(t.until([&] {
      // What the socket did not take is offered again, from any place in a part.
      std::vector<iovec> left;
      std::size_t skip = sent;
      for (const iovec& part : parts) {
        const std::size_t gone = std::min(skip, part.iov_len);
        skip -= gone;
        left.push_back({static_cast<std::byte*>(part.iov_base) + gone, part.iov_len - gone});
      }
      const auto taken = t.wire->write(left);
      REQUIRE(taken.has_value());
      sent += *taken;
      t.other->read();
      return t.other->received.size() == all.size();
    }));
    CHECK(sent == all.size());
    CHECK(std::equal(all.begin(), all.end(), as_bytes(t.other->received).begin()));
  }
}

TEST_CASE("nothing to read is no error, and reading into nothing is not the end") {
  WireTest t;
  char byte;
  const iovec part{&byte, 1};
  const iovec empty{&byte, 0};
  auto got = t.wire->read(std::span(&part, 1));
  REQUIRE(got.has_value());
  CHECK(*got == 0);
  got = t.wire->read(std::span(&empty, 1));
  REQUIRE(got.has_value());
  CHECK(*got == 0);
  got = t.wire->read({});
  REQUIRE(got.has_value());
  CHECK(*got == 0);
}

TEST_CASE("memory that cannot be read or written is an error of the call, and ends the wire") {
  WireTest t;
  const iovec nowhere{reinterpret_cast<void*>(16), 4096};
  CHECK_FALSE(t.wire->write(std::span(&nowhere, 1)).has_value());
}

TEST_CASE("keepalive is on while work waits, and a little longer") {
  ManualClock clock;
  WireTest t(clock);
  CHECK(t.option(IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 0);
  t.wire->set_waiting(true);
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(t.option(IPPROTO_TCP, TCP_KEEPIDLE) == 1);
  CHECK(t.option(IPPROTO_TCP, TCP_KEEPINTVL) == 1);
  CHECK(t.option(IPPROTO_TCP, TCP_KEEPCNT) == 6);
  t.wire->set_waiting(false);
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  clock.advance(limits::kKeepaliveLinger / 2);
  t.wire->set_waiting(true);
  t.wire->set_waiting(false);
  clock.advance(limits::kKeepaliveLinger / 2);
  t.loop->poll(Nanos::zero());
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 1);  // counted from the last work
  clock.advance(limits::kKeepaliveLinger);
  t.loop->poll(Nanos::zero());
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 0);
  CHECK(t.loop->next_timer() == kNever);
  t.wire->set_waiting(true);
  CHECK(t.option(SOL_SOCKET, SO_KEEPALIVE) == 1);
}

TEST_CASE("what was sent must be acknowledged in time while work waits, but a silent past kills nothing") {
  ManualClock clock;
  WireTest t(clock);
  const auto bound = [&] { return t.option(IPPROTO_TCP, TCP_USER_TIMEOUT); };
  const auto send = [&] {
    const iovec part{const_cast<char*>("x"), 1};
    REQUIRE(t.wire->write(std::span(&part, 1)).has_value());
  };
  const auto idle = [&] {
    t.wire->set_waiting(false);
    clock.advance(limits::kKeepaliveLinger);
    t.loop->poll(Nanos::zero());
  };
  clock.advance(std::chrono::hours(1));
  t.wire->set_waiting(true);
  CHECK(bound() == 0);  // with it, one lost probe would be the end: nothing came for an hour
  send();
  CHECK(bound() == 7000);
  idle();
  CHECK(bound() == 0);
  send();
  CHECK(bound() == 0);
  t.wire->set_waiting(true);
  CHECK(bound() == 7000);  // it may not be acknowledged yet
  idle();
  clock.advance(limits::kKeepaliveRecent);
  t.wire->set_waiting(true);
  CHECK(bound() == 0);
}

TEST_CASE("the outage tolerated sets keepalive, the user timeout and the pause of retransmissions") {
  constexpr int kLongestPause = 44;  // TCP_RTO_MAX_MS, of Linux 6.15
  for (const auto& [tolerated, interval, probes, silent] :
       {std::array{1, 1, 2, 3'000}, std::array{30, 1, 31, 32'000}, std::array{600, 10, 61, 620'000}}) {
    const int outage = tolerated;  // clang 14 captures no part of an array
    CAPTURE(outage);
    ManualClock clock;
    WireTest t(clock, std::chrono::seconds(outage));
    int before = 0;
    socklen_t length = sizeof before;
    const bool bounds_pause = ::getsockopt(t.twin.get(), IPPROTO_TCP, kLongestPause, &before, &length) == 0;
    t.wire->set_waiting(true);
    t.write(as_bytes("x"));
    CHECK(t.option(IPPROTO_TCP, TCP_KEEPIDLE) == interval);
    CHECK(t.option(IPPROTO_TCP, TCP_KEEPINTVL) == interval);
    CHECK(t.option(IPPROTO_TCP, TCP_KEEPCNT) == probes);
    CHECK(t.option(IPPROTO_TCP, TCP_USER_TIMEOUT) == silent);
    if (bounds_pause) CHECK(t.option(IPPROTO_TCP, kLongestPause) == std::min(1000 * interval, before));
    t.wire->set_waiting(false);
    clock.advance(limits::kKeepaliveLinger);
    t.loop->poll(Nanos::zero());
    CHECK(t.option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
    if (bounds_pause) CHECK(t.option(IPPROTO_TCP, kLongestPause) == before);
  }
}

TEST_CASE("a wire says which connection it is") {
  WireTest t;
  const auto ours = SocketAddress::of_socket(t.twin.get());
  const auto theirs = SocketAddress::of_peer(t.twin.get());
  REQUIRE(ours.has_value());
  REQUIRE(theirs.has_value());
  CHECK(t.wire->describe() == "tcp " + ours->to_string() + " -> " + theirs->to_string());
}

TEST_CASE("a socket that is not connected makes no wire") {
  auto loop = Loop::create();
  REQUIRE(loop.has_value());
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(TcpWire::create(**loop, std::move(socket), limits::kOutageTolerated).has_value());
}

TEST_CASE("a connection that the peer has reset already makes a wire, which reads what came before that") {
  WireTest t;
  t.reads = false;
  REQUIRE(t.other->send(as_bytes("last words")) == 10);
  t.reset_other();
  REQUIRE(t.until([&] { return t.broken != nullptr; }));
  REQUIRE_FALSE(SocketAddress::of_peer(t.twin.get()).has_value());
  auto late = TcpWire::create(*t.loop, UniqueFd(::dup(t.twin.get())), limits::kOutageTolerated);
  REQUIRE_MESSAGE(late.has_value(), late.status().to_string());
  t.broken.reset();
  t.reads = true;
  t.wire = std::move(*late);
  t.wire->start(t);
  REQUIRE(t.until([&] { return t.end != nullptr || t.broken != nullptr; }));
  CHECK(t.received == "last words");
}

}  // namespace
}  // namespace slime::transport::testing
