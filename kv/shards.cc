#include "kv/shards.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/str.h"
#include "kv/broadcast_names.h"
#include "kv/cache_state.h"
#include "kv/offer.h"
#include "rpc/codec.h"

namespace slime::kv {
namespace {

constexpr std::uint32_t kShardsFormat = 1;

struct ShardFields {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint32_t item_bytes = 0;
  std::uint32_t dim = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  MSGPACK_DEFINE(name, shape, item_bytes, dim, first, count)
};

struct ShardListFields {
  std::uint32_t format = 0;
  std::vector<ShardFields> shards;
  MSGPACK_DEFINE_MAP(format, shards)
};

Status wrong_shard(const std::string& why) { return Status(Code::kInvalidArgument, "shards: " + why); }

// The product of the shape in [from, to).
std::uint64_t product(const std::vector<std::uint64_t>& shape, std::size_t from, std::size_t to) {
  std::uint64_t out = 1;
  for (std::size_t i = from; i < to; ++i) out *= shape[i];
  return out;
}

}  // namespace

Status Tensor::validate() const {
  if (!may_be_part_name(name))
    return wrong_shard(
        str("a tensor has no name of 1 to ", limits::kPartName, " printable characters without spaces"));
  if (shape.empty() || shape.size() > limits::kDimensions)
    return wrong_shard(
        str(name, " has ", shape.size(), " dimensions, must be from 1 to ", limits::kDimensions));
  if (item_bytes == 0 || item_bytes > limits::kItemBytes)
    return wrong_shard(
        str(name, " has items of ", item_bytes, " bytes, must be from 1 to ", limits::kItemBytes));
  std::uint64_t total = item_bytes;
  for (const std::uint64_t size : shape) {
    if (size == 0 || size > limits::kTensorBytes / total)
      return wrong_shard(str(name, " is empty, or has more than ", limits::kTensorBytes, " bytes"));
    total *= size;
  }
  return {};
}

std::uint64_t Tensor::bytes() const { return product(shape, 0, shape.size()) * item_bytes; }

std::string Tensor::to_string() const {
  std::string out = name + " of ";
  for (std::size_t i = 0; i < shape.size(); ++i) out += str(i == 0 ? "" : " x ", shape[i]);
  return out + str(" items of ", item_bytes, " bytes");
}

Result<Shard> Shard::of_rank(Tensor tensor, std::uint32_t dim, std::uint32_t rank, std::uint32_t degree) {
  SLIME_TRY(tensor.validate());
  if (dim >= tensor.shape.size() || degree == 0 || rank >= degree || tensor.shape[dim] % degree != 0)
    return wrong_shard(str("dimension ", dim, " of ", tensor.to_string(), " has no rank ", rank, " of ",
                           degree, " equal ones"));
  const std::uint64_t each = tensor.shape[dim] / degree;
  return Shard{std::move(tensor), dim, rank * each, each};
}

Status Shard::validate() const {
  SLIME_TRY(tensor.validate());
  if (dim >= tensor.shape.size())
    return wrong_shard(str("there is no dimension ", dim, " in ", tensor.to_string()));
  if (count == 0 || first >= tensor.shape[dim] || count > tensor.shape[dim] - first)
    return wrong_shard(
        str(count, " indices from ", first, " on are not in dimension ", dim, " of ", tensor.to_string()));
  return {};
}

std::uint64_t Shard::bytes() const { return outer() * run_bytes(); }
std::uint64_t Shard::outer() const { return whole() ? 1 : product(tensor.shape, 0, dim); }
std::uint64_t Shard::run_bytes() const {
  if (whole()) return tensor.bytes();
  return count * product(tensor.shape, dim + 1, tensor.shape.size()) * tensor.item_bytes;
}
std::uint64_t Shard::stride_bytes() const {
  if (whole()) return tensor.bytes();
  return product(tensor.shape, dim, tensor.shape.size()) * tensor.item_bytes;
}
std::uint64_t Shard::offset_bytes() const {
  return first * product(tensor.shape, dim + 1, tensor.shape.size()) * tensor.item_bytes;
}

Status check_shards(std::span<const Shard> shards) {
  if (shards.empty() || shards.size() > limits::kShards)
    return wrong_shard(str("there are ", shards.size(), ", must be from 1 to ", limits::kShards));
  std::set<std::string_view> names;
  for (const Shard& shard : shards) {
    SLIME_TRY(shard.validate());
    if (!names.insert(shard.tensor.name).second)
      return wrong_shard(str("two have the name ", shard.tensor.name));
  }
  return {};
}

ByteVector encode_shards(std::span<const Shard> shards) {
  ShardListFields fields{kShardsFormat, {}};
  fields.shards.reserve(shards.size());
  for (const Shard& shard : shards)
    fields.shards.push_back({shard.tensor.name, shard.tensor.shape, shard.tensor.item_bytes, shard.dim,
                             shard.first, shard.count});
  return rpc::encode_value(fields);
}

Result<std::vector<Shard>> decode_shards(Bytes bytes) {
  if (bytes.size() > limits::kShardsBytes) return wrong_shard(str(bytes.size(), " bytes are too many"));
  auto fields = rpc::decode_value<ShardListFields>(bytes);
  if (!fields) return fields.status().with_context("shards");
  if (fields->format != kShardsFormat)
    return wrong_shard(str("format ", fields->format, ", this program has ", kShardsFormat));
  std::vector<Shard> out;
  out.reserve(fields->shards.size());
  for (ShardFields& each : fields->shards)
    out.push_back({.tensor = {std::move(each.name), std::move(each.shape), each.item_bytes},
                   .dim = each.dim,
                   .first = each.first,
                   .count = each.count});
  SLIME_TRY(check_shards(out));
  return out;
}

struct Shards::State {
  Mutex mutex;
  bool closed SLIME_GUARDED_BY(mutex) = false;
  std::vector<MemoryRegion> regions SLIME_GUARDED_BY(mutex);

