#include "bench/sweep_commands.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve.h"

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
              .columns = {"operation", "size", "iovs", "gbps", "gb_per_s", "latency_us", "p50_us"}};
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
                {"p50_us", report.at("p50_us")},  {"operations", report.at("operations")}};
  });
}

struct TransferOptions {
  Options each{.bench = "bulk", .operation = "read", .count = 160, .inflight = 1, .limits = false};
  std::string mode = "initiator";
  std::string local = "127.0.0.1:0";  // of a target
  std::string device;
  std::vector<std::uint32_t> sizes{8192,    16'384,  32'768,    65'536,   128'000,
                                   256'000, 512'000, 1'024'000, 2'048'000};
  bool insecure = false;
  std::string token_file;
};

Result<std::string> measure_transfer(const TransferOptions& settings) {
  Sweep sweep{.bench = "transfer",
              .columns = {"batch_size", "block_size", "trips", "transferred_mib", "duration_s", "latency_ms",
                          "throughput_mib_s"}};
  for (const std::uint32_t size : settings.sizes) {
    sweep.options.push_back(settings.each);
    sweep.options.back().size = size;
  }
  return measure_sweep(sweep, [](const Options& options, const json& report) -> Result<json> {
    const double trips = report.at("operations");
    const double seconds = report.at("measured_seconds");
    const double mib = trips * static_cast<double>(options.size) * options.count / (1 << 20);
    return json{{"operation", options.operation},
                {"batch_size", options.count},
                {"block_size", options.size},
                {"trips", trips},
                {"transferred_mib", mib},
                {"duration_s", seconds},
                {"latency_ms", seconds / trips * 1e3},
                {"throughput_mib_s", mib / seconds}};
  });
}

// Serves the initiators, as `slime bench serve` does.
Result<std::string> serve_transfers(const TransferOptions& settings) {
  ServeOptions options;
  options.listen = settings.local;
  options.insecure = settings.insecure;
  return serve_measurements(options);
}

Result<std::string> run_transfer(const TransferOptions& settings) {
  SLIME_TRY(use_token(settings.token_file));
  if (!settings.device.empty()) ::setenv("SLIME_VERBS_DEVICE", settings.device.c_str(), 1);
  return settings.mode == "target" ? serve_transfers(settings) : measure_transfer(settings);
}

// Measures the same blocks through another face.
Result<json> measure_face(Options options, const char* face, bool limits) {
  options.face = face;
  options.limits = limits;
  auto report = measure_one(options);
  if (report && !report->at("verified").get<bool>())
    return Status(Code::kCorrupt, str("wrong data of face ", face));
  return report;
}

}  // namespace

Result<std::string> measure_blocks(const BlocksSweep& settings) {
  Sweep sweep{.bench = "blocks",
              .columns = {"size", "count", "gb_per_s", "p50_us", "limit_gb_per_s", "ratio_to_limit"}};
  if (settings.prepared)
    sweep.columns.insert(sweep.columns.end(), {"prepared_gb_per_s", "prepared_ratio_to_limit"});
  if (settings.naive) sweep.columns.insert(sweep.columns.end(), {"naive_gb_per_s", "ratio_to_naive"});
  for (const std::uint32_t size : settings.sizes) {
    sweep.options.push_back(settings.each);
    sweep.options.back().size = size;
  }
  return measure_sweep(sweep, [&](const Options& options, const json& report) -> Result<json> {
    json row = {{"operation", options.operation},
                {"size", options.size},
                {"count", options.count},
                {"gb_per_s", report.at("gb_per_s")},
                {"p50_us", report.at("p50_us")},
                {"limit_gb_per_s", report.at("limit").at("value")},
                {"ratio_to_limit", report.at("ratio_to_limit")}};
    if (settings.prepared) {
      const auto prepared = measure_face(options, "prepared", true);
      if (!prepared) return prepared.error();
      row["prepared_gb_per_s"] = prepared->at("gb_per_s");
      row["prepared_ratio_to_limit"] = prepared->at("ratio_to_limit");  // measured beside it
    }
    if (settings.naive) {
      const auto naive = measure_face(options, "naive", false);
      if (!naive) return naive.error();
      row["naive_gb_per_s"] = naive->at("gb_per_s");
      row["ratio_to_naive"] = report.at("gb_per_s").get<double>() / naive->at("gb_per_s").get<double>();
    }
    return row;
  });
}

void add_transfer(Command& bench) {
  auto settings = std::make_shared<TransferOptions>();
  Command command = bench.add_command(
      "transfer", "Batches of blocks of nine sizes: the flags and the table of DLSlime's transfer_bench");
  command.footer(
      "Without --remote-endpoint the target is a process on this host. --mode target is `slime bench "
      "serve`.\n"
      "Examples:\n  slime bench transfer --mode target --local-endpoint 10.0.0.7:8000 --token-file secret\n"
      "  slime bench transfer --remote-endpoint 10.0.0.7:8000 --token-file secret --duration 10");
  command.option("--mode", settings->mode, "initiator: measures; target: serves until Ctrl-C")
      .one_of({"initiator", "target"})
      .show_default();
  command.option("--local-endpoint", settings->local,
                 "HOST:PORT where a target listens; an initiator listens nowhere");
  command.option("--remote-endpoint", settings->each.to, "HOST:PORT of the target; the same as --to");
  command.option("--device-name", settings->device, "adapter of verbs; else $SLIME_VERBS_DEVICE");
  command.option("--block-size", settings->sizes, "bytes of a block, several are measured in turn")
      .split_at_commas()
      .as_size()
      .show_default("nine from 8192 to 2048000");
  command.option("--batch-size", settings->each.count, "blocks of an operation")
      .in_range(1, 65'536)
      .show_default();
  command.option("--duration", settings->each.seconds, "seconds of each size")
      .in_range(0.001, 3600.0)
      .show_default();
  command.option("--op", settings->each.operation, "read or write").one_of({"read", "write"}).show_default();
  command.flag("--insecure", settings->insecure, "a target listens off loopback without a token");
  add_provider(command, settings->each.provider);
  add_to(command, settings->each, settings->token_file);
  add_report(command, [settings] { return run_transfer(*settings); });
}

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
