#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/idle.h"
#include "bench/roles.h"

namespace slime::bench {
namespace {

constexpr std::uint64_t kMaxRegion = std::uint64_t{4} << 30;

void add_provider(CLI::App& command, std::string& provider) {
  command.add_option("--provider", provider, "which fabric: both ends have the same one")
      ->envname("SLIME_PROVIDER")
      ->check(CLI::IsMember(PeerAgent::provider_names()))
      ->capture_default_str();
}

void add_options(CLI::App& command, Options& options) {
  const bool blocks = options.moves_blocks();
  add_provider(command, options.provider);
  if (options.bench == "rpc" || options.bench == "bulk") {
    command.add_option("--mode", options.mode, "thread: waits block; caller: waits spin and drive the loop")
        ->check(CLI::IsMember({"thread", "caller"}))
        ->capture_default_str();
    command
        .add_option("--face", options.face, "peer: agents; channel: below them, and callers drive the loop")
        ->check(CLI::IsMember({"peer", "channel"}))
        ->capture_default_str();
  }
  command
      .add_option("--size", options.size,
                  blocks ? "bytes of a block (64K, 1M, ...)" : "bytes that go there, and back")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  if (options.bench != "notify") {
    command.add_option("--inflight", options.inflight, "operations under way, of each client")
        ->capture_default_str();
    command.add_option("--clients", options.clients, "client processes")->capture_default_str();
  }
  command.add_option("--seconds", options.seconds, "how long to measure")->capture_default_str();
  command.add_option("--warmup", options.warmup_seconds, "seconds before it counts")->capture_default_str();
  if (blocks) {
    command.add_option("--op", options.operation, "write or read")
        ->check(CLI::IsMember({"write", "read"}))
        ->capture_default_str();
  }
  if (options.bench == "blocks") {
    command.add_option("--count", options.count, "blocks of one batch")->capture_default_str();
    command.add_flag("--adjacent", options.adjacent, "one behind the other, not with gaps");
  }
}

// What each measurement begins with.
Options options_of(const std::string& bench) {
  Options out;
  out.bench = bench;
  if (bench == "bulk") {
    out.size = 1 << 20;
    out.inflight = 16;
  } else if (bench == "blocks") {
    out.size = 1024;
    out.count = 1538;
  }
  // These are about what an endpoint does.
  if (bench == "blocks" || bench == "notify") {
    out.face = "channel";
    out.mode = "caller";
  }
  return out;
}

int report_failure(const Status& status) {
  std::fprintf(stderr, "slime bench: %s\n", status.to_string().c_str());
  return status.code() == Code::kCancelled ? 130 : status.code() == Code::kInvalidArgument ? 2 : 1;
}

int run_idle(const IdleOptions& options, bool as_json) {
  const auto report = measure_idle(options);
  if (!report) return report_failure(report.error());
  if (as_json) {
    std::printf("%s\n", report->c_str());
    return 0;
  }
  const auto j = nlohmann::json::parse(*report);
  std::printf(
      "idle agent, %u peers: %.3f %% of a core, %.0f ms to connect them all, %.0f KiB resident per peer\n",
      j.at("peers").get<unsigned>(), j.at("cpu_percent").get<double>(), j.at("connect_ms").get<double>(),
      j.at("rss_kib_per_peer").get<double>());
  return 0;
}

// What a device was given, where there is one: a line.
std::string format_device_work(const nlohmann::json& report) {
  if (!report.contains("per_operation")) return {};
  const auto each = [&](const char* key) { return report.at("per_operation").at(key).get<double>(); };
  char text[256];
  std::snprintf(
      text, sizeof text,
      "\n  each operation: %.2f work requests, %.2f doorbells, %.2f completions; %.0f work requests/s",
      each("work_requests"), each("doorbells"), each("completions"),
      report.at("work_requests_per_s").get<double>());
  return text;
}

int run_and_print(const Options& options, bool as_json) {
  const auto report = measure(options);
  if (!report) return report_failure(report.error());
  std::printf("%s\n", as_json ? report->c_str() : format_report(*report).c_str());
  return nlohmann::json::parse(*report).at("verified").get<bool>() ? 0 : 1;
}

}  // namespace

Status Options::validate() const {
  if (size == 0) return {Code::kInvalidArgument, "--size: at least 1 byte"};
  if (inflight == 0 || inflight > 4096) return {Code::kInvalidArgument, "--inflight: 1 to 4096"};
  if (clients == 0 || clients > 64) return {Code::kInvalidArgument, "--clients: 1 to 64"};
  if (!(seconds > 0) || seconds > 3600)
    return {Code::kInvalidArgument, "--seconds: more than 0, at most 3600"};
  if (!(warmup_seconds >= 0) || warmup_seconds > 3600) return {Code::kInvalidArgument, "--warmup: 0 to 3600"};
  if (count == 0 || count > 65536) return {Code::kInvalidArgument, "--count: 1 to 65536"};
  if (size > kMaxRegion / inflight / clients / count / 2) {
    return {Code::kInvalidArgument, "--size x --count x --inflight x --clients: at most 2 GiB"};
  }
  if (face == "channel" && mode != "caller")
    return {Code::kInvalidArgument, "--face channel: callers drive the loop, so --mode caller"};
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
  if (moves_blocks()) add("--op", operation);
  if (bench == "blocks") add("--count", str(count));
  if (adjacent) out.emplace_back("--adjacent");
  return out;
}

std::string format_report(const std::string& report) {
  const auto j = nlohmann::json::parse(report);
  const auto number = [&](const char* key) { return j.at(key).get<double>(); };
  char text[512];
  std::snprintf(text, sizeof text,
                "%s %s %s, %llu B, %u in flight, %u client%s: p50 %.1f us, p99 %.1f us, p99.9 %.1f us, %.0f "
                "ops/s, %.3f GB/s, "
                "%.2f CPU s/GiB, %s\n",
                j.at("bench").get<std::string>().c_str(), j.at("provider").get<std::string>().c_str(),
                j.at("mode").get<std::string>().c_str(),
                static_cast<unsigned long long>(j.at("size").get<std::uint64_t>()),
                j.at("inflight").get<unsigned>(), j.at("clients").get<unsigned>(),
                j.at("clients").get<unsigned>() == 1 ? "" : "s", number("p50_us"), number("p99_us"),
                number("p999_us"), number("ops_per_s"), number("gb_per_s"), number("cpu_s_per_gib"),
                j.at("verified").get<bool>() ? "data verified" : "WRONG DATA");
  char limit[256];
  std::snprintf(limit, sizeof limit, "  limit in the same run: %s %.2f; ratio %.2f (memcpy %.1f GB/s)",
                j.at("limit").at("name").get<std::string>().c_str(), j.at("limit").at("value").get<double>(),
                number("ratio_to_limit"), number("memcpy_gb_per_s"));
  return std::string(text) + limit + format_device_work(j);
}

void add_commands(CLI::App& app, int& exit_code) {
  auto* bench =
      app.add_subcommand("bench", "Measure calls and bulk transfers between processes on this machine");
  bench->require_subcommand(1);
  const std::pair<const char*, const char*> kinds[] = {
      {"rpc", "Echo calls"},
      {"bulk", "One-sided reads or writes of blocks"},
      {"blocks", "Batches of many small blocks, each batch one operation"},
      {"notify", "Writes with an immediate, there and back: half a round trip"}};
  for (const auto& [name, text] : kinds) {
    auto options = std::make_shared<Options>(options_of(name));
    auto as_json = std::make_shared<bool>(false);
    auto* command = bench->add_subcommand(name, text);
    add_options(*command, *options);
    command->add_flag("--json", *as_json, "one JSON object on one line");
    command->callback([options, as_json, &exit_code] { exit_code = run_and_print(*options, *as_json); });
  }
  auto idle_options = std::make_shared<IdleOptions>();
  auto idle_json = std::make_shared<bool>(false);
  auto* idle = bench->add_subcommand("idle", "What a connected agent costs that does nothing");
  idle->add_option("--peers", idle_options->peers, "connections")->capture_default_str();
  idle->add_option("--seconds", idle_options->seconds, "how long to measure")->capture_default_str();
  idle->add_option("--ctrl", idle_options->ctrl_url, "with a registry: its URL (heartbeats count)");
  add_provider(*idle, idle_options->provider);
  idle->add_flag("--json", *idle_json, "one JSON object on one line");
  idle->callback([idle_options, idle_json, &exit_code] { exit_code = run_idle(*idle_options, *idle_json); });
  auto peer_count = std::make_shared<std::uint32_t>(0);
  auto* peers = app.add_subcommand("bench-peers", "")->group("");
  peers->add_option("count", *peer_count)->required();
  auto peer_provider = std::make_shared<std::string>("tcp");
  add_provider(*peers, *peer_provider);
  peers->callback(
      [peer_count, peer_provider, &exit_code] { exit_code = run_peers(*peer_count, *peer_provider); });
  // The processes of a measurement: this program again. Hidden (an empty group), spoken to by the driver.
  for (const char* role_name : {"bench-server", "bench-client"}) {
    const bool client = std::string_view(role_name) == "bench-client";
    auto address = std::make_shared<std::string>();
    auto* role = app.add_subcommand(role_name, "")->group("");
    role->require_subcommand(1);
    if (client) role->add_option("address", *address)->required();
    for (const auto& kind : kinds) {
      auto options = std::make_shared<Options>(options_of(kind.first));
      auto* command = role->add_subcommand(kind.first, "");
      add_options(*command, *options);
      command->callback([options, address, client, &exit_code] {
        exit_code = client ? run_client(*options, *address) : run_server(*options);
      });
    }
  }
}

}  // namespace slime::bench
