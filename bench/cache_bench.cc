#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/histogram.h"
#include "bench/load.h"
#include "bench/machine_limits.h"
#include "bench/process.h"
#include "bench/shared.h"
#include "cache/client.h"
#include "cache/server.h"

namespace slime::bench {
namespace {

using cache::CacheClient;
using nlohmann::json;

constexpr const char* kSpace = "bench";
constexpr std::uint64_t kMostObjects = 4096;
constexpr std::uint64_t kLeastSlab = 4096;
constexpr std::uint64_t kLeastArena = std::uint64_t{64} << 20;
// A replacement lies beside the old object until it is sealed, and the cache evicts before it is
// full.
constexpr std::uint64_t kArenaPerObject = 3;
// Smaller objects are limited by round trips, larger ones by bytes.
constexpr std::uint64_t kBulkFrom = 64 << 10;

std::uint64_t object_count(const CacheOptions& options) {
  const std::uint64_t count =
      std::clamp<std::uint64_t>(options.working_set / options.size, options.batch, kMostObjects);
  return count / options.batch * options.batch;
}

bool about_bytes(const CacheOptions& options) { return options.size * options.batch >= kBulkFrom; }

// Returns options of calls, or of blocks, with the same bytes: they choose the limit.
Options limit_options(const CacheOptions& options) {
  Options out;
  out.provider = options.provider;
  out.mode = options.mode;
  out.size = options.size;
  out.seconds = options.seconds;
  if (about_bytes(options)) {
    out.bench = "bulk";
    out.operation = options.operation == "put" ? "write" : "read";
    out.inflight = static_cast<std::uint32_t>(object_count(options));
  }
  return out;
}

Status validate(const CacheOptions& options) {
  if (options.size == 0 || options.size > std::uint64_t{1} << 30)
    return {Code::kInvalidArgument, "--size: 1 byte to 1 GiB"};
  if (options.batch == 0 || options.batch > 1024) return {Code::kInvalidArgument, "--batch: 1 to 1,024"};
  if (!(options.seconds > 0) || options.seconds > 3600)
    return {Code::kInvalidArgument, "--seconds: more than 0, at most 3600"};
  if (std::max(options.working_set, options.size * options.batch) > std::uint64_t{4} << 30)
    return {Code::kInvalidArgument, "--working-set, --size x --batch: at most 4 GiB"};
  return {};
}

// A client of the cache, in this process.
class CacheLoad {
 public:
  CacheLoad(CacheClient client, const CacheOptions& options)
      : options_(options), client_(std::move(client)) {}

  Status prepare(PeerAgent& agent) {
    const std::uint64_t count = object_count(options_);
    for (MemoryRegion* region : {&source_, &target_}) {
      auto made = agent.allocate(count * options_.size, Rights::kLocal);
      if (!made) return std::move(made).error();
      *region = std::move(*made);
    }
    Rng(kSeed).fill(source_.bytes());
    for (std::uint64_t i = 0; i < count; ++i) keys_.push_back(str("object-", i));
    for (std::uint64_t i = 0; i < count; i += options_.batch) SLIME_TRY(put(i));
    return get_all();
  }

  Status run(Nanos span, Figures& figures) {
    Histogram latency;
    const std::uint64_t faults = page_faults();
    const TimePoint begin = steady_clock().now();
    TimePoint now = begin;
    for (std::uint64_t i = 0; now - begin < span && !interrupted(); i = (i + options_.batch) % keys_.size()) {
      const TimePoint start = now;
      SLIME_TRY(options_.operation == "put" ? put(i) : get(i));
      now = steady_clock().now();
      latency.add(static_cast<std::uint64_t>((now - start).count()));
    }
    const double seconds = std::chrono::duration<double>(now - begin).count();
    const double objects = static_cast<double>(latency.count()) * options_.batch;
    figures.add("p50_us", latency.quantile(0.5) / 1000);
    figures.add("p99_us", latency.quantile(0.99) / 1000);
    figures.add("ops_per_s", objects / seconds);
    figures.add("gb_per_s", objects * static_cast<double>(options_.size) / seconds / 1e9);
    figures.add("faults_per_operation",
                static_cast<double>(page_faults() - faults) / static_cast<double>(latency.count()));
    return {};
  }