  Status close(Nanos timeout) {
    std::vector<MemoryRegion> closing;  // the agent's service keeps this state
    {
      const MutexLock lock(mutex);
      closed = true;
      closing.swap(regions);
    }
    return close_all(closing, timeout);
  }
};

Result<Shards> Shards::over(PeerAgent& agent, std::span<const Shard> shards,
                            std::span<const MutableBytes> memory, const ShardsOptions& options) {
  SLIME_TRY(check_broadcast_name(options.name));
  SLIME_TRY(check_shards(shards));
  if (memory.size() != shards.size())
    return wrong_shard(str(shards.size(), " shards and ", memory.size(), " regions of memory"));
  std::vector<NamedMemory> parts;
  parts.reserve(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (memory[i].size() != shards[i].bytes())
      return wrong_shard(str("the memory of ", shards[i].tensor.name, " has ", memory[i].size(),
                             " bytes, its shard ", shards[i].bytes()));
    parts.push_back({shards[i].tensor.name, memory[i]});
  }
  Shards out(std::make_shared<State>());
  auto regions = publish_parts(agent, parts, shards_regions(options.name));
  if (!regions) return std::move(regions).error();
  {
    const MutexLock lock(out.state_->mutex);
    out.state_->regions = std::move(*regions);
  }
  rpc::Service service(shards_service(options.name));
  const auto tell = [state = out.state_, encoded = encode_shards(shards)]() -> Result<ByteVector> {
    const MutexLock lock(state->mutex);
    if (state->closed) return Status(Code::kUnavailable, "the shards are closed");
    return encoded;
  };
  SLIME_TRY(service.add("shards", tell,
                        {.run = rpc::Run::kInline, .doc = "The shards of this process (kv/README.md)."}));
  SLIME_TRY(agent.serve(service));
  return out;
}

Shards::~Shards() { close(limits::kDestructorBound).ignore(); }

Shards& Shards::operator=(Shards&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

Status Shards::close(Nanos timeout) { return state_ ? state_->close(timeout) : Status(); }

}  // namespace slime::kv
