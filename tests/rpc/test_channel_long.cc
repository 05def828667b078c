// Bodies of requests and replies that travel in long messages, where the wire takes them: without a
// read of the peer's memory, within the credits, and never in the way of small calls.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "rpc/server/budget.h"
#include "tests/rpc/forger.h"
#include "tests/rpc/server_caller.h"
#include "tests/support/eventually.h"
#include "tests/transport/socket_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kLarge = 64 << 10;
constexpr std::size_t kLargest = 256 << 10;

SimFixture long_sim() { return SimFixture(transport::sim::SimOptions{.seed = kSeed, .long_messages = true}); }

std::uint64_t reads(Link& link) {
  return link.a().endpoint().counters().reads + link.b().endpoint().counters().reads;
}
std::uint64_t lent(Link& link) { return link.a().counters().rendezvous + link.b().counters().rendezvous; }

// Makes calls of this size until one lends nothing: the peer gives more credits with each of the
// first ones.
void warm_up(Link& link, std::size_t size) {
  for (int i = 0; i < 12; ++i) {
    const std::uint64_t before = lent(link);
    REQUIRE(link.call_raw("test", "raw", pattern(size)).has_value());
    if (lent(link) == before) return;
  }
  FAIL("all calls lent their bodies");
}

void check_without_reads(Link& link, std::size_t size) {
  CAPTURE(size);
  warm_up(link, size);
  const std::uint64_t before = reads(link);
  const std::uint64_t lent_before = lent(link);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const ByteVector body = pattern(size, i);
    const auto reply = link.call_raw("test", "raw", body);
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(std::equal(body.begin(), body.end(), reply->bytes().begin(), reply->bytes().end()));
    CHECK(reinterpret_cast<std::uintptr_t>(reply->bytes().data()) % Service::kBytesAlignment == 0);
  }
  CHECK(reads(link) == before);
  CHECK(lent(link) == lent_before);
}

// Serves a method whose handler waits until the gate opens.
struct Slow {
  Gate gate;
  std::atomic<int> inside{0};
};
void serve_slow(Link& link, Slow& slow) {
  Service service("slow");
  REQUIRE(service
              .add_raw("wait",
                       [&slow](Request request) {
                         ++slow.inside;
                         slow.gate.pass();
                         request.reply(ByteVector());
                       })
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
}

// Waits for threads of the server, while the simulated time goes on slowly.
template <class F>
bool with_threads(SimFixture& sim, F done) {
  return test::eventually([&] {
    sim.pass(100us);
    return done();
  });
}

struct Calls {
  std::vector<std::unique_ptr<Reply>> replies;
  Ticket add(Link& link, std::string_view service, std::string_view method, std::size_t size,
             Nanos within = 20s) {
    replies.push_back(std::make_unique<Reply>());
    return link.a().call({service, method, link.in(within)}, pattern(size), replies.back()->handler());
  }
  [[nodiscard]] std::size_t done() const {
    return static_cast<std::size_t>(
        std::count_if(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); }));
  }
};

}  // namespace

TEST_CASE("calls of 64 and of 256 KiB read nothing of the peer's memory, both ways") {
  SimFixture sim = long_sim();
  Link link(sim);
  for (const std::size_t size : {std::size_t{16} << 10, kLarge, kLargest}) check_without_reads(link, size);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.a().counters().held_bytes + link.b().counters().held_bytes == 0);
}

TEST_CASE("sockets: over tcp calls of 64 and of 256 KiB read nothing of the peer's memory, both ways") {
  auto sockets = transport::testing::SocketFixture::of("tcp");
  Link link(*sockets);
  for (const std::size_t size : {std::size_t{16} << 10, kLarge, kLargest}) check_without_reads(link, size);
}

TEST_CASE("a body beyond the limit of a long message is lent and read") {
  SimFixture sim = long_sim();
  Link link(sim);
  warm_up(link, kLargest);
  const std::uint64_t before = lent(link);
  const ByteVector body = pattern(transport::limits::kLongMessageBytes);
  const auto reply = link.call_raw("test", "raw", body);
  REQUIRE(reply.has_value());
  CHECK(std::equal(body.begin(), body.end(), reply->bytes().begin(), reply->bytes().end()));
  CHECK(lent(link) == before + 2);
}

