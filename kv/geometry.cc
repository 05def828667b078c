#include "kv/geometry.h"

#include "base/str.h"
#include "rpc/codec.h"

namespace slime::kv {
namespace {

constexpr std::uint32_t kVersion = 1;

// A geometry on the wire: a map, so that later versions can add fields.
struct GeometryFields {
  std::uint32_t version = 0;
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;
  std::uint64_t blocks = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t scale_bytes = 0;
  std::uint32_t order = 0;
  std::uint32_t form = 0;
  std::uint32_t tp_degree = 0;
  std::uint32_t tp_rank = 0;
  MSGPACK_DEFINE_MAP(version, first_layer, layers, blocks, block_tokens, heads, head_bytes, scale_bytes,
                     order, form, tp_degree, tp_rank)
};

Status wrong_field(const std::string& why) { return Status(Code::kInvalidArgument, "geometry: " + why); }

Status check_heads(const Geometry& g) {
  if (g.form == Form::kLatent && g.heads != 1)
    return wrong_field(str("heads is ", g.heads, ", must be 1 for a latent cache, which has no heads"));
  if (g.heads % g.tp_degree != 0 && g.tp_degree % g.heads != 0)
    return wrong_field(
        str(g.heads, " heads and tp_degree ", g.tp_degree, ": one must be a multiple of the other"));
  return {};
}

Status check_sizes(const Geometry& g) {
  const std::uint64_t units = std::uint64_t{g.block_tokens} * g.rank_heads().count;
  if (units > limits::kBlockUnits)
    return wrong_field(str("a block of ", g.block_tokens, " tokens x ", g.rank_heads().count,
                           " heads is too large; at most ", limits::kBlockUnits, " together"));
  if (g.blocks > limits::kLayerBytes / g.block_bytes())
    return wrong_field(str(g.blocks, " blocks of ", g.block_bytes(), " bytes are more than ",
                           limits::kLayerBytes, " bytes"));
  return {};
}

}  // namespace

std::string_view order_name(Order order) { return order == Order::kNHD ? "NHD" : "HND"; }

std::string_view form_name(Form form) {
  switch (form) {
    case Form::kApart:
      return "apart";
    case Form::kFused:
      return "fused";
    case Form::kLatent:
      return "latent";
  }
  return "unknown";
}

Status Geometry::validate() const {
  if (order != Order::kNHD && order != Order::kHND) return wrong_field("unknown order");
  if (form != Form::kApart && form != Form::kFused && form != Form::kLatent)
    return wrong_field("unknown form");
  const auto from_1 = [](std::string_view name, std::uint64_t value, std::uint64_t most) {
    if (value >= 1 && value <= most) return Status();
    return wrong_field(str(name, " is ", value, ", must be from 1 to ", most));
  };
  SLIME_TRY(from_1("layers", layers, limits::kLayers));
  if (first_layer >= limits::kLayers || first_layer + layers > limits::kLayers)
    return wrong_field(str("first_layer is ", first_layer, ": no layer may be above ", limits::kLayers - 1));
  SLIME_TRY(from_1("blocks", blocks, limits::kLayerBytes));
  SLIME_TRY(from_1("block_tokens", block_tokens, limits::kBlockUnits));
  SLIME_TRY(from_1("heads", heads, limits::kBlockUnits));
  SLIME_TRY(from_1("head_bytes", head_bytes, limits::kUnitBytes));
  if (scale_bytes > limits::kUnitBytes)
    return wrong_field(str("scale_bytes is ", scale_bytes, ", must be at most ", limits::kUnitBytes));
  SLIME_TRY(from_1("tp_degree", tp_degree, limits::kTpDegree));
  if (tp_rank >= tp_degree)
    return wrong_field(str("tp_rank is ", tp_rank, ", must be below tp_degree ", tp_degree));
  SLIME_TRY(check_heads(*this));
  return check_sizes(*this);
}

Heads Geometry::rank_heads() const {
  if (tp_degree > heads) return {tp_rank / (tp_degree / heads), 1};
  const std::uint32_t each = heads / tp_degree;
  return {tp_rank * each, each};
}

std::vector<RegionShape> Geometry::regions() const {
  const std::uint64_t units = std::uint64_t{block_tokens} * rank_heads().count;
  std::vector<RegionShape> out;
  const auto add = [&](std::uint64_t bytes, std::string_view apart_k, std::string_view apart_v,
                       std::string_view fused, std::string_view latent) {
    if (bytes == 0) return;
    if (form == Form::kApart) {
      out.push_back({apart_k, units * bytes});
      out.push_back({apart_v, units * bytes});
    } else {
      out.push_back(form == Form::kFused ? RegionShape{fused, 2 * units * bytes}
                                         : RegionShape{latent, units * bytes});
    }
  };
  add(head_bytes, "k", "v", "kv", "latent");
  add(scale_bytes, "k_scale", "v_scale", "kv_scale", "latent_scale");
  return out;
}

std::vector<Plane> Geometry::planes() const {
  const std::uint64_t units = std::uint64_t{block_tokens} * rank_heads().count;
  std::vector<Plane> out;
  std::uint32_t region = 0;
  for (const std::uint64_t bytes : {head_bytes, scale_bytes}) {
    if (bytes == 0) continue;
    out.push_back({region, 0, bytes});
    if (form == Form::kApart) out.push_back({++region, 0, bytes});
    if (form == Form::kFused) out.push_back({region, units * bytes, bytes});
    ++region;
  }
  return out;
}

std::uint64_t Geometry::block_bytes() const {
  std::uint64_t out = 0;
  for (const RegionShape& region : regions()) out += region.block_bytes;
  return out;
}

std::uint64_t Geometry::layer_bytes() const { return blocks * block_bytes(); }

std::string Geometry::to_string() const {
  std::string out = str("layers ", first_layer, " to ", std::uint64_t{first_layer} + layers - 1, ", ", blocks,
                        " blocks of ", block_tokens, " tokens, ", heads, " heads of ", head_bytes, " bytes");
  if (scale_bytes > 0) out += str(" and ", scale_bytes, " of scales");
  return out + str(", ", order_name(order), ", ", form_name(form), ", rank ", tp_rank, " of ", tp_degree);
}

ByteVector Geometry::encode() const {
  return rpc::encode_value(GeometryFields{kVersion, first_layer, layers, blocks, block_tokens, heads,
                                          head_bytes, scale_bytes, static_cast<std::uint32_t>(order),
                                          static_cast<std::uint32_t>(form), tp_degree, tp_rank});
}

Result<Geometry> Geometry::decode(Bytes bytes) {
  if (bytes.size() > limits::kGeometryBytes) return wrong_field(str(bytes.size(), " bytes are too many"));
  const auto fields = rpc::decode_value<GeometryFields>(bytes);
  if (!fields) return fields.status().with_context("geometry");
  if (fields->version != kVersion)
    return wrong_field(str("version ", fields->version, ", this program has ", kVersion));
  if (fields->order > 1 || fields->form > 2) return wrong_field("unknown order or form");
  const Geometry out{.first_layer = fields->first_layer,
                     .layers = fields->layers,
                     .blocks = fields->blocks,
                     .block_tokens = fields->block_tokens,
                     .heads = fields->heads,
                     .head_bytes = fields->head_bytes,
                     .scale_bytes = fields->scale_bytes,
                     .order = static_cast<Order>(fields->order),
                     .form = static_cast<Form>(fields->form),
                     .tp_degree = fields->tp_degree,
                     .tp_rank = fields->tp_rank};
  SLIME_TRY(out.validate());
  return out;
}

}  // namespace slime::kv