  // Returns whether the cache holds the bytes that were put.
  Result<bool> verify() {
    std::ranges::fill(target_.bytes(), std::byte{0});
    SLIME_TRY(get_all());
    return std::ranges::equal(source_.bytes(), target_.bytes());
  }

 private:
  Status get_all() {
    for (std::uint64_t i = 0; i < keys_.size(); i += options_.batch) SLIME_TRY(get(i));
    return {};
  }
  Status put(std::uint64_t first) {
    if (options_.batch == 1) {
      return client_.put(kSpace, keys_[first], {source_, first * options_.size, options_.size},
                         {.replace = true});
    }
    std::vector<cache::PutItem> items;
    for (std::uint64_t i = first; i < first + options_.batch; ++i) {
      items.push_back({keys_[i], {source_, i * options_.size, options_.size}});
    }
    for (Status& outcome : client_.put_many(kSpace, items, {.replace = true})) SLIME_TRY(std::move(outcome));
    return {};
  }
  Status get(std::uint64_t first) {
    if (options_.batch == 1)
      return client_.get(kSpace, keys_[first], {target_, first * options_.size, options_.size}).status();
    std::vector<cache::GetItem> items;
    for (std::uint64_t i = first; i < first + options_.batch; ++i) {
      items.push_back({keys_[i], {target_, i * options_.size, options_.size}});
    }
    for (auto& outcome : client_.get_many(kSpace, items)) SLIME_TRY(outcome.status());
    return {};
  }

  const CacheOptions options_;
  CacheClient client_;
  MemoryRegion source_;
  MemoryRegion target_;
  std::vector<std::string> keys_;
};

Status serve_cache(const CacheOptions& options) {
  auto agent = PeerAgent::start(agent_options(limit_options(options), "bench-cache"));
  if (!agent) return std::move(agent).error();
  const std::uint64_t bytes = object_count(options) * std::max(options.size, kLeastSlab) * kArenaPerObject;
  auto server = cache::CacheServer::start(**agent, {.memory_bytes = std::max(bytes, kLeastArena)});
  if (!server) return std::move(server).error();
  answer(str("READY ", (*agent)->address()));
  if (options.mode == "caller") {
    serve_commands(limit_options(options), [&] { (*agent)->poll(kServerPoll); });
  } else {
    serve_commands(limit_options(options));
  }
  SLIME_TRY((*server)->close());
  return (*agent)->close();
}

}  // namespace

int run_cache_server(const CacheOptions& options) {
  const Status status = serve_cache(options);
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

Result<std::string> measure_cache(const CacheOptions& options) {
  SLIME_TRY(validate(options));
  install_interrupt_flag();
  json out = {{"bench", "cache"},           {"mode", options.mode},     {"operation", options.operation},
              {"size", options.size},       {"batch", options.batch},   {"objects", object_count(options)},
              {"seconds", options.seconds}, {"rounds", options.rounds}, {"machine", machine_facts()}};
  auto server = Child::start({"bench-cache-server", "--provider", options.provider, "--mode", options.mode,
                              "--size", str(options.size), "--batch", str(options.batch), "--working-set",
                              str(options.working_set)});
  if (!server) return std::move(server).error();
  const auto address = server->expect("READY", kAnswer);
  if (!address) return address.error();
  const Options for_limit = limit_options(options);
  auto agent = PeerAgent::start(agent_options(for_limit, "bench-cache-client"));
  if (!agent) return std::move(agent).error();
  auto client = CacheClient::create(**agent, *address);
  if (!client) return std::move(client).error();
  CacheLoad load(*std::move(client), options);
  SLIME_TRY(load.prepare(**agent));
  const std::string provider = (*agent)->peer(*address).info().provider;
  const Limit limit = choose_limit(for_limit, provider);
  LimitClient limits(for_limit);
  Figures figures;
  bool verified = true;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    SLIME_TRY(load.run(to_nanos(options.seconds), figures));
    if (interrupted()) return Status(Code::kCancelled, "interrupted");
    const auto right = load.verify();
    if (!right) return right.error();
    verified = verified && *right;
    const auto values = measure_limit(
        limit, for_limit, *server, [&limits](const std::string& command) { return limits.measure(command); });
    if (!values) return values.error();
    for (const LimitValue& value : *values) figures.add_limit(value.value, value.variant);
  }
  out["provider"] = provider;
  out["verified"] = verified;
  figures.put(out, limit);
  return out.dump();
}

}  // namespace slime::bench
