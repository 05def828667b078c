// Writes and reads of blocks between two caches, over the provider of the run.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/kv/caches.h"

namespace slime::kv::transfer_test {
namespace {

using namespace slime::kv::test;

const Ids kFrom{0, 1, 2, 6, 3};
const Ids kTo{4, 5, 6, 0, 2};

std::vector<std::unique_ptr<Side>> make_ranks(Geometry geometry) {
  std::vector<std::unique_ptr<Side>> out;
  for (geometry.tp_rank = 0; geometry.tp_rank < geometry.tp_degree; ++geometry.tp_rank)
    out.push_back(std::make_unique<Side>(geometry));
  return out;
}

void check_refused(Move move, std::string_view text) {
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("exactly the target blocks are written, with the source blocks") {
  Side prefill(small());
  Side decode(small());
  prefill.fill();
  const Remote remote = prefill.connect_to(decode);
  REQUIRE(remote.write_blocks(kFrom, kTo).wait(kSoon).has_value());
  CHECK(decode.wrong_bytes(kFrom, kTo) == 0);
}

TEST_CASE("exactly the local blocks are read, with the peer's blocks") {
  Side prefill(small());
  Side decode(small());
  prefill.fill();
  const Remote remote = decode.connect_to(prefill);
  REQUIRE(remote.read_blocks(kTo, kFrom).wait(kSoon).has_value());
  CHECK(decode.wrong_bytes(kFrom, kTo) == 0);
}

TEST_CASE("ranks of different degrees, orders and forms write to each other") {
  struct Pair {
    Geometry from, to;
  };
  std::vector<Pair> pairs{{small(4, 1), small(4, 4)}, {small(4, 4), small(4, 2)}, {small(2, 2), small(2, 8)}};
  pairs[0].to.order = Order::kHND;
  pairs[1].from.form = Form::kFused;
  pairs[1].from.scale_bytes = pairs[1].to.scale_bytes = 4;
  pairs[2].to.blocks = 9;
  for (const Pair& pair : pairs) {
    INFO("from ", pair.from.to_string(), " to ", pair.to.to_string());
    const auto senders = make_ranks(pair.from);
    const auto receivers = make_ranks(pair.to);
    for (const auto& sender : senders) {
      sender->fill();
      const auto targets = take(targets_of(sender->cache.geometry(), pair.to.tp_degree));
      for (const std::uint32_t rank : targets)
        REQUIRE(sender->connect_to(*receivers[rank]).write_blocks(kFrom, kTo).wait(kSoon).has_value());
    }
    for (const auto& receiver : receivers) CHECK(receiver->wrong_bytes(kFrom, kTo) == 0);
  }
}

TEST_CASE("one layer moves alone") {
  Side prefill(small());
  Side decode(small());
  prefill.fill();
  REQUIRE(prefill.connect_to(decode).write_blocks(Ids{1}, Ids{1}, {.layer = 1}).wait(kSoon).has_value());
  CHECK(decode.cache.region(0, 0).data()[128] == std::byte{0});
  CHECK(decode.cache.region(1, 0).data()[128] == prefill.cache.region(1, 0).data()[128]);
}

TEST_CASE("wrong ids are refused before a byte moves") {
  Side prefill(small());
  Side decode(small());
  prefill.fill();
  const Remote remote = prefill.connect_to(decode);
  check_refused(remote.write_blocks(Ids{0, 1, 8}, Ids{0, 1, 2}), "local block 2 has the id 8, of 8 blocks");
  check_refused(remote.write_blocks(Ids{0, 1}, Ids{0, UINT64_MAX}), "remote block 1");
  check_refused(remote.write_blocks(Ids{0, 1}, Ids{0}), "2 local ids, 1 remote ids");
  check_refused(remote.write_blocks(Ids{0, 1, 2}, Ids{5, 3, 5}), "remote id 5 is there twice");
  check_refused(remote.read_blocks(Ids{5, 3, 5}, Ids{0, 1, 2}), "local id 5 is there twice");
  check_refused(remote.write_blocks(Ids{0}, Ids{0}, {.layer = 2}), "layer 2 is not in both caches");
  check_refused(remote.read_blocks(Ids{0}, Ids{0}, {.request = 1}), "a read tells the peer nothing");
  CHECK(decode.wrong_bytes({}, {}) == 0);
  CHECK(remote.write_blocks(Ids{3, 3}, Ids{0, 1}).wait(kSoon).has_value());  // a source may repeat
  CHECK(decode.wrong_bytes({3, 3}, {0, 1}) == 0);
}

TEST_CASE("no blocks are no error") {
  Side prefill(small());
  Side decode(small());
  CHECK(prefill.connect_to(decode).write_blocks({}, {}).wait(kSoon).has_value());
}

TEST_CASE("a peer whose cache cannot be mapped is refused with both geometries") {
  Geometry other = small();
  other.head_bytes = 32;
  Side prefill(small());
  Side decode(other);
  const Status status = connect(prefill.agent->peer(decode.agent->address()), prefill.cache).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find(small().to_string()) != std::string::npos);
  CHECK(status.text().find(other.to_string()) != std::string::npos);
}

TEST_CASE("a peer without a cache of that name is refused") {
  Side prefill(small());
  Side decode(small());
  const Peer peer = prefill.agent->peer(decode.agent->address());
  CHECK(connect(peer, prefill.cache, "draft").status().code() == Code::kNotFound);
  CHECK(connect(peer, prefill.cache, "no/name").status().code() == Code::kInvalidArgument);
}

TEST_CASE("an agent has several caches, each with its own name and memory of the caller") {
  Side prefill(small());
  Side decode(small());
  Geometry draft = small();
  draft.layers = 1;
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(draft.layer_bytes() / 2));
  const std::vector<MutableBytes> regions(memory.begin(), memory.end());
  CHECK(Cache::over(*decode.agent, draft, regions).status().code() == Code::kAlreadyExists);
  CHECK(Cache::over(*decode.agent, draft, std::span(regions).first(1), {.name = "draft"}).status().code() ==
        Code::kInvalidArgument);
  const Cache cache = take(Cache::over(*decode.agent, draft, regions, {.name = "draft"}));
  prefill.fill();
  const Remote remote = take(connect(prefill.agent->peer(decode.agent->address()), prefill.cache, "draft"));
  REQUIRE(remote.write_blocks(Ids{5}, Ids{7}).wait(kSoon).has_value());
  CHECK(memory[1][7 * 128 + 127] == prefill.cache.region(0, 1).data()[5 * 128 + 127]);
}

TEST_CASE("memory that is too small is refused") {
  Side side(small());
  std::vector<std::byte> memory(8 * 128);
  std::vector<MutableBytes> regions(4, MutableBytes(memory));
  regions[3] = regions[3].first(8 * 128 - 1);
  const Status status = Cache::over(*side.agent, small(), regions, {.name = "draft"}).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find("layer 1, v: 1023 bytes") != std::string::npos);
}

