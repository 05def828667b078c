#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/command_line.h"
#include "base/daemon.h"
#include "base/log_fields.h"
#include "base/mutex.h"
#include "base/on_signal.h"
#include "base/program.h"
#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/client/token_file.h"
#include "ctrl/commands/backup_commands.h"
#include "ctrl/commands/rule_flags.h"
#include "ctrl/commands/token_commands.h"
#include "ctrl/commands/view_commands.h"
#include "ctrl/server.h"
#include "ctrl/store/redis_url.h"

// The program nanoctrl.
namespace slime::ctrl {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string host = "127.0.0.1";
  std::uint16_t port = limits::kDefaultPort;
  double key_rotation_s = std::chrono::duration<double>(limits::kKeyRotation).count();
  RuleFlags rules;
  bool insecure = false;
  bool insecure_plaintext = false;
  std::string admin_token_file;
  std::string tls_certificate;
  std::string tls_key;
  // store of the registry, such as "sqlite:PATH"; empty: a file named after the port (store_of())
  std::string store;
  std::string log_level = "info";
  std::string log_format = "text";
  double wait_s = 8;
  double timeout_s = 10;
  bool force = false;
  bool json = false;
};

// Prints a command's outcome: `text`, or with --json the object `json`. Returns `exit_status`.
int say(const Flags& flags, int exit_status, const std::string& text, const Json& json) {
  return daemon::say(flags.json, exit_status, text, json);
}

int fail(const Flags& flags, const Status& status) {
  return daemon::fail<Json>(flags.json, "nanoctrl", status);
}

std::string instance_path(const std::string& dir, std::uint16_t port, const char* suffix) {
  return str(dir, "/nanoctrl-", port, suffix);
}

// Returns the store to open. By default a file named after the port; in memory with --port 0, where
// the next start has another port and would not find the file.
Result<std::string> store_of(const Flags& flags) {
  if (!flags.store.empty()) return flags.store;
  if (flags.port == 0) return std::string("memory");
  const Result<std::string> dir = daemon::state_dir();
  if (!dir) return dir.error();
  return str("sqlite:", instance_path(*dir, flags.port, ".db"));
}

Result<TokenRecord> admin_token_of(const Flags& flags) {
  const Result<std::string> text = read_token_file(flags.admin_token_file);
  if (!text) return text.error();
  Result<TokenRecord> token = record_of(*text, Role::kAdmin, "*");
  if (!token) return Status(token.error()).with_context(flags.admin_token_file);
  return token;
}

// Returns the absolute path, or `path` itself if it is empty or cannot be made absolute.
std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : whole.string();
}

// Makes the paths of the store and of all files that SIGHUP reads again absolute: a background
// process has another working directory.
void make_absolute(Flags& flags) {
  for (std::string* path : {&flags.admin_token_file, &flags.tls_certificate, &flags.tls_key})
    *path = absolute(*path);
  constexpr std::string_view kSqlite = "sqlite:";
  if (flags.store.starts_with(kSqlite))
    flags.store = str(kSqlite, absolute(flags.store.substr(kSqlite.size())));
  if (redis::is_url(flags.store)) flags.store = redis::with_absolute_files(flags.store);
}

Result<std::unique_ptr<Server>> bind_server(const Flags& flags) {
  ServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.insecure = flags.insecure;
  options.insecure_plaintext = flags.insecure_plaintext;
  flags.rules.apply(options.registry);
  options.registry.epoch = wall_clock_epoch();
  options.api.key_rotation = to_nanos(flags.key_rotation_s);
  Result<std::string> store = store_of(flags);
  if (!store) return store.error();
  options.store = std::move(*store);
  options.tls = {flags.tls_certificate, flags.tls_key};
  if (!flags.admin_token_file.empty()) {
    Result<TokenRecord> token = admin_token_of(flags);
    if (!token) return token.error();
    options.api.admin_token = std::move(*token);
  }
  return Server::bind(std::move(options));
}

// Guards the state of the signal handlers: the running server and its flags, null while no server
// runs.
Mutex g_mutex;
Server* g_server SLIME_GUARDED_BY(g_mutex) = nullptr;
const Flags* g_flags SLIME_GUARDED_BY(g_mutex) = nullptr;  // of g_server
bool g_reload_missed SLIME_GUARDED_BY(g_mutex) = false;

void reload_locked() SLIME_REQUIRES(g_mutex);

void set_served(Server* server, const Flags* flags) {
  const MutexLock lock(g_mutex);
  g_server = server;
  g_flags = flags;
  if (server != nullptr && std::exchange(g_reload_missed, false)) reload_locked();
}

