#include "bench/blocks.h"

#include <numeric>
#include <utility>

#include "base/random.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

std::vector<std::uint64_t> shuffled(std::uint64_t count, Rng& rng) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  for (std::uint64_t i = count; i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  return out;
}

}  // namespace

std::vector<Block> block_list(const Options& options) {
  std::vector<Block> out;
  if (!options.cold) {
    const std::uint64_t stride = options.size * (options.scattered() ? 2 : 1);
    for (std::uint64_t i = 0; i < std::uint64_t{options.inflight} * options.count; ++i) {
      out.push_back({i * stride, i * stride});
    }
    return out;
  }
  Rng rng(kSeed);
  const std::uint64_t all = options.pool_bytes / options.size;
  const auto local = shuffled(all, rng);
  const auto remote = shuffled(all, rng);
  for (std::uint64_t i = 0; i < all / options.count * options.count; ++i) {
    out.push_back({local[i] * options.size, remote[i] * options.size});
  }
  return out;
}

}  // namespace slime::bench
