// Geometries: what is valid, what a rank has, and the wire format.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kv/geometry.h"
#include "rpc/codec.h"

namespace slime::kv::geometry_test {
namespace {

Geometry llama() { return {.layers = 32, .blocks = 100, .block_tokens = 16, .heads = 8, .head_bytes = 256}; }

}  // namespace

TEST_CASE("an invalid geometry is refused, and the text names the field") {
  const std::vector<std::pair<std::string, std::function<void(Geometry&)>>> wrong{
      {"layers", [](Geometry& g) { g.layers = 0; }},
      {"layers", [](Geometry& g) { g.layers = limits::kLayers + 1; }},
      {"first_layer", [](Geometry& g) { g.first_layer = limits::kLayers - 31; }},
      {"first_layer", [](Geometry& g) { g.first_layer = UINT32_MAX; }},
      {"blocks", [](Geometry& g) { g.blocks = 0; }},
      {"blocks", [](Geometry& g) { g.blocks = limits::kLayerBytes; }},
      {"block_tokens", [](Geometry& g) { g.block_tokens = 0; }},
      {"tokens", [](Geometry& g) { g.block_tokens = limits::kBlockUnits; }},
      {"heads", [](Geometry& g) { g.heads = 0; }},
      {"head_bytes", [](Geometry& g) { g.head_bytes = 0; }},
      {"scale_bytes", [](Geometry& g) { g.scale_bytes = UINT32_MAX; }},
      {"tp_degree", [](Geometry& g) { g.tp_degree = 0; }},
      {"tp_degree", [](Geometry& g) { g.tp_degree = 3; }},
      {"tp_rank", [](Geometry& g) { g.tp_rank = 1; }},
      {"latent", [](Geometry& g) { g.form = Form::kLatent; }},
      {"order", [](Geometry& g) { g.order = static_cast<Order>(7); }},
      {"form", [](Geometry& g) { g.form = static_cast<Form>(7); }},
  };
  REQUIRE(llama().validate().ok());
  for (const auto& each : wrong) {
    const std::string& field = each.first;
    Geometry geometry = llama();
    each.second(geometry);
    const Status status = geometry.validate();
    INFO(field);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find(field) != std::string::npos);
  }
}

TEST_CASE("heads are divided among the ranks, or repeated where there are more ranks") {
  Geometry geometry = llama();
  geometry.tp_degree = 4;
  geometry.tp_rank = 3;
  CHECK(geometry.rank_heads() == Heads{6, 2});
  geometry.tp_degree = 16;
  geometry.tp_rank = 3;
  REQUIRE(geometry.validate().ok());
  CHECK(geometry.rank_heads() == Heads{1, 1});
}

TEST_CASE("a block has the bytes of its regions") {
  Geometry geometry = llama();
  CHECK(geometry.regions() == std::vector<RegionShape>{{"k", 32768}, {"v", 32768}});
  CHECK(geometry.block_bytes() == 65536);
  CHECK(geometry.layer_bytes() == 6553600);
  geometry.form = Form::kFused;
  geometry.scale_bytes = 4;
  CHECK(geometry.regions() == std::vector<RegionShape>{{"kv", 65536}, {"kv_scale", 1024}});
  geometry.form = Form::kLatent;
  geometry.heads = 1;
  geometry.head_bytes = 1152;
  geometry.tp_degree = 8;
  geometry.tp_rank = 5;
  REQUIRE(geometry.validate().ok());
  CHECK(geometry.regions() == std::vector<RegionShape>{{"latent", 18432}, {"latent_scale", 64}});
}

TEST_CASE("a geometry travels as bytes") {
  Geometry geometry = llama();
  geometry.first_layer = 7;
  geometry.scale_bytes = 4;
  geometry.order = Order::kHND;
  geometry.form = Form::kFused;
  geometry.tp_degree = 2;
  geometry.tp_rank = 1;
  const auto read = Geometry::decode(geometry.encode());
  REQUIRE(read.has_value());
  CHECK(*read == geometry);
  CHECK(read->to_string() ==
        "layers 7 to 38, 100 blocks of 16 tokens, 8 heads of 256 bytes and 4 of scales, HND, fused, rank 1 "
        "of 2");
}

TEST_CASE("bytes that are no valid geometry are refused") {
  Geometry geometry = llama();
  geometry.blocks = 0;
  ByteVector cut = llama().encode();
  cut.pop_back();
  ByteVector other = llama().encode();
  other[9] = std::byte{2};  // behind the key "version"
  for (const ByteVector& bytes : {geometry.encode(), cut, other, rpc::encode_value(7), ByteVector(2000)})
    CHECK(Geometry::decode(bytes).status().code() == Code::kInvalidArgument);
}

}  // namespace slime::kv::geometry_test
