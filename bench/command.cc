#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/command_line.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/broadcast.h"
#include "bench/serve.h"
#include "bench/sweep_commands.h"
#include "ctrl/client/token_file.h"

namespace slime::bench {
namespace {

using command_line::Command;
using nlohmann::json;

constexpr std::uint32_t kColdCount = 16;  // blocks of one operation; one operation is under way

constexpr std::pair<const char*, const char*> kKinds[] = {
    {"rpc", "Echo calls"},
    {"bulk", "One-sided reads or writes of blocks"},
    {"blocks", "Batches of many small blocks, each batch one operation"},
    {"notify", "Writes with an immediate, there and back: half a round trip"},
    {"cache", "Objects in or out of a cache server in another process"},
    {"connect", "From a new agent to the reply of its first call"}};

void add_token_file(Command& command, std::string& token_file) {
  command.option("--token-file", token_file,
                 "a file with the secret that both hosts share; else $SLIME_TOKEN");
  command.refused_option(
      "--token", "others would see it in the list of processes: give --token-file, or set SLIME_TOKEN");
}

void add_mode(Command& command, std::string& mode) {
  command.option("--mode", mode, "thread: waits block; caller: waits spin and drive the loop")
      .one_of({"thread", "caller"})
      .show_default();
}

void add_rounds(Command& command, std::uint32_t& rounds) {
  command.option("--rounds", rounds, "measurement and limit in turns; medians count")
      .in_range(1, 1000)
      .show_default();
}

void add_seconds(Command& command, double& seconds, const char* help = "how long to measure") {
  command.option("--seconds", seconds, help).in_range(0.001, 3600.0).show_default();
}

void add_block_options(Command& command, Options& options) {
  command.option("--op", options.operation, "write or read").one_of({"write", "read"}).show_default();
  command.option("--count", options.count, "blocks of one operation").in_range(1, 65536).show_default();
  if (options.bench == "blocks") {
    command.flag("--adjacent", options.adjacent, "one behind the other, not with gaps");
    return;
  }
  command.option("--memory", options.memory, "slime: allocated by it; foreign: the program's own")
      .one_of({"slime", "foreign"})
      .show_default();
  command.flag(
      "--cold", options.cold,
      "random blocks between two pools, in batches of 16, one under way; else the same blocks again");
  command.option("--pool-size", options.pool_bytes, "cold: bytes of each pool; the limit needs two more")
      .as_size()
      .show_default();
}

void add_cache_options(Command& command, Options& options) {
  command.option("--size", options.size, "bytes of an object (64K, 1M, ...)").as_size().show_default();
  command.option("--batch", options.count, "objects of one get_many or put_many")
      .in_range(1, 1024)
      .show_default();
  command.option("--working-set", options.pool_bytes, "bytes of the objects, at most 4,096 of them")
      .as_size()
      .show_default();
  command.option("--op", options.operation, "get or put").one_of({"get", "put"}).show_default();
  add_seconds(command, options.seconds);
}

void add_connect_options(Command& command, Options& options) {
  command.option("--count", options.count, "new agents, in each round").in_range(1, 100'000).show_default();
  command.option("--size", options.size, "bytes of the call, and of its reply").as_size().show_default();
}

void add_face(Command& command, Options& options) {
  constexpr const char* kAgents = "peer: agents; channel: below them, and callers drive the loop";
  if (options.bench == "rpc") {
    command.option("--face", options.face, kAgents).one_of({"peer", "channel"}).show_default();
  } else if (options.bench == "bulk") {
    command.option("--face", options.face, str(kAgents, "; prepared: agents, batches that they prepared"))
        .one_of({"peer", "prepared", "channel"})
        .show_default();
  } else if (options.bench == "blocks") {
    command.option("--face", options.face, str(kAgents, "; numbers: agents, blocks by number"))
        .one_of({"peer", "prepared", "numbers", "channel"})
        .show_default();
  }
}

void add_options(Command& command, Options& options) {
  const bool blocks = options.moves_blocks();
  add_provider(command, options.provider);
  if (options.bench != "notify") add_mode(command, options.mode);
  if (options.bench == "cache") return add_cache_options(command, options);
  if (options.bench == "connect") return add_connect_options(command, options);
  add_face(command, options);
  command
      .option("--size", options.size,
              blocks ? "bytes of a block (64K, 1M, ...)" : "bytes that go there, and back")
      .as_size()
      .show_default();
  if (options.bench != "notify") {
    command.option("--inflight", options.inflight, "operations under way, of each client")
        .in_range(1, 4096)
        .show_default();
    command.option("--clients", options.clients, "client processes").in_range(1, 64).show_default();
  }
  if (options.bench == "rpc") {
    command.option("--threads", options.threads, "of each client, which share its agent and --inflight")
        .in_range(1, 64)
        .show_default();
    command
        .option("--beside", options.beside_bytes,
                "bytes of a one-sided write to the same peer, repeated for as long as calls are measured")
        .as_size();
  }
  add_seconds(command, options.seconds);
  command.option("--warmup", options.warmup_seconds, "seconds before it counts")
      .in_range(0.0, 3600.0)
      .show_default();
  if (blocks) add_block_options(command, options);
}

// Returns the defaults of a measurement.
Options options_of(const std::string& bench) {
  if (bench == "bulk") return {.bench = bench, .size = 1 << 20, .inflight = 16};
  // "blocks" and "notify" measure an endpoint by default, which has one provider.
  if (bench == "blocks")
    return {
        .bench = bench, .face = "channel", .provider = "tcp", .mode = "caller", .size = 1024, .count = 1538};
  if (bench == "notify") return {.bench = bench, .face = "channel", .provider = "tcp", .mode = "caller"};
  if (bench == "cache")
    return {.bench = bench,
            .operation = "get",
            .size = 64 << 10,
            .pool_bytes = 16 << 20,
            .seconds = 2,
            .warmup_seconds = 0};
  if (bench == "connect") return {.bench = bench, .count = 100, .warmup_seconds = 0};
  return {.bench = bench};
}

// Sets defaults that depend on other options.
void settle(const Command& command, Options& options) {
  if (!options.cold) return;
  if (!command.given("--count")) options.count = kColdCount;
  if (!command.given("--inflight")) options.inflight = 1;
}

int report_failure(const Status& status) {
  std::fprintf(stderr, "slime bench: %s\n", status.to_string().c_str());
  return status.code() == Code::kCancelled ? 130 : status.code() == Code::kInvalidArgument ? 2 : 1;
}

int exit_status(const Status& status) { return status.ok() ? 0 : report_failure(status); }

// How a report is printed. A failure goes to stderr, and with kJson also to stdout, for programs.
enum class Form : std::uint8_t { kTable, kJson, kCsv };

int print_report(const Result<std::string>& report, Form form) {
  if (!report) {
    if (form == Form::kJson) std::printf("%s\n", json{{"error", report.error().to_string()}}.dump().c_str());
    return report_failure(report.error());
  }
  const std::string text = form == Form::kJson  ? *report
                           : form == Form::kCsv ? format_csv(*report)
                                                : format_report(*report);
  std::printf("%s\n", text.c_str());
  return json::parse(*report).value("verified", true) ? 0 : 1;
}

}  // namespace

void add_report(Command& command, const std::function<Result<std::string>()>& measure) {
  struct Forms {
    bool json = false;
    bool csv = false;
  };
  auto forms = std::make_shared<Forms>();
  command.flag("--json", forms->json, "one JSON object on one line");
  command.flag("--csv", forms->csv, "a line of names, then a line of values for each row");
  command.action([forms, measure]() -> Result<int> {
    if (forms->json && forms->csv) return Status(Code::kInvalidArgument, "--json excludes --csv");
    const Form form = forms->json ? Form::kJson : forms->csv ? Form::kCsv : Form::kTable;
    return print_report(measure(), form);
  });
}

void add_provider(Command& command, std::string& provider) {
  command.option("--provider", provider, "which fabric: one that both ends get, or auto")
      .env("SLIME_PROVIDER")
      .one_of(PeerAgent::provider_names())
      .show_default();
}

void add_to(Command& command, Options& options, std::string& token_file) {
  command.option("--to", options.to, "HOST:PORT of a `slime bench serve`, in place of a server on this host");
  add_token_file(command, token_file);
}

Status use_token(const std::string& token_file) {
  if (token_file.empty()) return {};
  auto token = ctrl::read_token_file(token_file);
  if (!token) return std::move(token).error().with_context("--token-file");
  ::setenv("SLIME_TOKEN", token->c_str(), 1);
  return {};
}

namespace {

template <class Settings, class Measure>
void add_measurement(Command& command, std::shared_ptr<Settings> settings, Measure measure) {
  add_report(command, [settings, measure] { return measure(*settings); });
}

// Flags of `blocks` that make a table of it.
struct BlocksTable {
  bool sweep = false;
  bool prepared = false;
  bool naive = false;
  std::vector<std::uint32_t> sizes{1 << 10,  2 << 10,  4 << 10,   8 << 10,  16 << 10,
                                   32 << 10, 64 << 10, 128 << 10, 256 << 10};
};

void add_blocks_table(Command& command, BlocksTable& table) {
  command.flag("--sweep", table.sweep,
               "a table of blocks of 1K to 256K, through agents whose callers drive the loop");
  command.option("--sizes", table.sizes, "of --sweep, in place of those (1K,64K,...)")
      .split_at_commas()
      .as_size();
  command.flag("--prepared", table.prepared, "also as batches that were prepared, beside the limit");
  command.flag("--naive", table.naive,
               "also with each block as an operation of its own that is waited for, as a ratio");
}

Result<std::string> measure_table(const Command& command, const BlocksTable& table, Options options) {
  const auto set = [&](const char* flag, std::string& value, const char* other) {
    if (!command.given(flag)) value = other;
  };
  set("--face", options.face, "peer");
  set("--provider", options.provider, "auto");
  if (!command.given("--seconds")) options.seconds = 1;
  SLIME_TRY(options.validate());
  if (options.face != "peer" && (table.naive || table.prepared))
    return Status(Code::kInvalidArgument, "--naive, --prepared: through agents, with --face peer");
  return measure_blocks(
      {.each = options,
       .sizes = table.sweep ? table.sizes : std::vector{static_cast<std::uint32_t>(options.size)},
       .prepared = table.prepared,
       .naive = table.naive});
}

void add_measurements(Command& bench) {
  for (const auto& [name, text] : kKinds) {
    auto options = std::make_shared<Options>(options_of(name));
    Command command = bench.add_command(name, text);
    add_options(command, *options);
    add_rounds(command, options->rounds);
    auto token_file = std::make_shared<std::string>();
    add_to(command, *options, *token_file);
    auto table = std::make_shared<BlocksTable>();
    if (options->bench == "blocks") add_blocks_table(command, *table);
    add_measurement(command, options, [command, token_file, table](Options& settings) -> Result<std::string> {
      SLIME_TRY(use_token(*token_file));
      if (table->sweep || table->prepared || table->naive) return measure_table(command, *table, settings);
      settle(command, settings);
      return measure(settings);
    });
  }
}

void add_serve(Command& bench) {
  auto options = std::make_shared<ServeOptions>();
  auto token_file = std::make_shared<std::string>();
  Command command = bench.add_command("serve", "Serve measurements from other hosts (--to), until Ctrl-C");
  command.footer(
      "Example:\n  slime bench serve --listen 10.0.0.7:4480 --token-file secret\n"
      "and on another host:\n  slime bench bulk --to 10.0.0.7:4480 --token-file secret\n"
      "Each client gets a process of its own, which listens on a free port of the same address.");
  command.option("--listen", options->listen, "HOST:PORT; off loopback it takes a token, or --insecure")
      .show_default();
  add_token_file(command, *token_file);
  command.flag("--insecure", options->insecure, "listen off loopback without a token");
  command.option("--memory", options->memory_bytes, "bytes that all clients together may have")
      .as_size()
      .show_default();
  command.option("--clients", options->ends, "clients at the same time").in_range(1, 1024).show_default();
  command.flag("--json", options->as_json, "the line with the address is one JSON object");
  command.action([options, token_file] {
    Status status = use_token(*token_file);
    if (status.ok()) status = serve_measurements(*options);
    return status.code() == Code::kCancelled ? 130 : exit_status(status);
  });
}

void add_idle(Command& bench) {
  auto options = std::make_shared<IdleOptions>();
  Command command = bench.add_command("idle", "What a connected agent costs that does nothing");
  command.option("--peers", options->peers, "connections").in_range(1, 512).show_default();
  command.option("--calls", options->calls, "to each peer, before").in_range(0, 1'000'000).show_default();
  command
      .option("--up-to", options->up_to,
              "bytes of the largest calls before: a few of each size; else only calls of 64 B")
      .as_size();
  add_seconds(command, options->seconds, "how long it does nothing");
  command.option("--ctrl", options->ctrl_url, "with a registry: its URL (heartbeats count)");
  add_provider(command, options->provider);
  command.refused_option("--to", "idle reads the memory of both processes, which this host runs");
  add_measurement(command, options, measure_idle);
}

void add_null(Command& bench) {
  auto options = std::make_shared<NullOptions>();
  Command command = bench.add_command(
      "null", "What an operation over verbs costs by itself: without a device, both ends in one process");
  command.option("--face", options->face, "peer: writes of an agent; endpoint: writes below; channel: calls")
      .one_of({"peer", "endpoint", "channel"})
      .show_default();
  add_mode(command, options->mode);
  command.option("--size", options->size, "bytes of a write, or of a call there and back")
      .as_size()
      .in_range(1, 1 << 20)
      .show_default();
  command.option("--inflight", options->inflight, "operations under way").in_range(1, 256).show_default();
  add_seconds(command, options->seconds);
  command.option("--library", options->library,
                 "the null library's file; else that of this program's build tree");
  command.refused_option("--to", "null has no device, and both ends in one process");
  add_measurement(command, options, measure_null);
}

void add_ctrl_server_options(Command& command, CtrlOptions& options) {
  command
      .option(
          "--ctrl", options.urls,
          "http://HOST:PORT[,...]: an agent uses the first that answers, and goes on to the next when its "
          "connection breaks; else a nanoctrl of our own for each number of agents")
      .split_at_commas();
  command.option("--server-pid", options.pids, "with --ctrl: whose CPU and memory count, one process or more")
      .split_at_commas();
  command
      .option("--store", options.stores,
              "memory, sqlite or redis, several are measured in turn: where a nanoctrl of our own keeps "
              "things, in a temporary folder or a redis-server that is started for it; else sqlite")
      .split_at_commas()
      .one_of({"memory", "sqlite", "redis"});
  command.option("--nanoctrl", options.program, "the program to start; else the one beside this");
  command.option("--server-flags", options.server_flags, "flags for it, such as \"--log-level info\"");
  command.option("--token-file", options.token_file,
                 "a file with the token to send; else $SLIME_CTRL_TOKEN_FILE, $SLIME_CTRL_TOKEN");
  command.refused_option("--token",
                         "others would see it in the list of processes: give --token-file, or set "
                         "SLIME_CTRL_TOKEN_FILE or SLIME_CTRL_TOKEN");
}

void add_ctrl(Command& bench) {
  auto options = std::make_shared<CtrlOptions>();
  Command command = bench.add_command(
      "ctrl", "Simulated agents against a nanoctrl: latencies, its CPU and memory, who heard of whose death");
  command.footer(
      "Exit status 0 only when no living agent was lost, and every agent heard of each death in its scope: "
      "not "
      "before the lease ended, and with its first heartbeat after that and a slack of 1 s.");
  command.option("--agents", options->agents, "how many; several numbers are measured in turn")
      .split_at_commas()
      .show_default();
  command.option("--scopes", options->scopes, "which they are spread over; else one for each hundred");
  command.option("--heartbeat", options->heartbeat_s, "seconds between an agent's heartbeats").show_default();
  command.option("--ttl", options->ttl_s, "seconds of a lease: what nanoctrl is started with").show_default();
  command.option("--rate", options->rate,
                 "agents that fall silent each second, and new ones that register in their places; else a "
                 "hundredth of --agents");
  command.option("--seconds", options->seconds, "how long to measure").show_default();
  command.option("--warmup", options->warmup_s,
                 "seconds with deaths before it counts; else until as many expire as die");
  command.option("--connections", options->connections, "kept: one for each agent; new: one for each request")
      .one_of({"kept", "new"})
      .show_default();
  command.flag("--hostile", options->hostile,
               "one tenant fills its share, floods and reads lists over 200 connections; exit status 0 only "
               "when the others' heartbeats take at most 3 times as long at p99 as without it, and 20 ms");
  add_ctrl_server_options(command, *options);
  command.refused_option("--to", "ctrl measures a nanoctrl; --ctrl names one on another host");
  add_measurement(command, options, measure_ctrl);
}

void add_all(Command& bench) {
  auto options = std::make_shared<AllOptions>();
  Command command = bench.add_command("all", "The whole table, into a file");
  command.option("--json", options->file, "where it goes; written again after each line").required();
  command.flag("--quick", options->quick, "one short round of each, with small pools: to try it out");
  add_rounds(command, options->rounds);
  add_seconds(command, options->seconds, "of each round");
  command.option("--provider", options->providers, "one or more (tcp and shm)")
      .one_of(PeerAgent::provider_names());
  command.option("--only", options->only, "lines whose names contain one of these");
  command.option("--commit", options->commit, "what was built, for the file").env("SLIME_COMMIT");
  command.refused_option("--to", "all is the table of one machine; give --to to each measurement");
  command.action([options] { return exit_status(measure_all(*options)); });
}

// Adds the hidden commands of a measurement's processes, which the driver starts.
void add_roles(Command& program) {
  auto text = std::make_shared<std::string>();  // of Options
  Command server = program.add_command("bench-server", "").hide();
  server.option("options", *text).required();
  server.action([text]() -> Result<int> {
    const auto options = Options::parse(*text);
    if (!options) return options.error();
    return run_server(*options);
  });
  auto address = std::make_shared<std::string>();
  Command client = program.add_command("bench-client", "").hide();
  client.option("options", *text).required();
  client.option("address", *address).required();
  client.action([text, address]() -> Result<int> {
    const auto options = Options::parse(*text);
    if (!options) return options.error();
    return run_client(*options, *address);
  });
  auto url = std::make_shared<std::string>();
  auto scope = std::make_shared<std::string>();
  Command hostile = program.add_command("bench-hostile", "").hide();
  hostile.option("url", *url).required();
  hostile.option("scope", *scope).required();
  hostile.action([url, scope] { return run_hostile(*url, *scope); });
  auto idle = std::make_shared<IdleOptions>();
  Command peers = program.add_command("bench-peers", "").hide();
  peers.option("count", idle->peers).required();
  add_provider(peers, idle->provider);
  peers.action([idle] { return run_peers(idle->peers, idle->provider); });
}

}  // namespace

void add_commands(Command& program) {
  Command bench = program.add_command(
      "bench", "Measure calls, transfers and more between processes on this machine, beside its limits");
  bench.require_command();
  add_measurements(bench);
  add_p2p(bench);
  add_transfer(bench);
  add_broadcast(bench);
  add_serve(bench);
  add_idle(bench);
  add_null(bench);
  add_ctrl(bench);
  add_all(bench);
  add_roles(program);
  add_broadcast_roles(program);
}

}  // namespace slime::bench