TEST_CASE("a body in a long message begins at an aligned address, whatever is in front of it") {
  SimFixture sim = long_sim();
  Link link(sim);
  warm_up(link, kLarge);
  Service service("bytes");
  std::vector<std::uintptr_t> addresses;
  for (const char* name : {"a", "bb", "ccc", "dddd", "eeeee"}) {
    REQUIRE(service
                .add_raw(name,
                         [&](Request request) {
                           addresses.push_back(reinterpret_cast<std::uintptr_t>(request.body().data()));
                           request.reply({request.body().begin(), request.body().end()});
                         },
                         {Run::kInline})
                .ok());
  }
  REQUIRE(link.servers[1]->add(service).ok());
  const std::uint64_t before = lent(link);
  // Each request names its method, which has another length.
  for (const char* name : {"a", "bb", "ccc", "dddd", "eeeee"}) {
    const ByteVector body = pattern(kLarge);
    const auto reply = link.call_raw("bytes", name, body);
    REQUIRE(reply.has_value());
    CHECK(std::equal(body.begin(), body.end(), reply->bytes().begin(), reply->bytes().end()));
  }
  CHECK(lent(link) == before);
  REQUIRE(addresses.size() == 5);
  for (const std::uintptr_t address : addresses) CHECK(address % Service::kBytesAlignment == 0);
}

TEST_CASE("large requests that wait for places hold half of the credits at most, and small calls go on") {
  SimFixture sim = long_sim();
  LinkOptions options;
  options.server.workers = 1;
  Slow slow;  // outlives the server, whose worker may be inside
  Link link(sim, options);
  serve_slow(link, slow);
  warm_up(link, kLargest);
  // As many credits as the peer gives: the first calls of this size made it give more.
  Calls calls;
  calls.add(link, "slow", "wait", 10);
  REQUIRE(with_threads(sim, [&] { return slow.inside == 1; }));
  const std::uint64_t all = link.a().endpoint().credits();
  const std::uint64_t before = lent(link);
  for (int i = 0; i < 20; ++i) {
    calls.add(link, "slow", "wait", kLarge);
    sim.pass(1ms);
  }
  CHECK(lent(link) > before);       // those that found no credits wait with their callers
  CHECK(lent(link) < before + 20);  // others wait there
  CHECK(link.a().endpoint().credits() >= all / 2 - 20);  // each lent one used one, for a moment
  CHECK(link.b().counters().held_bytes == 0);            // nothing is counted twice
  for (int i = 0; i < 100; ++i) CHECK(value_of<int>(link.call("add", i, 1)) == i + 1);
  CHECK(calls.done() == 0);
  slow.gate.open();
  REQUIRE(with_threads(sim, [&] { return calls.done() == calls.replies.size(); }));
  for (const auto& reply : calls.replies) CHECK(reply->status().ok());
  REQUIRE(with_threads(sim, [&] { return link.b().counters().held_bytes == 0; }));
  REQUIRE(with_threads(sim, [&] { return link.a().endpoint().credits() >= all - 2; }));
}

TEST_CASE("a large request that ends while it waits for a place gives its credits back") {
  SimFixture sim = long_sim();
  LinkOptions options;
  options.server.workers = 1;
  Slow slow;  // outlives the server, whose worker may be inside
  Link link(sim, options);
  serve_slow(link, slow);
  warm_up(link, kLarge);
  Calls calls;
  calls.add(link, "slow", "wait", 10);
  REQUIRE(with_threads(sim, [&] { return slow.inside == 1; }));
  const std::uint64_t before = lent(link);
  const std::uint64_t all = link.a().endpoint().credits();
  Nanos within = 20s;
  bool cancels = false;
  SUBCASE("by a cancel") { cancels = true; }
  SUBCASE("by its deadline") { within = 10ms; }
  const Ticket ticket = calls.add(link, "slow", "wait", kLarge, within);
  sim.pass(1ms);
  CHECK(lent(link) == before);
  CHECK(link.a().endpoint().credits() < all);
  if (cancels) link.a().cancel(ticket);
  sim.pass(50ms);
  CHECK(calls.replies[1]->done());
  for (int i = 0; i < 4; ++i) link.call("add", 1, 2).status().ignore();  // bring what was granted
  CHECK(link.a().endpoint().credits() + 4 >= all);
  slow.gate.open();
  REQUIRE(with_threads(sim, [&] { return calls.done() == 2; }));
}

TEST_CASE("the connection ends while large requests wait for places: all slots come back") {
  SimFixture sim = long_sim();
  LinkOptions options;
  options.server.workers = 1;
  Slow slow;  // outlives the server, whose worker may be inside
  Link link(sim, options);
  serve_slow(link, slow);
  warm_up(link, kLarge);
  Calls calls;
  calls.add(link, "slow", "wait", 10);
  REQUIRE(with_threads(sim, [&] { return slow.inside == 1; }));
  for (int i = 0; i < 3; ++i) calls.add(link, "slow", "wait", kLarge);
  sim.pass(1ms);
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return link.owners[0].closed == 1 && link.owners[1].closed == 1; }));
  CHECK(calls.done() == 4);
  slow.gate.open();
  link.channels[0].reset();
  link.channels[1].reset();
  REQUIRE(with_threads(sim, [&] { return sim.port(1).free_slots() == options.port.pool_slots; }));
  CHECK(sim.port(0).free_slots() == options.port.pool_slots);
}

