#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/str.h"
#include "rpc/codec/body_pool.h"
#include "rpc/codec/received.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/support/sanitizers.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

TEST_CASE("payloads of any size come back as they were: around the slot, and beyond a read") {
  SimFixture sim(kSeed);
  Link link(sim);
  const std::size_t slot = link.a().endpoint().max_message_bytes();
  const std::size_t sizes[] = {0,         1,        slot - 200, slot - 100, slot - 32,
                               slot - 31, slot - 1, slot,       slot + 1,   1 << 20};
  for (const std::size_t size : sizes) {
    CAPTURE(size);
    const ByteVector body = pattern(size);
    const auto reply = link.call_raw("test", "raw", body);
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(Bytes(body).size() == reply->bytes().size());
    CHECK(std::equal(body.begin(), body.end(), reply->bytes().begin()));
  }
  CHECK(link.a().counters().rendezvous > 0);
  CHECK(link.b().counters().rendezvous > 0);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.b().counters().lent_buffers == 0);
}

TEST_CASE("a payload larger than one read is pulled in pieces") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector body = pattern(rpc::limits::kPullBytes + rpc::limits::kPullRestBytes + 12345);
  const auto reply = link.call_raw("test", "raw", body, 10min);
  REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
  CHECK(std::equal(body.begin(), body.end(), reply->bytes().begin(), reply->bytes().end()));
  CHECK(link.a().endpoint().counters().reads == 2);
  CHECK(link.b().endpoint().counters().reads == 2);
}

TEST_CASE("a body of one read and a short rest takes one read") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(rpc::limits::kPullBytes);  // and what encoding adds
  CHECK(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
  CHECK(link.a().endpoint().counters().reads == 1);
  CHECK(link.b().endpoint().counters().reads == 1);
}

