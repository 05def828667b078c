#include "bench/options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/str.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxRegion = std::uint64_t{4} << 30;

Status bad(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

Status validate_cold(const Options& options) {
  if (options.face != "peer" || options.bench != "bulk") return bad("--cold: bulk through agents");
  if (options.clients != 1) return bad("--cold: one client");
  if (options.pool_bytes > kMaxRegion) return bad("--pool-size: at most 4 GiB");
  const std::uint64_t blocks = options.pool_bytes / options.size;
  if (blocks / options.count < 2 || blocks / options.count < options.inflight)
    return bad("--pool-size: room for two operations at least, and for all that are under way");
  return {};
}

// Checks what the command line checks, too, for options that come from another host.
Status validate_numbers(const Options& options) {
  const auto within = [](std::uint64_t value, std::uint64_t most) { return value >= 1 && value <= most; };
  if (!within(options.count, 100'000)) return bad("--count: 1 to 100000");
  if (!within(options.inflight, 4096)) return bad("--inflight: 1 to 4096");
  if (!within(options.clients, 64)) return bad("--clients: 1 to 64");
  if (!within(options.threads, 64)) return bad("--threads: 1 to 64");
  return {};
}

Status validate_cache(const Options& options) {
  if (options.size > std::uint64_t{1} << 30) return bad("--size: 1 byte to 1 GiB");
  if (std::max(options.pool_bytes, options.size * options.count) > kMaxRegion)
    return bad("--working-set, --size x --batch: at most 4 GiB");
  return {};
}

}  // namespace

Status Options::validate() const {
  SLIME_TRY(validate_numbers(*this));
  if (size == 0) return bad("--size: at least 1 byte");
  if (bench == "connect") return size > kMaxRegion / 2 ? bad("--size: at most 2 GiB") : Status();
  if (bench == "cache") return validate_cache(*this);
  if (size > kMaxRegion / inflight / clients / count / 2)
    return bad("--size x --count x --inflight x --clients: at most 2 GiB");
  if (threads > 1 && face != "peer") return bad("--threads: with --face peer");
  if (inflight % threads != 0) return bad("--threads: each has as many of --inflight as the others");
  if (beside_bytes > 0 && (face != "peer" || clients != 1)) return bad("--beside: one client, --face peer");
  if (beside_bytes > kMaxRegion / 2) return bad("--beside: at most 2 GiB");
  if (face == "numbers" && count == 1) return bad("--face numbers: blocks");
  if (face == "channel" && mode != "caller")
    return bad("--face channel: callers drive the loop, so --mode caller");
  if (face == "channel" && provider == "auto")
    return bad("--provider auto: an agent chooses, and below agents there is nobody to do it; name one");
  if (cold) return validate_cold(*this);
  return {};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Options, bench, face, provider, mode, operation, size, count,
                                                memory, cold, pool_bytes, adjacent, inflight, threads,
                                                beside_bytes, dual, iterations, clients, seconds,
                                                warmup_seconds, host, insecure)

std::string Options::to_text() const { return json(*this).dump(); }

Result<Options> Options::parse(const std::string& text) {
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object()) return bad("the options of a child are one JSON object");
  try {
    return parsed.get<Options>();
  } catch (const json::exception& error) {
    return bad(error.what());
  }
}

}  // namespace slime::bench