TEST_CASE("callers drive the loop") {
  Side prefill(small(), Progress::kCaller);
  Side decode(small());
  prefill.fill();
  const Remote remote = prefill.connect_to(decode);
  REQUIRE(remote.write_blocks(kFrom, kTo, {.request = 9}).wait(kSoon).has_value());
  CHECK(decode.cache.wait_layer(9, 1, kSoon).ok());
  CHECK(decode.wrong_bytes(kFrom, kTo) == 0);
}

TEST_CASE("progress counts layers and bytes") {
  Side prefill(small());
  Side decode(small());
  Move move = prefill.connect_to(decode).write_blocks(kFrom, kTo);
  REQUIRE(move.future().wait_done(kSoon));
  const MoveProgress end = move.progress();
  CHECK(end.bytes_done == 5 * 2 * 256);
  CHECK(end.bytes_total == end.bytes_done);
  CHECK(end.layers_done == 2);
  CHECK(end.layers_total == 2);
  CHECK(end.bytes_per_second > 0);
  CHECK(end.left == Nanos::zero());
  CHECK(move.progress().elapsed == end.elapsed);
}

TEST_CASE("a closed cache moves nothing, at either side") {
  Side prefill(small());
  Side decode(small());
  const Remote remote = prefill.connect_to(decode);
  REQUIRE(decode.cache.close().ok());
  CHECK(!remote.write_blocks(Ids{0}, Ids{0}, {.timeout = kSoon}).wait().has_value());
  CHECK(connect(prefill.agent->peer(decode.agent->address()), prefill.cache).status().code() ==
        Code::kUnavailable);
  REQUIRE(prefill.cache.close().ok());
  CHECK(!remote.write_blocks(Ids{0}, Ids{0}).wait(kSoon).has_value());
}

TEST_CASE("the name of a closed cache can be served again, by a cache of another shape") {
  Side prefill(small());
  Side decode(small());
  const Remote before = prefill.connect_to(decode);
  CHECK(Cache::allocate(*decode.agent, small()).status().code() == Code::kAlreadyExists);
  for (std::uint64_t blocks : {5, 3}) {
    REQUIRE(decode.cache.close().ok());
    Geometry other = small();
    other.blocks = blocks;
    decode.cache = take(Cache::allocate(*decode.agent, other));
    CHECK(!before.write_blocks(Ids{0}, Ids{0}, {.timeout = kSoon}).wait().has_value());
    const Remote again = prefill.connect_to(decode);
    CHECK(again.geometry().blocks == blocks);
    prefill.fill();
    REQUIRE(again.write_blocks(Ids{0, 1}, Ids{2, 0}, {.request = 9, .timeout = kSoon}).wait().has_value());
    REQUIRE(decode.cache.wait_layer(9, 1, kSoon).ok());
    CHECK(decode.cache.region(1, 0).data()[0] == prefill.wanted(1, 1, 0, 0));
  }
}

TEST_CASE("what a peer says of a closed cache does not count for the next one of its name") {
  Side prefill(small());
  Side decode(small());
  prefill.connect_to(decode);
  REQUIRE(decode.cache.close().ok());
  decode.cache = take(Cache::allocate(*decode.agent, small()));
  Peer peer = prefill.agent->peer(decode.agent->address());
  const auto tell = [&] { return peer.call<void>("kv.cache", "arrived", 7, 0, 0, 2).wait(kSoon).status(); };
  CHECK(tell().code() == Code::kUnavailable);
  CHECK(decode.cache.wait_layer(7, 0, Nanos::zero()).code() == Code::kDeadlineExceeded);
  prefill.connect_to(decode);
  CHECK(tell().ok());
  CHECK(decode.cache.wait_layer(7, 0, kSoon).ok());
}

}  // namespace slime::kv::transfer_test