// Handles SIGUSR1: prints the reply of GET /v1/status to stderr, for an operator without access to
// the port.
void dump_status() {
  const MutexLock lock(g_mutex);
  if (g_server == nullptr) return;
  const ApiReply reply =
      g_server->api().handle({.method = "GET", .target = "/v1/status", .content_type = {}, .body = {}});
  std::fprintf(stderr, "nanoctrl: process %d on %s: %s\n", static_cast<int>(::getpid()),
               g_server->url().c_str(), reply.body.c_str());
}

// Handles SIGHUP: reads the certificate and the administrator's token from their files again. If a
// file is invalid, the earlier value stays.
void reload_locked() {
  std::string read;
  const auto note = [&](const Status& status, const std::string& what) {
    if (status.ok()) {
      read += str(read.empty() ? "" : " and ", what);
    } else {
      SLIME_LOG(LogLevel::kError, "nanoctrl", "not reloaded, the earlier one stays: ", status.text());
    }
  };
  if (!g_flags->tls_certificate.empty())
    note(g_server->reload_tls(), str("the certificate ", g_flags->tls_certificate));
  if (!g_flags->admin_token_file.empty()) {
    Result<TokenRecord> token = admin_token_of(*g_flags);
    if (token) g_server->set_admin_token(std::move(*token));
    note(token.status(), str("the administrator's token ", g_flags->admin_token_file));
  }
  if (!read.empty()) SLIME_LOG(LogLevel::kInfo, "nanoctrl", "reloaded ", read);
  if (g_flags->tls_certificate.empty() && g_flags->admin_token_file.empty())
    SLIME_LOG(LogLevel::kInfo, "nanoctrl", "nothing to reload: no --tls-cert and no --admin-token-file");
}

void reload() {
  const MutexLock lock(g_mutex);
  if (g_server == nullptr) {
    g_reload_missed = true;
  } else {
    reload_locked();
  }
}

// Starts a bound server, calls `started` with the result, and serves until SIGTERM or SIGINT.
int serve(Server& server, const Flags& flags, const std::string& dir,
          const std::function<void(const Status&)>& started) {
  daemon::block_stop_signals();
  // Prints the status on SIGUSR1. If the handler cannot be installed, SIGUSR1 ends the process.
  on_signal(SIGUSR1, &dump_status).ignore();
  std::signal(SIGHUP, SIG_DFL);  // nohup ignores SIGHUP; here it means reload
  on_signal(SIGHUP, &reload).ignore();
  const Result<daemon::PidFile> pid_file =
      daemon::PidFile::acquire(instance_path(dir, server.port(), ".pid"), server.url());
  if (!pid_file) {
    started(pid_file.error());
    return daemon::kExitFailed;
  }
  if (Status status = server.start(); !status.ok()) {
    started(status);
    return daemon::kExitFailed;
  }
  set_served(&server, &flags);
  SLIME_LOG(LogLevel::kInfo, "nanoctrl", "listening on ", server.url(), ", store ", server.store(), ", pid ",
            ::getpid());
  started(Status());
  const int number = daemon::wait_for_stop_signal();
  SLIME_LOG(LogLevel::kInfo, "nanoctrl", "stopping on signal ", number);
  set_served(nullptr, nullptr);
  server.stop();
  return daemon::kExitOk;
}

int run_server(const Flags& flags) {
  const Result<std::string> dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const Result<std::unique_ptr<Server>> server = bind_server(flags);
  if (!server) return fail(flags, server.error());
  return serve(**server, flags, *dir, [&](const Status& status) {
    if (!status.ok()) {
      fail(flags, status);
      return;
    }
    const std::string url = (*server)->url();
    say(flags, daemon::kExitOk, str("nanoctrl listens on ", url),
        {{"state", "running"}, {"url", url}, {"port", (*server)->port()}, {"pid", ::getpid()}});
  });
}

int say_running(const Flags& flags, const char* state, const std::string& text, pid_t pid,
                const std::string& url, const std::string& log_path) {
  return say(flags, daemon::kExitOk, str(text, ": ", url, ", pid ", pid),
             {{"state", state}, {"url", url}, {"pid", pid}, {"log", log_path}});
}

