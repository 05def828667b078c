#include "bench/options.h"

#include "base/str.h"

namespace slime::bench {
namespace {

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

}  // namespace

Status Options::validate() const {
  if (size == 0) return bad("--size: at least 1 byte");
  if (inflight == 0 || inflight > 4096) return bad("--inflight: 1 to 4096");
  if (clients == 0 || clients > 64) return bad("--clients: 1 to 64");
  if (!(seconds > 0) || seconds > 3600) return bad("--seconds: more than 0, at most 3600");
  if (!(warmup_seconds >= 0) || warmup_seconds > 3600) return bad("--warmup: 0 to 3600");
  if (count == 0 || count > 65536) return bad("--count: 1 to 65536");
  if (rounds == 0 || rounds > 1000) return bad("--rounds: 1 to 1000");
  if (size > kMaxRegion / inflight / clients / count / 2)
    return bad("--size x --count x --inflight x --clients: at most 2 GiB");
  if (face == "channel" && mode != "caller")
    return bad("--face channel: callers drive the loop, so --mode caller");
  if (face == "channel" && provider == "auto")
    return bad("--provider auto: an agent chooses, and below agents there is nobody to do it; name one");
  if (cold) return validate_cold(*this);
  return {};
}

std::vector<std::string> Options::to_arguments() const {
  std::vector<std::string> out = {bench,        "--provider",         provider,
                                  "--size",     std::to_string(size), "--seconds",
                                  str(seconds), "--warmup",           str(warmup_seconds)};
  const auto add = [&out](const char* flag, std::string value) {
    out.emplace_back(flag);
    out.push_back(std::move(value));
  };
  if (bench == "rpc" || bench == "bulk") {
    add("--mode", mode);
    add("--face", face);
  }
  if (bench != "notify") {
    add("--inflight", str(inflight));
    add("--clients", str(clients));
  }
  if (moves_blocks()) {
    add("--op", operation);
    add("--count", str(count));
  }
  if (bench == "bulk") {
    add("--memory", memory);
    add("--pool-size", str(pool_bytes));
    if (cold) out.emplace_back("--cold");
  }
  if (adjacent) out.emplace_back("--adjacent");
  return out;
}

}  // namespace slime::bench
