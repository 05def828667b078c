#include "bench/sweep_commands.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"

namespace slime::bench {
namespace {

using command_line::Command;
using nlohmann::json;

struct P2pOptions {
  Options each{.bench = "p2p", .limits = false, .warmup_seconds = 0.02};
  std::vector<std::uint32_t> sizes{256,     1024,      4096,       16'384,     65'536,
                                   262'144, 1'048'576, 10'485'760, 104'857'600};
  std::vector<std::string> operations{"send", "read", "write"};
  std::uint32_t iovs = 1;
  std::uint32_t iterations = 10;
  std::string token_file;
};

Result<std::string> measure_p2p(const P2pOptions& settings) {
  SLIME_TRY(use_token(settings.token_file));
  Sweep sweep{.bench = "p2p",
              .columns = {"operation", "size", "iovs", "gbps", "gb_per_s", "latency_us", "p99_us"}};
  for (const std::string& operation : settings.operations) {
    for (const std::uint32_t size : settings.sizes) {
      if (size < settings.iovs)
        return Status(Code::kInvalidArgument, str("--iovs: at most the bytes of the least size, ", size));
      Options options = settings.each;
      options.operation = operation;
      options.count = settings.iovs;
      options.size = size / settings.iovs;
      options.iterations = settings.iterations;
      if (options.dual && operation != "send") {
        options.inflight = 2;
        options.iterations *= 2;
      }
      sweep.options.push_back(options);
    }
  }
  return measure_sweep(sweep, [](const Options& options, const json& report) -> Result<json> {
    // Of one direction, also where bytes go both ways.
    const double bytes = static_cast<double>(options.size) * options.count;
    const double each = report.at("ops_per_s").get<double>() / options.inflight;
    return json{{"operation", options.operation}, {"size", options.size * options.count},
                {"iovs", options.count},          {"gbps", each * bytes * 8 / 1e9},
                {"gb_per_s", each * bytes / 1e9}, {"latency_us", 1e6 / each},
                {"p99_us", report.at("p99_us")},  {"operations", report.at("operations")}};
  });
}

}  // namespace

void add_p2p(Command& bench) {
  auto settings = std::make_shared<P2pOptions>();
  Command command = bench.add_command("p2p", "Messages, reads and writes of several sizes, one at a time");
  command.footer(
      "Speeds are of one direction, latencies the mean of the operations.\n"
      "Examples:\n  slime bench p2p --op write,read --iovs 16\n  slime bench p2p --dual --to 10.0.0.7:4480");
  command.option("--op", settings->operations, "send, read, write; several are measured in turn")
      .split_at_commas()
      .one_of({"send", "read", "write"})
      .show_default();
  command.option("--sizes", settings->sizes, "bytes of an operation (256,64K,1M,...)")
      .split_at_commas()
      .as_size()
      .show_default("256 B to 100 MiB");
  command.option("--iters", settings->iterations, "operations of each size")
      .in_range(1, 10'000'000)
      .show_default();
  command
      .option("--iovs", settings->iovs, "parts of an operation, which share its bytes; of messages: so many")
      .in_range(1, 65'536)
      .show_default();
  command.flag("--dual", settings->each.dual,
               "both directions at once: a message each way, or a write and a read");
  add_provider(command, settings->each.provider);
  add_to(command, settings->each, settings->token_file);
  add_report(command, [settings] { return measure_p2p(*settings); });
}

}  // namespace slime::bench
