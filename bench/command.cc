#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "bench/all.h"
#include "bench/bench.h"
#include "bench/cache_bench.h"
#include "bench/connect.h"
#include "bench/ctrl_bench.h"
#include "bench/idle.h"
#include "bench/present.h"
#include "bench/roles.h"

namespace slime::bench {
namespace {

constexpr std::uint32_t kColdCount = 16;  // blocks of one operation, of which one is under way

constexpr std::pair<const char*, const char*> kKinds[] = {
    {"rpc", "Echo calls"},
    {"bulk", "One-sided reads or writes of blocks"},
    {"blocks", "Batches of many small blocks, each batch one operation"},
    {"notify", "Writes with an immediate, there and back: half a round trip"}};

void add_provider(CLI::App& command, std::string& provider) {
  command.add_option("--provider", provider, "which fabric: one that both ends get, or auto")
      ->envname("SLIME_PROVIDER")
      ->check(CLI::IsMember(PeerAgent::provider_names()))
      ->capture_default_str();
}

void add_mode(CLI::App& command, std::string& mode) {
  command.add_option("--mode", mode, "thread: waits block; caller: waits spin and drive the loop")
      ->check(CLI::IsMember({"thread", "caller"}))
      ->capture_default_str();
}

void add_rounds(CLI::App& command, std::uint32_t& rounds) {
  command.add_option("--rounds", rounds, "measurement and limit in turns; medians count")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void add_block_options(CLI::App& command, Options& options) {
  command.add_option("--op", options.operation, "write or read")
      ->check(CLI::IsMember({"write", "read"}))
      ->capture_default_str();
  command.add_option("--count", options.count, "blocks of one operation")->capture_default_str();
  if (options.bench == "blocks") {
    command.add_flag("--adjacent", options.adjacent, "one behind the other, not with gaps");
    return;
  }
  command.add_option("--memory", options.memory, "slime: allocated by it; foreign: the program's own")
      ->check(CLI::IsMember({"slime", "foreign"}))
      ->capture_default_str();
  command.add_flag(
      "--cold", options.cold,
      "random blocks between two pools, in batches of 16, one under way; else the same blocks again");
  command.add_option("--pool-size", options.pool_bytes, "cold: bytes of each pool; the limit needs two more")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

void add_options(CLI::App& command, Options& options) {
  const bool blocks = options.moves_blocks();
  add_provider(command, options.provider);
  if (options.bench == "rpc" || options.bench == "bulk") {
    add_mode(command, options.mode);
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
  if (blocks) add_block_options(command, options);
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
    out.provider = "tcp";  // an endpoint has one
  }
  return out;
}

// What was not said and depends on what was.
void settle(const CLI::App& command, Options& options) {
  if (!options.cold) return;
  if (command.count("--count") == 0) options.count = kColdCount;
  if (command.count("--inflight") == 0) options.inflight = 1;
}

int report_failure(const Status& status) {
  std::fprintf(stderr, "slime bench: %s\n", status.to_string().c_str());
  return status.code() == Code::kCancelled ? 130 : status.code() == Code::kInvalidArgument ? 2 : 1;
}

// The report goes to stdout; so does the failure in JSON, for programs.
int print_report(const Result<std::string>& report, bool as_json) {
  if (!report) {
    if (as_json) std::printf("%s\n", nlohmann::json{{"error", report.error().to_string()}}.dump().c_str());
    return report_failure(report.error());
  }
  std::printf("%s\n", as_json ? report->c_str() : format_report(*report).c_str());
  return nlohmann::json::parse(*report).value("verified", true) ? 0 : 1;
}

template <class Settings, class Measure>
void add_measurement(CLI::App& command, std::shared_ptr<Settings> settings, int& exit_code, Measure measure) {
  auto as_json = std::make_shared<bool>(false);
  command.add_flag("--json", *as_json, "one JSON object on one line");
  command.callback(
      [settings, as_json, measure, &exit_code] { exit_code = print_report(measure(*settings), *as_json); });
}

void add_transfers(CLI::App& bench, int& exit_code) {
  for (const auto& [name, text] : kKinds) {
    auto options = std::make_shared<Options>(options_of(name));
    auto* command = bench.add_subcommand(name, text);
    add_options(*command, *options);
    add_rounds(*command, options->rounds);
    add_measurement(*command, options, exit_code, [command](Options& settings) {
      settle(*command, settings);
      return measure(settings);
    });
  }
}

void add_cache_options(CLI::App& command, CacheOptions& options) {
  add_provider(command, options.provider);
  add_mode(command, options.mode);
  command.add_option("--size", options.size, "bytes of an object (64K, 1M, ...)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command.add_option("--batch", options.batch, "objects of one get_many or put_many")->capture_default_str();
  command.add_option("--working-set", options.working_set, "bytes of the objects, at most 4,096 of them")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

void add_cache(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<CacheOptions>();
  auto* command = bench.add_subcommand("cache", "Objects in or out of a cache server in another process");
  add_cache_options(*command, *options);
  command->add_option("--op", options->operation, "get or put")
      ->check(CLI::IsMember({"get", "put"}))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "how long to measure")->capture_default_str();
  add_rounds(*command, options->rounds);
  add_measurement(*command, options, exit_code, measure_cache);
}

void add_connect(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<ConnectOptions>();
  auto* command = bench.add_subcommand("connect", "From a new agent to the reply of its first call");
  add_provider(*command, options->provider);
  add_mode(*command, options->mode);
  command->add_option("--count", options->count, "new agents, in each round")->capture_default_str();
  command->add_option("--size", options->size, "bytes of the call, and of its reply")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  add_rounds(*command, options->rounds);
  add_measurement(*command, options, exit_code, measure_connect);
}

void add_idle(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<IdleOptions>();
  auto* command = bench.add_subcommand("idle", "What a connected agent costs that does nothing");
  command->add_option("--peers", options->peers, "connections")->capture_default_str();
  command->add_option("--calls", options->calls, "to each peer, before")->capture_default_str();
  command->add_option("--seconds", options->seconds, "how long it does nothing")->capture_default_str();
  command->add_option("--ctrl", options->ctrl_url, "with a registry: its URL (heartbeats count)");
  add_provider(*command, options->provider);
  add_measurement(*command, options, exit_code, measure_idle);
}

void add_ctrl_server_options(CLI::App& command, CtrlOptions& options) {
  command
      .add_option(
          "--ctrl", options.urls,
          "http://HOST:PORT[,...]: an agent uses the first that answers, and goes on to the next when its "
          "connection breaks; else a nanoctrl of our own for each number of agents")
      ->delimiter(',');
  command
      .add_option("--server-pid", options.pids,
                  "with --ctrl: whose CPU and memory count, one process or more")
      ->delimiter(',');
  command
      .add_option("--store", options.stores,
                  "memory, sqlite or redis, several are measured in turn: where a nanoctrl of our own keeps "
                  "things, in a temporary folder or a redis-server that is started for it; else sqlite")
      ->delimiter(',')
      ->check(CLI::IsMember({"memory", "sqlite", "redis"}));
  command.add_option("--nanoctrl", options.program, "the program to start; else the one beside this");
  command.add_option("--server-flags", options.server_flags, "flags for it, such as \"--log-level info\"");
  command.add_option("--token", options.token, "sent as Authorization: Bearer");
}

void add_ctrl(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<CtrlOptions>();
  auto* command = bench.add_subcommand(
      "ctrl", "Simulated agents against a nanoctrl: latencies, its CPU and memory, who heard of whose death");
  command->footer(
      "Exit status 0 only when no living agent was lost, and every agent heard of each death in its scope: "
      "not "
      "before the lease ended, and with its first heartbeat after that and a slack of 1 s.");
  command->add_option("--agents", options->agents, "how many; several numbers are measured in turn")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--scopes", options->scopes, "which they are spread over; else one for each hundred");
  command->add_option("--heartbeat", options->heartbeat_s, "seconds between an agent's heartbeats")
      ->capture_default_str();
  command->add_option("--ttl", options->ttl_s, "seconds of a lease: what nanoctrl is started with")
      ->capture_default_str();
  command->add_option(
      "--rate", options->rate,
      "agents that fall silent each second, and new ones that register in their places; else a "
      "hundredth of --agents");
  command->add_option("--seconds", options->seconds, "how long to measure")->capture_default_str();
  command->add_option("--warmup", options->warmup_s,
                      "seconds with deaths before it counts; else until as many expire as die");
  command
      ->add_option("--connections", options->connections,
                   "kept: one for each agent; new: one for each request")
      ->check(CLI::IsMember({"kept", "new"}))
      ->capture_default_str();
  add_ctrl_server_options(*command, *options);
  add_measurement(*command, options, exit_code, measure_ctrl);
}

void add_all(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<AllOptions>();
  auto* command = bench.add_subcommand("all", "The whole table, into a file");
  command->add_option("--json", options->file, "where it goes; written again after each line")->required();
  command->add_flag("--quick", options->quick, "one short round of each, with small pools: to try it out");
  command->add_option("--rounds", options->rounds, "measurement and limit in turns; medians count")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "of each round")->capture_default_str();
  command->add_option("--provider", options->providers, "one or more (tcp and shm)")
      ->check(CLI::IsMember(PeerAgent::provider_names()));
  command->add_option("--only", options->only, "lines whose names contain one of these");
  command->add_option("--commit", options->commit, "what was built, for the file")->envname("SLIME_COMMIT");
  command->callback([options, &exit_code] {
    const Status status = measure_all(*options);
    exit_code = status.ok() ? 0 : report_failure(status);
  });
}

void add_presenting(CLI::App& bench, int& exit_code) {
  auto file = std::make_shared<std::string>();
  auto into = std::make_shared<std::string>();
  auto* report = bench.add_subcommand("report", "Markdown tables of a file of `slime bench all`");
  report->add_option("file", *file, "or of bench/compare/peers.py, or of `slime bench ctrl --json`")
      ->required();
  report->add_option("--into", *into, "a page: between its marks, in place of what is there");
  report->callback([file, into, &exit_code] {
    const Status status = print_tables(*file, *into);
    exit_code = status.ok() ? 0 : report_failure(status);
  });
  auto out = std::make_shared<std::string>();
  auto* plot = bench.add_subcommand("plot", "SVG plots of a file of `slime bench all`");
  plot->add_option("file", *file, "or of `slime bench ctrl --json`")->required();
  plot->add_option("--out", *out, "a folder, which is made")->required();
  plot->callback([file, out, &exit_code] {
    const Status status = write_plots(*file, *out);
    exit_code = status.ok() ? 0 : report_failure(status);
  });
}

// The processes of a measurement: this program again. Hidden (an empty group), spoken to by the driver.
void add_roles(CLI::App& app, int& exit_code) {
  for (const char* role_name : {"bench-server", "bench-client"}) {
    const bool client = std::string_view(role_name) == "bench-client";
    auto address = std::make_shared<std::string>();
    auto* role = app.add_subcommand(role_name, "")->group("");
    role->require_subcommand(1);
    if (client) role->add_option("address", *address)->required();
    for (const auto& kind : kKinds) {
      auto options = std::make_shared<Options>(options_of(kind.first));
      auto* command = role->add_subcommand(kind.first, "");
      add_options(*command, *options);
      command->callback([options, address, client, &exit_code] {
        exit_code = client ? run_client(*options, *address) : run_server(*options);
      });
    }
  }
  auto cache_options = std::make_shared<CacheOptions>();
  auto* cache_server = app.add_subcommand("bench-cache-server", "")->group("");
  add_cache_options(*cache_server, *cache_options);
  cache_server->callback([cache_options, &exit_code] { exit_code = run_cache_server(*cache_options); });
  auto idle = std::make_shared<IdleOptions>();
  auto* peers = app.add_subcommand("bench-peers", "")->group("");
  peers->add_option("count", idle->peers)->required();
  add_provider(*peers, idle->provider);
  peers->callback([idle, &exit_code] { exit_code = run_peers(idle->peers, idle->provider); });
}

}  // namespace

void add_commands(CLI::App& app, int& exit_code) {
  auto* bench = app.add_subcommand(
      "bench", "Measure calls, transfers and more between processes on this machine, beside its limits");
  bench->require_subcommand(1);
  add_transfers(*bench, exit_code);
  add_cache(*bench, exit_code);
  add_connect(*bench, exit_code);
  add_idle(*bench, exit_code);
  add_ctrl(*bench, exit_code);
  add_all(*bench, exit_code);
  add_presenting(*bench, exit_code);
  add_roles(app, exit_code);
}

}  // namespace slime::bench