int run_start(const Flags& flags) {
  const Result<std::string> dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const auto find = [&](std::uint16_t port) {
    return daemon::find_running(instance_path(*dir, port, ".pid"));
  };
  if (flags.port != 0) {
    const auto running = find(flags.port);
    if (!running) return fail(flags, running.error());
    if (*running)
      return say_running(flags, "already_running", "nanoctrl runs already", (*running)->pid, (*running)->info,
                         instance_path(*dir, flags.port, ".log"));
  }
  // Binds before the fork, so that the port is known and this process prints errors.
  Result<std::unique_ptr<Server>> server = bind_server(flags);
  if (!server) {
    const auto running = find(flags.port);  // a concurrent start may have been faster
    if (flags.port != 0 && running && *running)
      return say_running(flags, "already_running", "nanoctrl runs already", (*running)->pid, (*running)->info,
                         instance_path(*dir, flags.port, ".log"));
    return fail(flags, server.error());
  }
  const std::uint16_t port = (*server)->port();
  const std::string log_path = instance_path(*dir, port, ".log");
  const Result<std::string> started = daemon::start_in_background(
      {.log_path = log_path, .wait = to_nanos(flags.wait_s)}, [&](daemon::ReadyPipe& ready) {
        return serve(**server, flags, *dir, [&](const Status& status) {
          status.ok() ? ready.ready((*server)->url()) : ready.failed(status);
        });
      });
  if (!started) return fail(flags, started.error());
  const auto running = find(port);
  const pid_t pid = running && *running ? (*running)->pid : 0;
  return say_running(flags, "started", "nanoctrl started", pid, *started, log_path);
}

int say_not_running(const Flags& flags) {
  return say(flags, daemon::kExitNotRunning, str("nanoctrl does not run on port ", flags.port),
             {{"state", "not_running"}, {"port", flags.port}});
}

// Replaces the wildcard address (0.0.0.0 or [::]) in a server's URL with localhost, which the
// server's certificate can contain.
std::string local_url(std::string url) {
  for (const std::string_view everywhere : {"://0.0.0.0:", "://[::]:"}) {
    const std::size_t at = url.find(everywhere);
    if (at != std::string::npos) url.replace(at, everywhere.size(), "://localhost:");
  }
  return url;
}

int run_status(const Flags& flags) {
  const Result<std::string> dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const auto running = daemon::find_running(instance_path(*dir, flags.port, ".pid"));
  if (!running) return fail(flags, running.error());
  if (!*running) return say_not_running(flags);
  const std::string& url = (*running)->info;
  Result<ClientOptions> options = client_options(local_url(url));
  if (!options) return fail(flags, options.error());
  options->timeout = to_nanos(flags.timeout_s);
  const Result<std::unique_ptr<Client>> client = Client::create(std::move(*options));
  if (!client) return fail(flags, client.error());
  const Result<ServerStatus> status = (*client)->server_status();
  if (!status && status.error().code() == Code::kUnauthenticated) {
    // kUnauthenticated means that the server runs, and has refused the token or has a certificate
    // that is not trusted. health() needs no token, so its success shows that the certificate is
    // trusted.
    const bool trusted = (*client)->health().ok();
    return say(flags, daemon::kExitOk,
               str("nanoctrl runs: ", url, ", pid ", (*running)->pid,
                   trusted ? "; its registry can be read with a token ($SLIME_CTRL_TOKEN_FILE)"
                           : "; its certificate is not trusted here ($SLIME_CTRL_CA_FILE), so no request "
                             "was sent"),
               {{"state", "running"},
                {"url", url},
                {"pid", (*running)->pid},
                {"log", instance_path(*dir, flags.port, ".log")}});
  }
  if (!status)
    return fail(flags,
                Status(status.error().code(), str("process ", (*running)->pid,
                                                  " runs but does not answer: ", status.error().text())));
  const double uptime_s = std::chrono::duration<double>(status->uptime).count();
  return say(flags, daemon::kExitOk,
             str("nanoctrl ", status->version, " runs: ", url, ", pid ", (*running)->pid, ", ", status->peers,
                 " peers, up ", static_cast<std::int64_t>(uptime_s), " s"),
             {{"state", "running"},
              {"url", url},
              {"pid", (*running)->pid},
              {"log", instance_path(*dir, flags.port, ".log")},
              {"version", status->version},
              {"uptime_s", uptime_s},
              {"ttl_s", std::chrono::duration<double>(status->ttl).count()},
              {"server_epoch", status->server_epoch},
              {"peers", status->peers},
              {"scopes", status->scopes},
              {"watchers", status->watchers}});
}

int run_stop(const Flags& flags) {
  const Result<std::string> dir = daemon::runtime_dir();
  if (!dir) return fail(flags, dir.error());
  const Result<daemon::StopOutcome> outcome =
      daemon::stop(instance_path(*dir, flags.port, ".pid"), to_nanos(flags.timeout_s), flags.force);
  if (!outcome) return fail(flags, outcome.error());
  if (*outcome == daemon::StopOutcome::kNotRunning) return say_not_running(flags);
  const bool killed = *outcome == daemon::StopOutcome::kKilled;
  return say(flags, daemon::kExitOk,
             str("nanoctrl on port ", flags.port, killed ? " was killed" : " stopped"),
             {{"state", killed ? "killed" : "stopped"}, {"port", flags.port}});
}