TEST_CASE("a large request beyond the memory that a connection may hold is refused") {
  SimFixture sim = long_sim();
  LinkOptions options;
  options.b.memory_bytes = 4 * (kLarge - 1);  // a share is one byte too small
  Link link(sim, options);
  for (int i = 0; i < 6; ++i) {
    const Status status = link.call_raw("test", "raw", pattern(kLarge)).status();
    CHECK(status.code() == Code::kResourceExhausted);
    CHECK(!status.maybe_executed());
  }
  CHECK(link.b().counters().over_budget == 6);
  CHECK(link.b().counters().held_bytes == 0);
}

TEST_CASE("few credits: a body that would leave less than half of them is lent") {
  SimFixture sim = long_sim();
  LinkOptions options;
  options.port = {.slot_bytes = 512, .pool_slots = 64, .base_credits = 4, .max_credits = 16};
  Link link(sim, options);
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t before = lent(link);
    REQUIRE(link.call_raw("test", "raw", pattern(8 * 512)).has_value());  // nine slots with its header
    CHECK(lent(link) == before + 2);
  }
  warm_up(link, 4 * 512);
}

TEST_CASE("a peer that has not announced it gets no long message") {
  SimFixture sim = long_sim();
  Reply reply;
  Forger forger(sim);
  wire::Hello hello{.max_requests = 100, .max_payload_bytes = 1 << 20};
  bool takes = false;
  SUBCASE("an older one") { hello.optional_features &= ~wire::kFeatureLongMessages; }
  SUBCASE("and a new one does") { takes = true; }
  forger.hello(hello);
  REQUIRE(sim.until([&] { return forger.channel->ready(); }));
  forger.channel->call({"x", "y", sim.now() + 20s}, pattern(20'000), reply.handler());
  const wire::Frame request = forger.frame(1);
  CHECK(request.header.type == FrameType::kRequest);
  CHECK(((request.header.flags & wire::kFlagRendezvous) == 0) == takes);
  CHECK((request.body.size() == 20'000) == takes);
}

TEST_CASE("before the hello of the peer bodies are lent") {
  SimFixture sim = long_sim();
  Reply reply;
  Forger forger(sim);
  forger.channel->call({"x", "y", sim.now() + 20s}, pattern(20'000), reply.handler());
  forger.hello();
  CHECK((forger.frame(1).header.flags & wire::kFlagRendezvous) != 0);
}

TEST_CASE("a channel announces long messages only over a wire that takes them") {
  for (const bool takes : {false, true}) {
    SimFixture sim(transport::sim::SimOptions{.seed = kSeed, .long_messages = takes});
    Forger forger(sim);
    auto hello = wire::decode_hello(forger.frame(0).body);
    REQUIRE(hello.has_value());
    CHECK(((hello->optional_features & wire::kFeatureLongMessages) != 0) == takes);
  }
}

TEST_CASE("only requests and replies come in long messages, and what they carry is no table and no offer") {
  SimFixture sim = long_sim();
  Forger forger(sim);
  forger.hello();
  FrameHeader header = Forger::header(FrameType::kUserMessage, kId);
  SUBCASE("a message to the inbox") {}
  SUBCASE("a message of a stream") { header = Forger::header(FrameType::kData, kId); }
  SUBCASE("a request with a table") {
    header = Forger::header(FrameType::kRequest, kId);
    header.method = 1;
    header.flags = wire::kFlagAttachments;
  }
  SUBCASE("an offer") {
    header = Forger::header(FrameType::kRequest, kId);
    header.method = 1;
    header.flags = wire::kFlagRendezvous;
  }
  forger.send(header, {}, pattern(20'000));
  forger.expect_reset(Code::kCorrupt);
}

TEST_CASE("a long request beyond max_payload_bytes is refused") {
  SimFixture sim = long_sim();
  Forger forger(sim, {.peer_name = "forger", .max_payload_bytes = 10'000});
  forger.hello();
  const auto names = wire::encode_names("s", "raw");
  forger.send(Forger::header(FrameType::kRequest, kId), names, pattern(20'000));
  const wire::Frame answer = forger.frame(1);
  CHECK(answer.header.type == FrameType::kReply);
  CHECK(answer.header.code == static_cast<std::uint8_t>(Code::kResourceExhausted));
}