TEST_CASE("a typed call with a large argument and result") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(300'000);
  CHECK(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
}

TEST_CASE("many large calls at once, more than are read at once") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<std::unique_ptr<Reply>> replies;
  for (std::size_t i = 0; i < 3 * rpc::limits::kMaxActivePulls; ++i) {
    replies.push_back(std::make_unique<Reply>());
    Channel& channel = i % 2 == 0 ? link.a() : link.b();
    channel.call({"test", "raw", link.in(20s)}, pattern(50'000 + i, i), replies.back()->handler());
  }
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const auto& reply = *replies[i]->value;
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    const ByteVector expected = pattern(50'000 + i, i);
    CHECK(std::equal(expected.begin(), expected.end(), reply->bytes().begin(), reply->bytes().end()));
  }
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("memory of large bodies is kept for the next: what was encoded, and what was read") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(300'000);
  REQUIRE(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(kept_body_bytes() >= bytes.size());
  CHECK(kept_received_bytes() >= bytes.size());
  ByteVector first = take_body(bytes.size());
  const std::byte* const memory = first.data();
  CHECK(first.empty());
  give_body(std::move(first));
  CHECK(take_body(bytes.size()).data() == memory);
}

TEST_CASE("a large body that the pool has not made is not kept") {
  const std::uint64_t kept = kept_body_bytes();
  give_body(ByteVector(300'000));
  CHECK(kept_body_bytes() == kept);
}

TEST_CASE("a body for a payload serves for the payload with what encoding adds") {
  ByteVector first = take_body(7 << 20);
  const std::byte* const memory = first.data();
  give_body(std::move(first));
  CHECK(take_body((7 << 20) + 32).data() == memory);
}

TEST_CASE("memory that is kept for large bodies stays while calls use it, and goes once they pause") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(3'000'000);
  const auto call = [&] {
    REQUIRE(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
    REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  };
  for (int i = 0; i < 5; ++i) {
    call();
    CHECK(kept_body_bytes() >= bytes.size());
    CHECK(kept_received_bytes() >= bytes.size());
    sim.pass(rpc::limits::kBlocksIdle / 2);
  }
  call();
  sim.pass(2 * rpc::limits::kBlocksIdle + 1s);
  CHECK(kept_body_bytes() == 0);
  CHECK(kept_received_bytes() == 0);
  call();
}

TEST_CASE("memory that a user keeps for longer than calls pause goes once it is dropped") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(300'000);
  REQUIRE(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
  Received held = make_received(4 << 20);
  sim.pass(5 * rpc::limits::kBlocksIdle);
  CHECK(kept_received_bytes() == 0);
  held = {};
  CHECK(kept_received_bytes() >= 4 << 20);
  sim.pass(3 * rpc::limits::kBlocksIdle + 1s);
  CHECK(kept_received_bytes() == 0);
}

TEST_CASE("kept memory goes also when the connection ends that used it first") {
  const ByteVector bytes = pattern(300'000);
  {
    SimFixture sim(kSeed);
    Link first(sim);
    REQUIRE(value_of<ByteVector>(first.call("echo", bytes)) == bytes);
    sim.pass(rpc::limits::kBlocksIdle + 1s);
    CHECK(kept_body_bytes() >= bytes.size());
  }
  SimFixture sim(kSeed);
  Link second(sim);
  REQUIRE(value_of<ByteVector>(second.call("echo", bytes)) == bytes);
  sim.pass(2 * rpc::limits::kBlocksIdle + 1s);
  CHECK(kept_body_bytes() == 0);
  CHECK(kept_received_bytes() == 0);
}

TEST_CASE("free_pages() gives pages back that malloc would keep") {
  if (kSanitized) return;  // the sanitizers have a malloc of their own
  constexpr std::size_t kSize = 8 << 20;
  // Lets malloc take later bodies from its heap, and keep them when they are freed.
  for (int i = 0; i < 2; ++i) static_cast<void>(std::make_unique<ByteVector>(30 << 20));
  ByteVector first(kSize, std::byte{1});
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const begin = first.data();
  std::byte* const inside = begin + (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
  free_pages(std::move(first));
  std::vector<unsigned char> pages((kSize - page) / page);
  // An error means that the memory is not even mapped.
  if (::mincore(inside, pages.size() * page, pages.data()) != 0) return;
  const auto resident =
      std::count_if(pages.begin(), pages.end(), [](unsigned char each) { return (each & 1) != 0; });
  CHECK(resident <= 2);  // those at the edges
}

TEST_CASE("of large bodies no more than the bound is kept") {
  constexpr std::size_t kSize = 1 << 20;
  std::vector<ByteVector> bodies;
  for (std::size_t i = 0; i <= rpc::limits::kLargeBodiesBytes / kSize; ++i)
    bodies.push_back(take_body(kSize));
  for (ByteVector& body : bodies) give_body(std::move(body));
  const std::uint64_t kept = kept_body_bytes();
  CHECK(kept > rpc::limits::kLargeBodiesBytes - 2 * kSize);
  CHECK(kept <= rpc::limits::kLargeBodiesBytes);
  ByteVector larger;
  larger.reserve(rpc::limits::kLargeBodiesBytes + 1);
  give_body(std::move(larger));  // drives nothing out
  CHECK(kept_body_bytes() == kept);
}

TEST_CASE("a payload beyond the peer's limit is refused here, a reply beyond ours there") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.a.max_payload_bytes = 20'000;
  options.b.max_payload_bytes = 50'000;
  Link link(sim, options);
  const Status request = link.call_raw("test", "raw", pattern(50'001)).status();
  CHECK(request.code() == Code::kInvalidArgument);
  CHECK(!request.maybe_executed());
  const Status reply = link.call_raw("test", "raw", pattern(40'000)).status();
  CHECK(reply.code() == Code::kInvalidArgument);
  CHECK(reply.text().find("the reply") == 0);
  CHECK(reply.maybe_executed());
  CHECK(link.call_raw("test", "raw", pattern(20'000)).has_value());
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("payloads under way together stay below the limit of one") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_payload_bytes = 100'000;
  Link link(sim, options);
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < 3; ++i) {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"test", "raw", link.in(20s)}, pattern(60'000), replies.back()->handler());
  }
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  int good = 0;
  for (const auto& reply : replies) {
    if (reply->value->has_value()) {
      ++good;
    } else {
      CHECK(reply->status().code() == Code::kResourceExhausted);
      CHECK(!reply->status().maybe_executed());
    }
  }
  CHECK(good >= 1);
  CHECK(good < 3);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("lent memory comes back only when the peer is done, also after a timeout") {
  SimFixture sim(kSeed);
  Link link(sim);
  sim.freeze_b(link.pair);
  Reply reply;
  link.a().call({"test", "raw", link.in(1s)}, pattern(100'000), reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  CHECK(link.a().counters().lent_buffers == 1);
  sim.pass(5s);
  CHECK(link.a().counters().lent_buffers == 1);
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.a().counters().stale_replies == 1);
}

TEST_CASE("a cancelled call gives its memory back when the peer has read it") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  const auto ticket = link.a().call({"test", "raw", link.in(20s)}, pattern(100'000), reply.handler());
  link.a().cancel(ticket);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kCancelled);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().stale_replies == 1);
  CHECK(link.b().counters().lent_buffers == 0);
}

TEST_CASE("a large reply that comes too late is released") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  link.a().call({"test", "hold", link.in(1s)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  link.held[0].reply(pattern(100'000));
  REQUIRE(link.until([&] { return link.a().counters().stale_replies == 1; }));
  REQUIRE(link.until([&] { return link.b().idle(); }));
}

TEST_CASE("a deadline in the middle of reading a large reply ends the call, and the read goes on") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  const auto ticket = link.a().call({"test", "hold", link.in(60s)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.held[0].reply(pattern(4 << 20));
  REQUIRE(link.until([&] { return link.a().endpoint().counters().reads == 1; }));
  link.a().cancel(ticket);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kCancelled);
  CHECK(link.b().counters().lent_buffers == 1);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().stale_replies == 1);
  CHECK(reply.calls == 1);
}

TEST_CASE("a call that is cancelled in our queue takes its memory along") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(1, 1));
  sim.freeze_b(link.pair);
  Done ping;
  Reply reply;
  link.a().ping(link.in(20s), ping.handler());
  const auto ticket = link.a().call({"test", "raw", link.in(20s)}, pattern(100'000), reply.handler());
  CHECK(link.a().counters().lent_buffers == 1);
  const std::size_t queued = link.a().counters().queued_frames;
  link.a().cancel(ticket);
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.a().counters().queued_frames == queued - 1);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(!reply.status().maybe_executed());
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return ping.done(); }));
  CHECK(link.b().counters().requests == 0);
}

TEST_CASE("names that fill the slot: a large payload that cannot be offered is refused") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.port.slot_bytes = 256;
  Link link(sim, options);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  CHECK(link.call_raw("test", "raw", pattern(100'000)).has_value());
  const Status refused = link.call_raw(std::string(200, 's'), "m", pattern(100)).status();
  CHECK(refused.code() == Code::kInvalidArgument);
  CHECK(!refused.maybe_executed());
  // A long error is cut to what the slot has room for.
  const Status failed = link.call("fail", 3, std::string(600, 'x')).status();
  CHECK(failed.code() == Code::kAlreadyExists);
  CHECK(failed.text() == std::string(256 - 32, 'x'));
}
