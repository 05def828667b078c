#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace slime::kv {

// The order of the numbers of a block. kNHD: tokens, then heads; kHND: heads, then tokens.
enum class Order : std::uint8_t { kNHD = 0, kHND = 1 };

// The regions of a layer. kApart: one of keys and one of values. kFused: one region, in which each
// block has its keys, then its values. kLatent: one latent cache (MLA), without values and heads.
enum class Form : std::uint8_t { kApart = 0, kFused = 1, kLatent = 2 };

std::string_view order_name(Order order);  // "NHD"
std::string_view form_name(Form form);     // "apart"

// A range of KV heads.
struct Heads {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  [[nodiscard]] std::uint32_t end() const { return first + count; }
  bool operator==(const Heads&) const = default;
};

// One region of each layer.
struct RegionShape {
  std::string_view name;          // "k", "v", "kv", "latent", "k_scale", ...
  std::uint64_t block_bytes = 0;  // from one block to the next
  bool operator==(const RegionShape&) const = default;
};

// The numbers of one kind (keys, values, their scales) in a block: for each token and each head
// `unit_bytes`, in Geometry::order, from `offset` in the block on.
struct Plane {
  std::uint32_t region = 0;  // in Geometry::regions()
  std::uint64_t offset = 0;
  std::uint64_t unit_bytes = 0;
};

// The shape of the paged KV cache of one process: one rank of tensor parallelism, and a range of
// the model's layers. Every block has the tokens of block_tokens, for the heads of the rank.
struct Geometry {
  std::uint32_t first_layer = 0;  // the model's number of the first layer
  std::uint32_t layers = 0;
  std::uint64_t blocks = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t heads = 0;        // KV heads of the model, of all ranks together; 1 if kLatent
  std::uint32_t head_bytes = 0;   // for each token and head: head dimension x size of a number
  std::uint32_t scale_bytes = 0;  // scales for each token and head, in regions of their own; 0: none
  Order order = Order::kNHD;
  Form form = Form::kApart;
  std::uint32_t tp_degree = 1;
  std::uint32_t tp_rank = 0;

  bool operator==(const Geometry&) const = default;

  // Every other function requires that validate() has returned OK. The text of kInvalidArgument
  // names the first wrong field.
  [[nodiscard]] Status validate() const;

  // Returns the heads of rank tp_rank. With more ranks than heads each head belongs to tp_degree /
  // heads ranks that follow each other.
  [[nodiscard]] Heads rank_heads() const;
  [[nodiscard]] std::vector<RegionShape> regions() const;
  [[nodiscard]] std::vector<Plane> planes() const;
  [[nodiscard]] std::uint64_t block_bytes() const;  // of one layer, all regions
  [[nodiscard]] std::uint64_t layer_bytes() const;  // blocks x block_bytes()
  [[nodiscard]] std::string to_string() const;      // works without validate()

  // The wire format is described in kv/README.md. decode() returns valid geometries only, else
  // kInvalidArgument.
  [[nodiscard]] ByteVector encode() const;
  static Result<Geometry> decode(Bytes bytes);
};

namespace limits {

// Bounds of a geometry, which a peer may have made. They keep every product of its fields inside 64
// bits, and the pieces of one block (kv/mapping.h) below kBlockUnits for each plane.
inline constexpr std::uint32_t kLayers = 65536;
inline constexpr std::uint32_t kTpDegree = 65536;
inline constexpr std::uint32_t kUnitBytes = 1 << 24;
inline constexpr std::uint64_t kBlockUnits = 1 << 20;  // tokens x heads of a block
inline constexpr std::uint64_t kLayerBytes = std::uint64_t{1} << 56;
inline constexpr std::size_t kGeometryBytes = 1024;  // encoded

}  // namespace limits
}  // namespace slime::kv
