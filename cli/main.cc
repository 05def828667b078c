#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "agent/dump.h"
#include "agent/peer_agent.h"
#include "base/log.h"
#include "bench/bench.h"
#include "cli/commands.h"

namespace slime::cli {

int fail(std::string_view command, const Status& status) {
  std::fprintf(stderr, "slime %.*s: %s\n", static_cast<int>(command.size()), command.data(),
               status.to_string().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

namespace {

constexpr const char* kCtrlHelp = "nanoctrl's URL, such as http://127.0.0.1:4479";

void add_doctor(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  auto* command = app.add_subcommand("doctor", "What this machine can do, and what to change");
  command->add_option("--ctrl", options->ctrl_url, kCtrlHelp)->envname("SLIME_CTRL_URL");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = doctor(*options); });
}

void add_peers(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PeersOptions>();
  auto* command = app.add_subcommand("peers", "The peers that are registered");
  command->add_option("--ctrl", options->ctrl_url, kCtrlHelp)->envname("SLIME_CTRL_URL")->required();
  command->add_option("--scope", options->scope, "whose names")->capture_default_str();
  command->add_option("--kind", options->kind, "only peers of this kind");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = peers(*options); });
}

void add_peer(CLI::App& command, PeerOptions& options) {
  command.add_option("peer", options.peer, "a registered name, or HOST:PORT")->required();
  command.add_option("--ctrl", options.ctrl_url, kCtrlHelp)->envname("SLIME_CTRL_URL");
  command.add_option("--scope", options.scope, "whose names")->capture_default_str();
  command.add_option("--token", options.token, "the secret that the peers share; better in SLIME_TOKEN")
      ->envname("SLIME_TOKEN");
  command.add_option("--provider", options.provider, "which fabric: one that both ends get, or auto")
      ->envname("SLIME_PROVIDER")
      ->check(CLI::IsMember(PeerAgent::provider_names()))
      ->capture_default_str();
  command.add_option("--deadline", options.deadline_seconds, "seconds until the call fails")
      ->capture_default_str();
}

void add_call(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CallOptions>();
  auto* command = app.add_subcommand("call", "Call a method of a peer, print the result as JSON");
  command->footer(
      "Examples:\n  slime call worker:0 calc.add 1 2 --ctrl http://127.0.0.1:4479\n"
      "  slime call 127.0.0.1:40112 store.put '\"key\"' '{\"$bytes\": \"00ff\"}'\n"
      "`slime services PEER` says what there is to call.");
  add_peer(*command, options->at);
  command->add_option("method", options->method, "SERVICE.METHOD")->required();
  command->add_option("arguments", options->arguments, "JSON values; {\"$bytes\": \"00ff\"} for binary");
  command->callback([options, &exit_code] { exit_code = call(*options); });
}

void add_services(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ServicesOptions>();
  auto* command = app.add_subcommand("services", "What a peer serves: methods, parameters, results");
  command->footer(
      "Examples:\n  slime services worker:0 --ctrl http://127.0.0.1:4479\n"
      "  slime services 127.0.0.1:40112 calc --json");
  add_peer(*command, options->at);
  command->add_option("service", options->service, "only this one");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = services(*options); });
}

int run(int argc, char** argv) {
  int exit_code = kExitOk;
  CLI::App app("Slime: peers, one-sided transfers and calls over RDMA mailboxes, or plain TCP", "slime");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("slime ") + SLIME_VERSION);
  std::string log_level = "warning";
  // Unknown levels are errors, in the environment too.
  app.add_option("--log", log_level, "debug, info, warning, error or off; to stderr")
      ->envname("SLIME_LOG")
      ->check([](const std::string& name) { return set_log_level(name).text(); });
  add_doctor(app, exit_code);
  add_peers(app, exit_code);
  add_call(app, exit_code);
  add_services(app, exit_code);
  bench::add_commands(app, exit_code);
  app.add_subcommand("version", "Print the version")->callback([] {
    std::printf("slime %s\n", SLIME_VERSION);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with exit code 0.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace slime::cli

int main(int argc, char** argv) {
  // Whoever reads our output may leave early.
  std::signal(SIGPIPE, SIG_IGN);
  slime::dump_on_signal().ignore();  // without it SIGUSR1 ends us, and that is all
  return slime::cli::run(argc, argv);
}
