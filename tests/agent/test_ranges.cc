// Messages from registered memory, and into it.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "agent/endpoint.h"
#include "tests/agent/agents.h"

namespace slime::ranges_test {
namespace {

using namespace slime::test;

constexpr std::size_t kLarge = 3 << 20;

// Two agents on one connection; `there` is b as a sees it, `here` is a as b sees it.
struct Ends {
  Ends()
      : source(take(a->allocate(kLarge, Rights::kRemoteRead))),
        target(take(b->allocate(kLarge, Rights::kLocal))) {
    REQUIRE(there.connect(kSoon).wait().has_value());
    for (std::size_t i = 0; i < kLarge; ++i) source.data()[i] = static_cast<std::byte>(i * 7 % 251);
  }
  [[nodiscard]] bool same(std::size_t at, std::size_t from, std::size_t length) const {
    return std::memcmp(target.data() + at, source.data() + from, length) == 0;
  }
  std::unique_ptr<PeerAgent> a = start("a");
  std::unique_ptr<PeerAgent> b = start("b");
  Peer there = a->peer(b->address());
  Peer here = b->peer("a");
  MemoryRegion source;
  MemoryRegion target;
};

}  // namespace

TEST_CASE("one range goes from registered memory into registered memory") {
  Ends ends;
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, kLarge}) {
    Future<std::uint64_t> length = ends.here.recv_into(3, take(into(ends.target, 0, size)), kSoon);
    Future<None> sent = ends.there.sendv(3, {take(attach(ends.source, 0, size))}, kSoon);
    CHECK(take(length.wait()) == size);
    CHECK(sent.wait().has_value());
    CHECK(ends.same(0, 0, size));
  }
}

TEST_CASE("several ranges are one message, into other ranges") {
  Ends ends;
  Future<None> sent =
      ends.there.sendv(3, {take(attach(ends.source, 100, 200'000)), take(attach(ends.source, 0, 50))}, kSoon);
  Future<std::uint64_t> length = ends.here.recvv(
      3, {take(into(ends.target, 7, 60)), take(into(ends.target, 1000, kLarge - 1000))}, kSoon);
  CHECK(take(length.wait()) == 200'050);
  CHECK(sent.wait().has_value());
  CHECK(ends.same(7, 100, 60));
  CHECK(ends.same(1000, 160, 200'000 - 60));
  CHECK(ends.same(1000 + 200'000 - 60, 0, 50));
}

TEST_CASE("a message that is longer than its target is an error with both lengths, at both ends") {
  Ends ends;
  Future<std::uint64_t> length = ends.here.recv_into(3, take(into(ends.target, 0, kLarge - 1)), kSoon);
  Future<None> sent = ends.there.sendv(3, {take(attach(ends.source))}, kSoon);
  const std::string text =
      str("the message has ", kLarge, " bytes, and the receive has room for ", kLarge - 1);
  for (const Status& status : {length.wait().status(), sent.wait().status()}) {
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find(text) != std::string::npos);
  }
  CHECK(ends.target.data()[0] == std::byte{0});

  REQUIRE(ends.there.send(3, as_bytes("copied"), kSoon).wait().has_value());
  CHECK(code_of(ends.here.recv_into(3, take(into(ends.target, 0, 5)), kSoon).wait()) ==
        Code::kInvalidArgument);
  CHECK(take(ends.here.recv_into(3, take(into(ends.target, 0, 6)), kSoon).wait()) == 6);
  CHECK(std::memcmp(ends.target.data(), "copied", 6) == 0);
}

TEST_CASE("a send that no receive takes ends at its timeout, and its message is gone") {
  Ends ends;
  CHECK(code_of(ends.there.sendv(3, {take(attach(ends.source))}, milliseconds(50)).wait()) ==
        Code::kDeadlineExceeded);
  REQUIRE(ends.there.send(3, as_bytes("next"), kSoon).wait().has_value());
  CHECK(as_text(take(ends.here.recv(3, kSoon).wait()).bytes()) == "next");
}

TEST_CASE("a message that waits holds no memory of the peer, and a receive gets it as bytes, too") {
  Ends ends;
  Future<None> sent = ends.there.sendv(3, {take(attach(ends.source))}, kSoon);
  REQUIRE(ends.there.send(4, as_bytes("marker"), kSoon).wait().has_value());
  CHECK(value_of(ends.here.info().counters, "pulled_bytes") == 0);
  const Payload got = take(ends.here.recv(3, kSoon).wait());
  CHECK(sent.wait().has_value());
  REQUIRE(got.bytes().size() == kLarge);
  CHECK(std::memcmp(got.bytes().data(), ends.source.data(), kLarge) == 0);
}

TEST_CASE("memory that peers may not read is not sent, and a closed region neither") {
  Ends ends;
  const auto local = take(ends.a->allocate(100'000, Rights::kLocal));
  CHECK(code_of(ends.there.sendv(3, {take(attach(local))}, kSoon).wait()) == Code::kPermissionDenied);
  const Attachment closed = take(attach(ends.source));
  REQUIRE(ends.source.close().ok());
  CHECK(code_of(ends.there.sendv(3, {closed}, kSoon).wait()) == Code::kInvalidArgument);
}

TEST_CASE("a peer that goes ends sends and receives of ranges") {
  Ends ends;
  Future<None> sent = ends.there.sendv(3, {take(attach(ends.source))}, kSoon);
  Future<std::uint64_t> length =
      ends.there.of_connection(kSoon)->recv_into(4, take(into(ends.source, 0, 10)), kSoon);
  REQUIRE(ends.b->close(milliseconds(100)).code() != Code::kInvalidArgument);
  CHECK(code_of(sent.wait()) == Code::kUnavailable);
  CHECK(code_of(length.wait()) == Code::kUnavailable);
}

TEST_CASE("an agent sends ranges to itself") {
  auto self = start("self");
  const auto memory = take(self->allocate(2 * kLarge, Rights::kRemoteRead));
  std::memset(memory.data(), 9, kLarge);
  Peer peer = self->peer(self->address());
  Future<std::uint64_t> length = peer.recv_into(1, take(into(memory, kLarge, kLarge)), kSoon);
  CHECK(peer.sendv(1, {take(attach(memory, 0, kLarge))}, kSoon).wait().has_value());
  CHECK(take(length.wait()) == kLarge);
  CHECK(memory.data()[2 * kLarge - 1] == std::byte{9});
}

}  // namespace slime::ranges_test
