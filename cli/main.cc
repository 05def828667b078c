#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <utility>

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
  command->add_option("--scope", options->scope, "whose names")
      ->envname("SLIME_SCOPE")
      ->capture_default_str();
  command->add_option("--kind", options->kind, "only peers of this kind");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = peers(*options); });
}

void add_peer(CLI::App& command, PeerOptions& options, const char* service_help) {
  command.add_option("peer", options.peer, "a registered name, or HOST:PORT");
  command.add_option("--service", options.service, service_help);
  command.add_option("--ctrl", options.ctrl_url, kCtrlHelp)->envname("SLIME_CTRL_URL");
  command.add_option("--scope", options.scope, "whose names")->envname("SLIME_SCOPE")->capture_default_str();
  command.add_option("--token", options.token, "the secret that the peers share; better in SLIME_TOKEN")
      ->envname("SLIME_TOKEN");
  command.add_option("--provider", options.provider, "which fabric: one that both ends get, or auto")
      ->envname("SLIME_PROVIDER")
      ->check(CLI::IsMember(PeerAgent::provider_names()))
      ->capture_default_str();
  command.add_option("--deadline", options.deadline_seconds, "seconds until the call fails")
      ->capture_default_str();
}

// With --service there is no PEER: all words are one further to the left than they were taken for.
void shift_call(CallOptions& options) {
  const bool any_provider = !options.at.service.empty();
  if (options.at.peer.empty()) throw CLI::RequiredError(any_provider ? "METHOD" : "PEER");
  if (!any_provider) {
    if (options.method.empty()) throw CLI::RequiredError("SERVICE.METHOD");
    return;
  }
  if (!options.method.empty()) options.arguments.insert(options.arguments.begin(), options.method);
  options.method = std::exchange(options.at.peer, {});
}

void add_call(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CallOptions>();
  auto* command = app.add_subcommand("call", "Call a method of a peer, print the result as JSON");
  command->footer(
      "Forms:\n  slime call [OPTIONS] PEER SERVICE.METHOD [ARGUMENTS...]\n"
      "  slime call [OPTIONS] --service SERVICE METHOD [ARGUMENTS...]\n"
      "\nExamples:\n  slime call worker:0 calc.add 1 2 --ctrl http://127.0.0.1:4479\n"
      "  slime call --service calc add 1 2 --ctrl http://127.0.0.1:4479\n"
      "  slime call 127.0.0.1:40112 store.put '\"key\"' '{\"$bytes\": \"00ff\"}'\n"
      "  slime call --raw worker:0 codec.pack < request.bin > reply.bin\n"
      "`slime services PEER` says what there is to call.");
  add_peer(*command, options->at, "of any live provider, instead of PEER: then METHOD comes first");
  command->add_option("method", options->method, "SERVICE.METHOD");
  command->add_option("arguments", options->arguments, "JSON values; {\"$bytes\": \"00ff\"} for binary");
  command->add_flag(
      "--raw", options->raw,
      "of a method that takes bytes (raw): those of standard input, as they are; the answer's go to "
      "standard output");
  command->callback([options, &exit_code] {
    shift_call(*options);
    exit_code = call(*options);
  });
}

void add_services(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ServicesOptions>();
  auto* command =
      app.add_subcommand("services", "What a peer serves: methods, parameters, results; or who serves what");
  command->footer(
      "Forms:\n  slime services [OPTIONS] PEER [SERVICE]\n  slime services [OPTIONS] --service SERVICE\n"
      "  slime services [OPTIONS]            all services of the scope, with their providers\n"
      "\nExamples:\n  slime services --ctrl http://127.0.0.1:4479\n"
      "  slime services worker:0 --ctrl http://127.0.0.1:4479\n"
      "  slime services 127.0.0.1:40112 calc --json");
  add_peer(*command, options->at, "what any live provider says of it, instead of PEER");
  command->add_option("name", options->service, "only this service");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] {
    const bool any_provider = !options->at.service.empty();
    if (any_provider && !options->at.peer.empty()) throw CLI::ExcludesError("PEER", "--service");
    const bool all = !any_provider && options->at.peer.empty();
    if (all && options->at.ctrl_url.empty()) throw CLI::RequiredError("PEER, or --ctrl");
    exit_code = all ? all_services(*options) : services(*options);
  });
}

void add_stubs(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<StubsOptions>();
  auto* command = app.add_subcommand("stubs", "Code that calls services with their own names and types");
  command->footer(
      "Forms:\n  slime stubs [OPTIONS] PEER               of all services of a peer, or the one of "
      "--service\n"
      "  slime stubs [OPTIONS] --service SERVICE  as any live provider describes it\n"
      "\nExamples:\n  slime stubs worker:0 --ctrl http://127.0.0.1:4479 --out calc_stubs.py\n"
      "  slime stubs --service calc --language cpp --ctrl http://127.0.0.1:4479 --out calc_stubs.h");
  add_peer(*command, options->at, "only this one; without PEER that of any live provider");
  command->add_option("--language", options->language, "python or cpp")
      ->check(CLI::IsMember({"python", "cpp"}))
      ->capture_default_str();
  command->add_option("--namespace", options->name_space, "of C++")->capture_default_str();
  command->add_option("--out", options->out, "the file to write; without it stdout");
  command->callback([options, &exit_code] {
    if (options->at.peer.empty() && options->at.service.empty())
      throw CLI::RequiredError("PEER, or --service");
    exit_code = stubs(*options);
  });
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
  add_stubs(app, exit_code);
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
