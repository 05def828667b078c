// Objects in and out of a cache server, from and to registered memory.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "bench/load.h"
#include "bench/shared.h"
#include "cache/client.h"
#include "cache/server.h"

namespace slime::bench {
namespace {

using cache::CacheClient;

constexpr const char* kSpace = "bench";
constexpr std::uint64_t kLeastSlab = 4096;
constexpr std::uint64_t kLeastArena = std::uint64_t{64} << 20;
// A replacement lies beside the old object until it is sealed, and the cache evicts before it is
// full.
constexpr std::uint64_t kArenaPerObject = 3;

class CacheLoad final : public Load {
 public:
  CacheLoad(std::unique_ptr<PeerAgent> agent, CacheClient client, const Options& options)
      : Load(1, false), options_(options), agent_(std::move(agent)), client_(std::move(client)) {}

  // Puts and gets each object once.
  Status prepare() {
    const std::uint64_t count = object_count(options_);
    for (MemoryRegion* region : {&source_, &target_}) {
      auto made = agent_->allocate(count * options_.size, Rights::kLocal);
      if (!made) return std::move(made).error();
      *region = std::move(*made);
    }
    Rng(kSeed).fill(source_.bytes());
    for (std::uint64_t i = 0; i < count; ++i) keys_.push_back(str("object-", i));
    for (std::uint64_t i = 0; i < count; i += options_.count) SLIME_TRY(put(i));
    return get_all();
  }

  // Returns whether the cache holds the bytes that were put.
  Result<bool> verify() override {
    std::ranges::fill(target_.bytes(), std::byte{0});
    SLIME_TRY(get_all());
    return std::ranges::equal(source_.bytes(), target_.bytes());
  }

 private:
  // get() and put() block.
  Status start(std::uint32_t) override {
    const std::uint64_t first = std::exchange(next_, (next_ + options_.count) % keys_.size());
    return options_.operation == "put" ? put(first) : get(first);
  }
  Status finish(std::uint32_t) override { return {}; }

  Status get_all() {
    for (std::uint64_t i = 0; i < keys_.size(); i += options_.count) SLIME_TRY(get(i));
    return {};
  }
  Status put(std::uint64_t first) {
    if (options_.count == 1) {
      return client_.put(kSpace, keys_[first], {source_, first * options_.size, options_.size},
                         {.replace = true});
    }
    std::vector<cache::PutItem> items;
    for (std::uint64_t i = first; i < first + options_.count; ++i) {
      items.push_back({keys_[i], {source_, i * options_.size, options_.size}});
    }
    for (Status& outcome : client_.put_many(kSpace, items, {.replace = true})) SLIME_TRY(std::move(outcome));
    return {};
  }
  Status get(std::uint64_t first) {
    if (options_.count == 1)
      return client_.get(kSpace, keys_[first], {target_, first * options_.size, options_.size}).status();
    std::vector<cache::GetItem> items;
    for (std::uint64_t i = first; i < first + options_.count; ++i) {
      items.push_back({keys_[i], {target_, i * options_.size, options_.size}});
    }
    for (auto& outcome : client_.get_many(kSpace, items)) SLIME_TRY(outcome.status());
    return {};
  }

  const Options options_;
  const std::unique_ptr<PeerAgent> agent_;
  CacheClient client_;
  MemoryRegion source_;
  MemoryRegion target_;
  std::vector<std::string> keys_;
  std::uint64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<cache::CacheServer>> start_cache_server(PeerAgent& agent, const Options& options) {
  const std::uint64_t bytes = object_count(options) * std::max(options.size, kLeastSlab) * kArenaPerObject;
  return cache::CacheServer::start(agent, {.memory_bytes = std::max(bytes, kLeastArena)});
}

Result<LoadClient> make_cache_load(const Options& options, const std::string& address) {
  auto agent = PeerAgent::start(agent_options(options, "bench-cache-client"));
  if (!agent) return std::move(agent).error();
  auto client = CacheClient::create(**agent, address);
  if (!client) return std::move(client).error();
  PeerAgent& peers = **agent;
  auto load = std::make_unique<CacheLoad>(std::move(*agent), *std::move(client), options);
  SLIME_TRY(load->prepare());
  return LoadClient{std::move(load), peers.peer(address).info().provider};
}

}  // namespace slime::bench
