#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/dump.h"
#include "agent/peer_agent.h"
#include "base/command_line.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/program.h"
#include "base/str.h"
#include "cache/client.h"
#include "cache/http_server.h"
#include "cache/server.h"
#include "cache/store.h"

// The program slime-cache.
namespace slime::cache {
namespace {

using command_line::Command;
using Json = nlohmann::ordered_json;

constexpr const char* kNotes =
    "Sizes take K, M, G, T (powers of 1,024).\n"
    "A token comes from --token-file or $SLIME_TOKEN, never from the command line.\n";

struct Flags {
  std::string name = "cache:0";
  std::string scope = "default";
  std::string ctrl_url;
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string provider = "auto";
  std::string token_file;
  bool insecure = false;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  bool huge_pages = false;
  std::uint64_t slab_bytes = limits::kSlabBytes;
  double reservation_ttl_s = std::chrono::duration<double>(limits::kReservationTtl).count();
  double lease_ttl_s = std::chrono::duration<double>(limits::kLeaseTtl).count();
  bool verify_on_seal = false;
  std::string http;
  std::string http_cert;
  std::string http_key;
  std::string log_level = "info";
  double wait_s = 60;
  double timeout_s = 10;
  bool force = false;
  bool json = false;
};

// Prints the outcome: text for people, or one JSON object.
int say(const Flags& flags, int exit_status, const std::string& text, const Json& json) {
  return daemon::say(flags.json, exit_status, text, json);
}

int fail(const Flags& flags, const Status& status) {
  return daemon::fail<Json>(flags.json, "slime-cache", status);
}

// Returns the path of a file of this cache. Replaces bytes that a file name should not have: name
// and scope may hold any bytes.
std::string instance_path(const Flags& flags, const std::string& dir, const char* suffix) {
  std::string file = flags.scope + "-" + flags.name;
  for (char& c : file) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return str(dir, "/slime-cache-", file, suffix);
}

Result<std::string> read_token(const Flags& flags) {
  if (flags.token_file.empty()) {
    const char* token = std::getenv("SLIME_TOKEN");
    return std::string(token == nullptr ? "" : token);
  }
  std::ifstream file(flags.token_file);
  std::string token;
  if (!std::getline(file, token) || token.empty())
    return Status(Code::kInvalidArgument, str("no token in ", flags.token_file));
  return token;
}

Result<PeerAgentOptions> agent_options(const Flags& flags) {
  auto token = read_token(flags);
  if (!token) return std::move(token).error();
  PeerAgentOptions options;
  options.name = flags.name;
  options.scope = flags.scope;
  options.ctrl_url = flags.ctrl_url;
  options.listen = flags.listen;
  options.advertise = flags.advertise;
  options.token = std::move(*token);
  options.insecure = flags.insecure;
  options.provider = flags.provider;
  options.kind = "cache";
  return options;
}

CacheServerOptions server_options(const Flags& flags) {
  return {.memory_bytes = flags.memory_bytes,
          .pages = flags.huge_pages ? Pages::kHuge : Pages::kDefault,
          .slab_bytes = flags.slab_bytes,
          .reservation_ttl = to_nanos(flags.reservation_ttl_s),
          .lease_ttl = to_nanos(flags.lease_ttl_s),
          .verify_on_seal = flags.verify_on_seal};
}

// Starts the HTTP side, if it is wanted; null: it is not.
Result<std::unique_ptr<HttpServer>> serve_http(const Flags& flags, PeerAgent& agent,
                                               const CacheServer& server, const std::string& address) {
  if (flags.http.empty()) return std::unique_ptr<HttpServer>();
  auto token = read_token(flags);
  if (!token) return std::move(token).error();
  auto http = HttpServer::start(agent, server,
                                {.listen = flags.http,
                                 .token = std::move(*token),
                                 .insecure = flags.insecure,
                                 .tls_certificate = flags.http_cert,
                                 .tls_key = flags.http_key,
                                 .name = flags.name,
                                 .scope = flags.scope,
                                 .ctrl_url = flags.ctrl_url,
                                 .address = address,
                                 .memory_bytes = flags.memory_bytes,
                                 .slab_bytes = flags.slab_bytes});
  if (http) SLIME_LOG(LogLevel::kInfo, "slime-cache", "answers HTTP on ", (*http)->url());
  return http;
}

// Starts the agent and the cache, calls `started` with the address or the error, and runs until
// SIGTERM or SIGINT.
int serve(const Flags& flags, const std::string& dir,
          const std::function<void(Result<std::string>)>& started) {
  daemon::block_stop_signals();
  dump_on_signal().ignore();  // on failure the signal keeps its default action
  const auto refuse = [&](Status status) {
    started(std::move(status));
    return daemon::kExitFailed;
  };
  auto options = agent_options(flags);
  if (!options) return refuse(options.error());
  auto agent = PeerAgent::start(std::move(*options));
  if (!agent) return refuse(agent.error());
  const std::string address = (*agent)->address();
  const auto pid_file = daemon::PidFile::acquire(instance_path(flags, dir, ".pid"), address);
  if (!pid_file) return refuse(pid_file.error());
  auto server = CacheServer::start(**agent, server_options(flags));
  if (!server) return refuse(server.error());
  auto http = serve_http(flags, **agent, **server, address);
  if (!http) return refuse(http.error());
  SLIME_LOG(LogLevel::kInfo, "slime-cache", flags.name, " serves ", flags.memory_bytes >> 20, " MiB on ",
            address, ", pid ", ::getpid());
  started(address);
  const int number = daemon::wait_for_stop_signal();
  SLIME_LOG(LogLevel::kInfo, "slime-cache", "stopping on signal ", number);
  http->reset();
  if (Status status = (*server)->close(); !status.ok())
    SLIME_LOG(LogLevel::kWarning, "slime-cache", "closing the cache: ", status.to_string());
  if (Status status = (*agent)->close(); !status.ok())
    SLIME_LOG(LogLevel::kWarning, "slime-cache", "closing the agent: ", status.to_string());
  return daemon::kExitOk;
}

Json describe(const Flags& flags, const char* state, pid_t pid, const std::string& address) {
  return {{"state", state}, {"name", flags.name}, {"scope", flags.scope}, {"address", address}, {"pid", pid}};
}

int run_server(const Flags& flags) {
  const auto dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  return serve(flags, *dir, [&](const Result<std::string>& address) {
    if (!address) {
      fail(flags, address.error());
      return;
    }
    say(flags, daemon::kExitOk, str("slime-cache ", flags.name, " serves on ", *address),
        describe(flags, "running", ::getpid(), *address));
  });
}

int say_running(const Flags& flags, const char* state, const std::string& text,
                const daemon::Running& running, const std::string& log_path) {
  Json json = describe(flags, state, running.pid, running.info);
  json["log"] = log_path;
  return say(flags, daemon::kExitOk,
             str("slime-cache ", flags.name, " ", text, ": ", running.info, ", pid ", running.pid), json);
}

int run_start(const Flags& flags) {
  const auto dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const std::string pid_path = instance_path(flags, *dir, ".pid");
  const std::string log_path = instance_path(flags, *dir, ".log");
  auto running = daemon::find_running(pid_path);
  if (!running) return fail(flags, running.error());
  if (*running) return say_running(flags, "already_running", "runs already", **running, log_path);
  const auto started = daemon::start_in_background(
      {.log_path = log_path, .wait = to_nanos(flags.wait_s)}, [&](daemon::ReadyPipe& ready) {
        return serve(flags, *dir, [&](const Result<std::string>& address) {
          address ? ready.ready(*address) : ready.failed(address.error());
        });
      });
  if (!started) return fail(flags, started.error());
  running = daemon::find_running(pid_path);
  if (!running) return fail(flags, running.error());
  if (!*running)
    return fail(flags, Status(Code::kUnavailable, str("it started and ended again; see ", log_path)));
  return say_running(flags, "started", "started", **running, log_path);
}

int say_not_running(const Flags& flags) {
  return say(flags, daemon::kExitNotRunning,
             str("slime-cache ", flags.name, " does not run here in scope ", flags.scope),
             {{"state", "not_running"}, {"name", flags.name}, {"scope", flags.scope}});
}

std::string in_words(const StoreStats& stats) {
  const auto mib = [](std::uint64_t bytes) { return str(bytes >> 20, " MiB"); };
  const std::uint64_t looked = stats.hits + stats.misses;
  return str("  ", stats.objects, " objects of ", mib(stats.object_bytes), "; ", mib(stats.free_bytes),
             " of ", mib(stats.arena_bytes), " free, ", mib(stats.quarantined_bytes), " quarantined\n  ",
             stats.hits, " hits of ", looked, " lookups, ", stats.evicted, " evicted, ", stats.leases,
             " leases, ", stats.reservations, " reservations, ", stats.refused, " refused");
}

// Asks the running cache for its statistics: an answer shows that it is healthy.
Result<StoreStats> ask_stats(const Flags& flags, const std::string& address) {
  auto token = read_token(flags);
  if (!token) return std::move(token).error();
  set_log_level(LogLevel::kWarning);  // the output is the answer only
  PeerAgentOptions options;
  options.scope = flags.scope;
  options.token = std::move(*token);
  options.provider = flags.provider;
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return std::move(agent).error();
  auto client = CacheClient::create(**agent, address, {.timeout = to_nanos(flags.timeout_s)});
  if (!client) return std::move(client).error();
  return client->stats();
}

int run_status(const Flags& flags) {
  const auto dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const auto running = daemon::find_running(instance_path(flags, *dir, ".pid"));
  if (!running) return fail(flags, running.error());
  if (!*running) return say_not_running(flags);
  const std::string& address = (*running)->info;
  const auto stats = ask_stats(flags, address);
  if (!stats)
    return fail(flags,
                Status(stats.error().code(), str("process ", (*running)->pid, " runs but does not answer on ",
                                                 address, ": ", stats.error().text())));
  Json json = describe(flags, "running", (*running)->pid, address);
  json["log"] = instance_path(flags, *dir, ".log");
  json["stats"] = Json::parse(to_json(*stats));
  return say(
      flags, daemon::kExitOk,
      str("slime-cache ", flags.name, " runs: ", address, ", pid ", (*running)->pid, "\n", in_words(*stats)),
      json);
}

int run_stop(const Flags& flags) {
  const auto dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const auto outcome =
      daemon::stop(instance_path(flags, *dir, ".pid"), to_nanos(flags.timeout_s), flags.force);
  if (!outcome) return fail(flags, outcome.error());
  if (*outcome == daemon::StopOutcome::kNotRunning) return say_not_running(flags);
  const bool killed = *outcome == daemon::StopOutcome::kKilled;
  return say(flags, daemon::kExitOk, str("slime-cache ", flags.name, killed ? " killed" : " stopped"),
             {{"state", killed ? "killed" : "stopped"}, {"name", flags.name}, {"scope", flags.scope}});
}

// Sets the log level, then runs the command.
int run_logging(const Flags& flags, int (*command)(const Flags&)) {
  if (Status level = set_log_level(flags.log_level); !level.ok()) {
    fail(flags, level);
    return daemon::kExitUsage;
  }
  return command(flags);
}

// Adds an option in seconds, from 1 ms to one day.
void add_seconds(Command command, const char* name, double& seconds, const char* help) {
  command.option(name, seconds, help).show_default().in_range(0.001, 86400.0);
}

void add_instance_flags(Command command, Flags& flags) {
  command.option("--name", flags.name, "The name of the cache, unique in its scope").show_default();
  command.option("--scope", flags.scope, "Agents see the names of their own scope")
      .env("SLIME_SCOPE")
      .show_default();
  command.flag("--json", flags.json, "Print one JSON object");
}

void add_token_flag(Command command, Flags& flags) {
  command.option("--token-file", flags.token_file,
                 "A file with the token that all agents of the scope share");
  command.refused_option(
      "--token", "others would see it in the list of processes: give --token-file, or set SLIME_TOKEN");
}

void add_provider_flag(Command command, Flags& flags) {
  command
      .option("--provider", flags.provider,
              "Which fabric: one that clients must have, too, or auto: the best for each")
      .env("SLIME_PROVIDER")
      .one_of(PeerAgent::provider_names())
      .show_default();
}

void add_server_flags(Command command, Flags& flags) {
  add_instance_flags(command, flags);
  add_token_flag(command, flags);
  add_provider_flag(command, flags);
  command.option("--ctrl", flags.ctrl_url, "URL of nanoctrl; without it clients need the address")
      .env("SLIME_CTRL_URL");
  command
      .option("--listen", flags.listen,
              "host:port; off loopback it takes a token, keys of nanoctrl, or --insecure")
      .show_default();
  command.option("--advertise", flags.advertise, "What clients connect to, if not the listening address");
  command.flag("--insecure", flags.insecure, "Listen off loopback without a token");
  command.option("--memory-size", flags.memory_bytes, "Memory for objects").as_size().show_default("1G");
  command.flag("--huge-pages", flags.huge_pages, "Take that memory from the machine's pool of huge pages");
  command.option("--slab-size", flags.slab_bytes, "The largest slab, a power of two from 4K to 1G")
      .as_size()
      .show_default("256K");
  add_seconds(command, "--reservation-ttl", flags.reservation_ttl_s,
              "Seconds a writer has until it must seal");
  add_seconds(command, "--lease-ttl", flags.lease_ttl_s, "Seconds a reader has");
  command.flag("--verify-on-seal", flags.verify_on_seal, "Check every object's checksum as it is sealed");
  command.option(
      "--http", flags.http,
      "host:port of HTTP: health, metrics, and the routes of DLSlime's cache; off loopback it takes a "
      "token and TLS, or --insecure");
  command.option("--http-cert", flags.http_cert, "A PEM file with the certificate of HTTP");
  command.option("--http-key", flags.http_key, "A PEM file with its private key");
  command.option("--log-level", flags.log_level, "debug, info, warning, error, off").show_default();
}

int run(int argc, char** argv) {
  Flags flags;
  command_line::Program program(
      "slime-cache", "slime-cache: a cache of named objects in slabs, read and written one-sidedly");
  const std::string footer = str(kNotes, daemon::kFooter);
  program.footer(footer);
  program.require_command();
  Command server = program.add_command("server", "Run in the foreground until SIGINT or SIGTERM");
  Command start = program.add_command("start", "Start in the background");
  Command status = program.add_command("status", "Ask the cache started on this machine");
  Command stop = program.add_command("stop", "Stop the cache started on this machine");
  add_server_flags(server, flags);
  add_server_flags(start, flags);
  add_seconds(start, "--wait", flags.wait_s, "Seconds to wait until it serves");
  add_instance_flags(status, flags);
  add_token_flag(status, flags);
  add_provider_flag(status, flags);
  add_seconds(status, "--timeout", flags.timeout_s, "Seconds to wait for the answer");
  add_instance_flags(stop, flags);
  add_seconds(stop, "--timeout", flags.timeout_s, "Seconds to wait until it has ended");
  stop.flag("--force", flags.force, "Kill it after the timeout");
  for (Command command : {server, start, status, stop}) command.footer(footer);
  server.action([&] { return run_logging(flags, run_server); });
  start.action([&] { return run_logging(flags, run_start); });
  status.action([&] { return run_status(flags); });
  stop.action([&] { return run_stop(flags); });
  program.add_command("version", "Print the version").action([] {
    std::cout << "slime-cache " << SLIME_VERSION << std::endl;
    return daemon::kExitOk;
  });
  return program.run(argc, argv);
}

}  // namespace
}  // namespace slime::cache

int main(int argc, char** argv) {
  // A background cache must not keep a pipe of its starter open.
  if (argc > 1 && std::string_view(argv[1]) == "start") slime::daemon::close_inherited_fds();
  return slime::cache::run(argc, argv);
}
