// The shards of a peer: any bytes are refused, or read as valid shards, which travel again without
// a change, and each of which lies inside its tensor.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/gather.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using slime::kv::Shard;
  const auto shards = slime::kv::decode_shards(std::as_bytes(std::span(data, size)));
  if (!shards) return 0;
  const auto again = slime::kv::decode_shards(slime::kv::encode_shards(*shards));
  SLIME_CHECK(again.has_value() && *again == *shards);
  std::vector<slime::kv::Tensor> tensors;
  for (const Shard& shard : *shards) {
    const std::uint64_t end =
        shard.offset_bytes() + (shard.outer() - 1) * shard.stride_bytes() + shard.run_bytes();
    SLIME_CHECK(end <= shard.tensor.bytes() && shard.bytes() <= shard.tensor.bytes());
    tensors.push_back(shard.tensor);
  }
  const auto pieces = slime::kv::plan_gather(tensors, std::span(&*shards, 1));
  if (pieces) SLIME_CHECK(pieces->size() == tensors.size());
  return 0;
}
