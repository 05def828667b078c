// The mapping of the blocks of two caches, byte by byte, for all small cases.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/str.h"
#include "kv/mapping.h"
#include "tests/kv/pattern.h"

namespace slime::kv::mapping_test {
namespace {

using test::number_of;

bool divides(std::uint32_t a, std::uint32_t b) { return a % b == 0 || b % a == 0; }

// One block of a rank: the bytes of each region, and how often each byte was written.
struct Block {
  explicit Block(const Geometry& geometry) {
    for (const RegionShape& region : geometry.regions()) {
      bytes.emplace_back(region.block_bytes);
      writes.emplace_back(region.block_bytes);
    }
  }
  std::vector<std::vector<std::uint32_t>> bytes;
  std::vector<std::vector<int>> writes;
};

// Moves the pieces between all ranks that should talk to each other, and checks every byte.
void check_pair(Geometry from, Geometry to) {
  for (to.tp_rank = 0; to.tp_rank < to.tp_degree; ++to.tp_rank) {
    Block target(to);
    const auto sources = sources_of(to, from.tp_degree);
    REQUIRE(sources.has_value());
    for (const std::uint32_t rank : *sources) {
      from.tp_rank = rank;
      const auto mapping = map_blocks(from, to);
      REQUIRE(mapping.has_value());
      for (const Piece& piece : mapping->pieces)
        for (std::uint64_t i = 0; i < piece.bytes; ++i) {
          const std::uint64_t at = piece.remote_offset + i;
          target.bytes.at(piece.remote_region).at(at) =
              number_of(from, piece.local_region, piece.local_offset + i);
          ++target.writes[piece.remote_region][at];
        }
    }
    for (std::size_t region = 0; region < target.bytes.size(); ++region)
      for (std::size_t at = 0; at < target.bytes[region].size(); ++at) {
        REQUIRE(target.writes[region][at] == 1);
        REQUIRE(target.bytes[region][at] == number_of(to, region, at));
      }
  }
}

Geometry small(std::uint32_t heads, std::uint32_t degree, Order order = Order::kNHD,
               Form form = Form::kApart) {
  return {.layers = 1,
          .blocks = 1,
          .block_tokens = 3,
          .heads = heads,
          .head_bytes = 2,
          .order = order,
          .form = form,
          .tp_degree = degree};
}

}  // namespace

TEST_CASE("every byte of every rank arrives once, for all degrees, orders and forms") {
  int pairs = 0;
  for (const std::uint32_t heads : {1U, 2U, 4U, 6U})
    for (const std::uint32_t from : {1U, 2U, 3U, 4U, 8U})
      for (const std::uint32_t to : {1U, 2U, 3U, 4U, 8U}) {
        if (!divides(heads, from) || !divides(heads, to)) continue;
        for (int bits = 0; bits < 32; ++bits) {
          Geometry a = small(heads, from, bits & 1 ? Order::kHND : Order::kNHD,
                             bits & 2 ? Form::kFused : Form::kApart);
          Geometry b =
              small(heads, to, bits & 4 ? Order::kHND : Order::kNHD, bits & 8 ? Form::kFused : Form::kApart);
          a.scale_bytes = b.scale_bytes = bits & 16 ? 3 : 0;
          INFO("from ", a.to_string(), " to ", b.to_string());
          check_pair(a, b);
          ++pairs;
        }
      }
  CHECK(pairs > 1000);
}

TEST_CASE("a latent cache is whole on each rank, and read from one of them") {
  for (const std::uint32_t from : {1U, 2U, 4U})
    for (const std::uint32_t to : {1U, 4U, 8U}) {
      CHECK(sources_of(small(1, to, Order::kNHD, Form::kLatent), from)->size() == 1);
      check_pair(small(1, from, Order::kNHD, Form::kLatent), small(1, to, Order::kHND, Form::kLatent));
    }
}

TEST_CASE("equal blocks are one piece for each region") {
  const Geometry geometry = small(4, 2);
  CHECK(map_blocks(geometry, geometry)->pieces == std::vector<Piece>{{0, 0, 0, 0, 12}, {1, 1, 0, 0, 12}});
}

TEST_CASE("a rank's heads are one piece of a block by heads, and one for each token of a block by tokens") {
  const Geometry half = small(4, 2, Order::kHND);
  CHECK(map_blocks(half, small(4, 1, Order::kHND))->pieces.size() == 2);
  CHECK(map_blocks(small(4, 2), small(4, 1))->pieces.size() == 6);
}

TEST_CASE("targets are the ranks that have this rank as a source") {
  Geometry geometry = small(2, 8);
  std::vector<std::vector<std::uint32_t>> targets;
  for (geometry.tp_rank = 0; geometry.tp_rank < 8; ++geometry.tp_rank)
    targets.push_back(*targets_of(geometry, 2));
  // Ranks 0 to 3 have head 0, ranks 4 to 7 head 1; rank 0 of the others needs head 0 from one.
  CHECK(targets == std::vector<std::vector<std::uint32_t>>{{0}, {}, {}, {}, {}, {1}, {}, {}});
  geometry = small(4, 2);
  geometry.tp_rank = 1;
  CHECK(*targets_of(geometry, 4) == std::vector<std::uint32_t>{2, 3});
  CHECK(targets_of(geometry, 3).status().code() == Code::kInvalidArgument);
}

TEST_CASE("caches share the layers that both have") {
  Geometry all = small(2, 1);
  all.layers = 8;
  Geometry stage = all;
  stage.first_layer = 6;
  stage.layers = 4;
  CHECK(map_blocks(all, stage)->first_layer == 6);
  CHECK(map_blocks(all, stage)->layers == 2);
  stage.first_layer = 8;
  CHECK(map_blocks(all, stage).status().text().find("no layer in common") != std::string::npos);
}

TEST_CASE("caches that cannot be mapped are refused with both geometries") {
  const Geometry here = small(4, 2);
  std::vector<Geometry> others(6, here);
  others[0].block_tokens = 4;
  others[1].heads = 8;
  others[2].head_bytes = 4;
  others[3].scale_bytes = 1;
  others[4].tp_rank = 1;  // other heads
  others[5] = small(1, 1, Order::kNHD, Form::kLatent);
  for (const Geometry& other : others) {
    const Status status = map_blocks(here, other).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find(here.to_string()) != std::string::npos);
    CHECK(status.text().find(other.to_string()) != std::string::npos);
  }
}

}  // namespace slime::kv::mapping_test
