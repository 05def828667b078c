#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "kv/cache.h"
#include "kv/remote.h"
#include "tests/kv/pattern.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime::kv::test {

using slime::test::patient;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline const Nanos kSoon = patient(seconds(10));  // a bound that only a failure reaches

// The value of a result that must have one.
template <class T>
T take(Result<T> result) {
  INFO(result.status().to_string());
  REQUIRE(result.has_value());
  return std::move(*result);
}

// Two layers of eight blocks; every field of a test that matters is set by the test.
inline Geometry small(std::uint32_t heads = 2, std::uint32_t degree = 1, std::uint32_t rank = 0) {
  return {.layers = 2,
          .blocks = 8,
          .block_tokens = 4,
          .heads = heads,
          .head_bytes = 16,
          .tp_degree = degree,
          .tp_rank = rank};
}

using Ids = std::vector<std::uint64_t>;

// One process: an agent with a cache.
struct Side {
  explicit Side(const Geometry& geometry, Progress progress = Progress::kThread) {
    PeerAgentOptions options;
    options.provider = slime::test::provider();
    options.progress = progress;
    agent = take(PeerAgent::start(std::move(options)));
    cache = take(Cache::allocate(*agent, geometry));
  }
  Remote connect_to(const Side& other) { return take(connect(agent->peer(other.agent->address()), cache)); }

  // The byte that belongs to a place of a cache that fill() has filled.
  [[nodiscard]] std::byte wanted(std::uint32_t layer, std::uint64_t block, std::size_t region,
                                 std::uint64_t offset) const {
    const std::uint64_t number = number_of(cache.geometry(), region, offset);
    return static_cast<std::byte>(1 + (number * 131 + number / 64 * 17 + block * 29 + layer * 101) % 251);
  }
  void fill() {
    each_byte([&](std::byte& byte, auto... place) { byte = wanted(place...); });
  }
  // Calls fn(byte, layer, block, region, offset in the block) for each byte.
  template <class F>
  void each_byte(F fn) {
    const Geometry& g = cache.geometry();
    const std::vector<RegionShape> shapes = g.regions();
    for (std::uint32_t layer = g.first_layer; layer < g.first_layer + g.layers; ++layer)
      for (std::uint32_t region = 0; region < shapes.size(); ++region)
        for (std::uint64_t block = 0; block < g.blocks; ++block)
          for (std::uint64_t at = 0; at < shapes[region].block_bytes; ++at)
            fn(cache.region(layer, region).data()[block * shapes[region].block_bytes + at], layer, block,
               region, at);
  }
  // Returns how many bytes differ from what they should be: block `to[i]` has the content of block
  // `from[i]`, every other block is zero.
  std::uint64_t wrong_bytes(const Ids& from, const Ids& to) {
    std::uint64_t wrong = 0;
    each_byte(
        [&](std::byte byte, std::uint32_t layer, std::uint64_t block, std::size_t region, std::uint64_t at) {
          std::byte right{0};
          for (std::size_t i = 0; i < to.size(); ++i)
            if (to[i] == block) right = wanted(layer, from[i], region, at);
          wrong += byte != right ? 1 : 0;
        });
    return wrong;
  }

  std::unique_ptr<PeerAgent> agent;
  Cache cache;
};

}  // namespace slime::kv::test