int run_version(const Flags& flags) {
  return say(flags, daemon::kExitOk, "nanoctrl " SLIME_VERSION, {{"version", SLIME_VERSION}});
}

// Sets the level and the format of the log, then runs `command`. Returns kExitUsage if one of the
// two is invalid.
int run_logging(const Flags& flags, int (*command)(const Flags&)) {
  for (const Status& valid : {set_log_level(flags.log_level), set_log_format(flags.log_format)}) {
    if (valid.ok()) continue;
    std::cerr << "nanoctrl: " << valid.text() << std::endl;
    return daemon::kExitUsage;
  }
  return command(flags);
}

void add_server_flags(command_line::Command& command, Flags& flags) {
  command.option("--host", flags.host, "address to listen on").show_default();
  command.option("--port", flags.port, "port; 0 uses a free port and prints it").show_default();
  flags.rules.add_options(command, "");
  // --store can come from the environment: a URL may contain a password, and other users can see
  // the arguments of a process.
  command
      .option("--store", flags.store,
              "store of the registry: memory, sqlite:PATH, or "
              "redis://[:password@]host:port[/db][?prefix=NAME] (rediss:// with TLS, and &ca=FILE), "
              "which several nanoctrl share (default: sqlite, a file in $SLIME_STATE_DIR or "
              "~/.local/state/slime named after the port; memory with --port 0)")
      .env("SLIME_CTRL_STORE");
  command.option("--admin-token-file", flags.admin_token_file,
                 "file with an administrator's token for all scopes (nanoctrl token new); with it, every "
                 "request needs a token");
  command
      .option("--key-rotation", flags.key_rotation_s,
              "seconds between new keys with which agents authenticate each other, where tokens are "
              "required; at least the TTL; 0: only when a token is revoked or expires")
      .show_default()
      .in_range(0.0, 31536000.0);
  command_line::Option certificate =
      command.option("--tls-cert", flags.tls_certificate,
                     "PEM file with the server's certificate and its chain; enables https://");
  command_line::Option key =
      command.option("--tls-key", flags.tls_key, "PEM file with the private key of --tls-cert");
  certificate.needs(key);
  key.needs(certificate);
  command.flag("--insecure", flags.insecure,
               "listen on a non-loopback --host without tokens: every client may do everything");
  command.flag("--insecure-plaintext", flags.insecure_plaintext,
               "use tokens on a non-loopback --host without TLS, which exposes them to the network");
  command.option("--log-level", flags.log_level, "debug, info, warning, error or off").show_default();
  command.option("--log-format", flags.log_format, "text, or json: one object a line").show_default();
}

int run(int argc, char** argv) {
  Flags flags;
  command_line::Program program("nanoctrl", "nanoctrl: the registry where Slime's peers find each other");
  program.require_command();
  program.footer(daemon::kFooter);
  command_line::Command server =
      program.add_command("server", "run in the foreground until SIGTERM or SIGINT");
  command_line::Command start =
      program.add_command("start", "run in the background; succeeds if it runs already");
  command_line::Command status =
      program.add_command("status", "show whether it runs, its URL and its counts");
  command_line::Command stop = program.add_command("stop", "stop it");
  command_line::Command version = program.add_command("version", "print the version");
  ViewCommands views(program);
  TokenCommands tokens(program);
  BackupCommands backups(program);
  add_server_flags(server, flags);
  add_server_flags(start, flags);
  start.option("--wait", flags.wait_s, "seconds to wait until it is ready")
      .show_default()
      .in_range(0.1, 3600.0);
  for (command_line::Command command : {status, stop}) {
    command.option("--port", flags.port, "port that the nanoctrl listens on").show_default();
    command.option("--timeout", flags.timeout_s, "seconds to wait").show_default().in_range(0.1, 3600.0);
  }
  stop.flag("--force", flags.force, "send SIGKILL if it has not stopped after --timeout");
  for (command_line::Command command : {server, start, status, stop, version}) {
    command.flag("--json", flags.json, "print one JSON object");
    command.footer(daemon::kFooter);
  }
  server.action([&] {
    make_absolute(flags);
    return run_logging(flags, run_server);
  });
  start.action([&] {
    make_absolute(flags);
    return run_logging(flags, run_start);
  });
  status.action([&] { return run_status(flags); });
  stop.action([&] { return run_stop(flags); });
  version.action([&] { return run_version(flags); });
  return program.run(argc, argv);
}

}  // namespace
}  // namespace slime::ctrl

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "start") slime::daemon::close_inherited_fds();
  return slime::ctrl::run(argc, argv);
}
