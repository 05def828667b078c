#include <doctest/doctest.h>
#include <sys/resource.h>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/support/settings.h"
#include "tests/transport/socket_fixture.h"

// Bodies that are larger than a message, in registered blocks of their connection.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;
using transport::testing::SocketFixture;

namespace {

constexpr std::size_t kSizes[] = {10'000, 16 << 10, 60'000, 64 << 10, 256 << 10, 300'000, 1 << 20};
constexpr std::size_t kCalls = 20;

// Memory that both sides have registered and made, ever.
std::uint64_t registered(Link& link) {
  std::uint64_t out = 0;
  for (const auto& channel : link.channels)
    out += channel->counters().registrations + channel->counters().blocks_made;
  return out;
}

void echo(Link& link, const ByteVector& bytes) {
  REQUIRE(value_of<ByteVector>(link.call("echo", bytes)) == bytes);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

}  // namespace

TEST_CASE("calls of a size that was seen before register nothing, on neither side") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    const ByteVector bytes = pattern(size);
    for (int i = 0; i < 3; ++i) echo(link, bytes);
    const std::uint64_t before = registered(link);
    for (std::size_t i = 0; i < kCalls; ++i) echo(link, bytes);
    CHECK(registered(link) == before);
  }
  CHECK(link.a().counters().rendezvous == std::size(kSizes) * (kCalls + 3));
}

TEST_CASE("a device that registers for little lends each body where it lies") {
  SimFixture sim(transport::sim::SimOptions{.seed = kSeed, .prefers_own_memory = false});
  Link link(sim);
  for (std::size_t i = 0; i < kCalls; ++i) echo(link, pattern(100'000));
  CHECK(link.a().counters().blocks_made + link.b().counters().blocks_made == 0);
  CHECK(link.a().counters().registrations == 2 * kCalls);
}

TEST_CASE("bodies that are larger than a block's are lent where they lie") {
  SimFixture sim(kSeed);
  Link link(sim);
  const std::uint64_t size = rpc::limits::kBodyBlockMost + 1;
  echo(link, pattern(size));
  CHECK(link.a().counters().block_bytes + link.b().counters().block_bytes == 0);
  CHECK(registered(link) == 4);
}

TEST_CASE("blocks that nothing uses are given back, but for a small one") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (const std::size_t size : kSizes) {
    for (int i = 0; i < 3; ++i) echo(link, pattern(size));
  }
  CHECK(link.a().counters().block_bytes > 1 << 20);
  sim.pass(2 * rpc::limits::kBlocksIdle + 1s);
  for (const auto& channel : link.channels)
    CHECK(channel->counters().block_bytes <= rpc::limits::kBlocksIdleBytes);
  echo(link, pattern(300'000));
}

TEST_CASE("a reply that its user keeps keeps its block, and no other body is written there") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector bytes = pattern(50'000);
  for (int i = 0; i < 3; ++i) echo(link, bytes);
  std::vector<Payload> kept;
  for (std::uint64_t i = 0; i < 10; ++i) {
    auto reply = link.call_raw("test", "raw", pattern(bytes.size(), i));
    REQUIRE(reply.has_value());
    kept.push_back(std::move(*reply));
  }
  sim.pass(1min);
  for (std::uint64_t i = 0; i < kept.size(); ++i) {
    const ByteVector expected = pattern(bytes.size(), i);
    CHECK(std::ranges::equal(kept[i].bytes(), expected));
  }
  kept.clear();
  sim.pass(2 * rpc::limits::kBlocksIdle + 1s);
  CHECK(link.a().counters().block_bytes <= rpc::limits::kBlocksIdleBytes);
}

TEST_CASE("a reply that outlives its channel keeps its bytes") {
  SimFixture sim(kSeed);
  std::optional<Payload> kept;
  const ByteVector bytes = pattern(50'000);
  {
    Link link(sim);
    for (int i = 0; i < 3; ++i) echo(link, bytes);
    auto reply = link.call_raw("test", "raw", bytes);
    REQUIRE(reply.has_value());
    REQUIRE(reply->attached() != nullptr);  // it lies in a block
    kept = std::move(*reply);
  }
  CHECK(std::ranges::equal(kept->bytes(), bytes));
}

TEST_CASE("more calls at once than a connection may have blocks all come back") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<std::unique_ptr<Reply>> replies;
  for (std::size_t i = 0; i < 3 * rpc::limits::kBlocks; ++i) {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"test", "raw", link.in(60s)}, pattern(20'000 + i, i), replies.back()->handler());
  }
  CHECK(link.a().counters().blocks_made == rpc::limits::kBlocks);
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const auto& reply = *replies[i]->value;
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(std::ranges::equal(reply->bytes(), pattern(20'000 + i, i)));
  }
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("the block of an answer that is revoked is closed, not used again") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.answer_grace = 1s;
  Link link(sim, options);
  Reply reply;
  link.a().call({"test", "hold", link.in(1s)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  sim.freeze_b(link.pair);
  link.held[0].reply(pattern(50'000));
  REQUIRE(link.until([&] { return link.b().counters().lent_buffers == 1; }));
  CHECK(link.b().counters().block_bytes >= 50'000);
  sim.pass(5s);
  CHECK(link.b().counters().answers_revoked == 1);
  CHECK(link.b().counters().block_bytes == 0);
}

// Over the provider that SLIME_TEST_PROVIDER names.
TEST_CASE("sockets: large calls touch no fresh pages once they ran") {
  if (kSanitized) return;  // the memory of the sanitizers is touched, too
  SocketFixture sockets([] { return transport::make_provider(test::endpoint_provider()); });
  Link link(sockets);
  for (const std::size_t size : kSizes) {
    CAPTURE(size);
    const ByteVector bytes = pattern(size);
    const auto call = [&] {
      const auto reply = link.call("echo", bytes);
      REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    };
    const auto faults = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_minflt;
    };
    for (int i = 0; i < 10; ++i) call();
    const long before = faults();
    for (std::size_t i = 0; i < kCalls; ++i) call();
    CHECK(faults() - before <= static_cast<long>(kCalls));  // less than one for each call
  }
}
