#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/load.h"
#include "bench/machine_limits.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

// Carries out the driver's commands. `provider` is the connection's.
Status serve_driver(Load& load, const Options& options, const std::string& provider) {
  SLIME_TRY(load.warm_up(to_nanos(options.warmup_seconds)));
  answer(str("READY ", provider));
  load.stop_after(options.iterations);
  LimitClient limits(limit_options(options));
  while (const auto command = read_command()) {
    if (*command == "GO") {
      Outcome out;
      SLIME_TRY(load.run(to_nanos(options.seconds), out));
      const auto verified = load.verify();
      if (!verified) return verified.error();
      const json sums = {{"operations", out.operations},
                         {"cpu", out.cpu},
                         {"work_requests", out.device.work_requests},
                         {"doorbells", out.device.doorbells},
                         {"completions", out.device.completions},
                         {"faults", out.faults},
                         {"beside_bytes", out.beside_bytes},
                         {"beside_seconds", out.beside_seconds},
                         {"blocks", out.blocks},
                         {"distinct", out.distinct}};
      const json result = {{"sums", sums},
                           {"seconds", out.seconds},
                           {"latency", out.latency.buckets()},
                           {"verified", out.verified && *verified}};
      answer(str("RESULT ", result.dump()));
    } else if (command->rfind("LIMIT ", 0) == 0) {
      const auto value = limits.measure(command->substr(6));
      if (!value) return value.error();
      answer(str("LIMIT ", json(*value).dump()));
    }
  }
  return {};
}

Result<LoadClient> make_client(const Options& options, const std::string& address, std::uint32_t index) {
  if (options.bench == "notify") return make_notify_load(options, address);
  if (options.bench == "connect") return make_connect_load(options, address);
  if (options.bench == "cache") return make_cache_load(options, address);
  if (options.sends()) return make_message_load(options, address);
  if (options.bench == "rpc") return make_call_load(options, address, index);
  return make_block_load(options, address, index);
}

}  // namespace

int run_client(const Options& options, const std::string& target) {
  // "host:port#index"
  const auto at = target.rfind('#');
  const auto index = at == std::string::npos
                         ? 0
                         : static_cast<std::uint32_t>(std::strtoul(target.c_str() + at + 1, nullptr, 10));
  auto client = make_client(options, target.substr(0, at), index);
  return exit_status_of(client ? serve_driver(*client->load, options, client->provider) : client.error());
}

}  // namespace slime::bench
