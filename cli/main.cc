#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "agent/dump.h"
#include "agent/peer_agent.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/str.h"
#include "bench/bench.h"
#include "cli/commands.h"

namespace slime::cli {

int fail(std::string_view command, const Status& status) {
  std::fprintf(stderr, "slime %.*s: %s\n", static_cast<int>(command.size()), command.data(),
               status.to_string().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

namespace {

using command_line::Command;

constexpr const char* kCtrlHelp = "nanoctrl's URL, such as http://127.0.0.1:4479";

Status missing(const char* argument) { return {Code::kInvalidArgument, str(argument, " is required")}; }

void add_doctor(Command& program) {
  auto options = std::make_shared<DoctorOptions>();
  Command command = program.add_command("doctor", "What this machine can do, and what to change");
  command.option("--ctrl", options->ctrl_url, kCtrlHelp).env("SLIME_CTRL_URL");
  command.flag("--json", options->json, "one JSON object");
  command.action([options] { return doctor(*options); });
}

void add_peers(Command& program) {
  auto options = std::make_shared<PeersOptions>();
  Command command = program.add_command("peers", "The peers that are registered");
  command.option("--ctrl", options->ctrl_url, kCtrlHelp).env("SLIME_CTRL_URL").required();
  command.option("--scope", options->scope, "whose names").env("SLIME_SCOPE").show_default();
  command.option("--kind", options->kind, "only peers of this kind");
  command.flag("--json", options->json, "one JSON object");
  command.action([options] { return peers(*options); });
}

void add_peer(Command& command, PeerOptions& options, const char* service_help) {
  command.option("peer", options.peer, "a registered name, or HOST:PORT");
  command.option("--service", options.service, service_help);
  command.option("--ctrl", options.ctrl_url, kCtrlHelp).env("SLIME_CTRL_URL");
  command.option("--scope", options.scope, "whose names").env("SLIME_SCOPE").show_default();
  command.option("--token-file", options.token_file,
                 "a file with the secret that the peers share; else $SLIME_TOKEN");
  command.refused_option(
      "--token", "others would see it in the list of processes: give --token-file, or set SLIME_TOKEN");
  command.option("--provider", options.provider, "which fabric: one that both ends get, or auto")
      .env("SLIME_PROVIDER")
      .one_of(PeerAgent::provider_names())
      .show_default();
  command.option("--timeout", options.timeout_seconds, "seconds until the call fails").show_default();
}

// Corrects the positional arguments of `call --service`, which has no PEER: the word parsed as PEER
// is the METHOD, and the word parsed as METHOD is the first argument. Checks that none is missing.
Status shift_call(CallOptions& options) {
  const bool any_server = !options.at.service.empty();
  if (options.at.peer.empty()) return missing(any_server ? "METHOD" : "PEER");
  if (!any_server) return options.method.empty() ? missing("SERVICE.METHOD") : Status();
  if (!options.method.empty()) options.arguments.insert(options.arguments.begin(), options.method);
  options.method = std::exchange(options.at.peer, {});
  return {};
}

void add_call(Command& program) {
  auto options = std::make_shared<CallOptions>();
  Command command = program.add_command("call", "Call a method of a peer, print the result as JSON");
  command.footer(
      "Forms:\n  slime call [OPTIONS] PEER SERVICE.METHOD [ARGUMENTS...]\n"
      "  slime call [OPTIONS] --service SERVICE METHOD [ARGUMENTS...]\n"
      "\nExamples:\n  slime call worker:0 calc.add 1 2 --ctrl http://127.0.0.1:4479\n"
      "  slime call --service calc add 1 2 --ctrl http://127.0.0.1:4479\n"
      "  slime call 127.0.0.1:40112 store.put '\"key\"' '{\"$bytes\": \"00ff\"}'\n"
      "  slime call --raw worker:0 codec.pack < request.bin > reply.bin\n"
      "`slime services PEER` says what there is to call.");
  add_peer(command, options->at, "of any live server, instead of PEER: then METHOD comes first");
  command.option("method", options->method, "SERVICE.METHOD");
  command.option("arguments", options->arguments, "JSON values; {\"$bytes\": \"00ff\"} for binary");
  command.flag("--raw", options->raw,
               "of a method that takes bytes (raw): those of standard input, as they are; the answer's go to "
               "standard output");
  command.action([options]() -> Result<int> {
    SLIME_TRY(shift_call(*options));
    return call(*options);
  });
}

void add_services(Command& program) {
  auto options = std::make_shared<ServicesOptions>();
  Command command =
      program.add_command("services", "What a peer serves: methods, parameters, results; or who serves what");
  command.footer(
      "Forms:\n  slime services [OPTIONS] PEER [SERVICE]\n  slime services [OPTIONS] --service SERVICE\n"
      "  slime services [OPTIONS]            all services of the scope, with their servers\n"
      "\nExamples:\n  slime services --ctrl http://127.0.0.1:4479\n"
      "  slime services worker:0 --ctrl http://127.0.0.1:4479\n"
      "  slime services 127.0.0.1:40112 calc --json");
  add_peer(command, options->at, "what any live server says of it, instead of PEER");
  command.option("name", options->service, "only this service");
  command.flag("--json", options->json, "one JSON object");
  command.action([options]() -> Result<int> {
    const bool any_server = !options->at.service.empty();
    if (any_server && !options->at.peer.empty())
      return Status(Code::kInvalidArgument, "PEER excludes --service");
    const bool all = !any_server && options->at.peer.empty();
    if (all && options->at.ctrl_url.empty()) return missing("PEER, or --ctrl");
    return all ? all_services(*options) : services(*options);
  });
}

void add_stubs(Command& program) {
  auto options = std::make_shared<StubsOptions>();
  Command command = program.add_command("stubs", "Code that calls services with their own names and types");
  command.footer(
      "Forms:\n  slime stubs [OPTIONS] PEER               of all services of a peer, or the one of "
      "--service\n"
      "  slime stubs [OPTIONS] --service SERVICE  as any live server describes it\n"
      "\nExamples:\n  slime stubs worker:0 --ctrl http://127.0.0.1:4479 --out calc_stubs.py\n"
      "  slime stubs --service calc --language cpp --ctrl http://127.0.0.1:4479 --out calc_stubs.h");
  add_peer(command, options->at, "only this one; without PEER that of any live server");
  command.option("--language", options->language, "python or cpp").one_of({"python", "cpp"}).show_default();
  command.option("--namespace", options->name_space, "of C++").show_default();
  command.option("--out", options->out, "the file to write; without it stdout");
  command.action([options]() -> Result<int> {
    if (options->at.peer.empty() && options->at.service.empty()) return missing("PEER, or --service");
    return stubs(*options);
  });
}

void add_nixl_plugin_dir(Command& program) {
  auto options = std::make_shared<NixlPluginDirOptions>();
  Command command = program.add_command("nixl-plugin-dir",
                                        "Print a folder for NIXL_PLUGIN_DIR, with NIXL's plugins and SLIME");
  command.footer(
      "Example:\n  export NIXL_PLUGIN_DIR=$(slime nixl-plugin-dir)\n"
      "NIXL loads its plugins from one folder. This one, in the user's cache, consists of links to those of "
      "NIXL\n"
      "and to libplugin_SLIME.so, so that SLIME works beside UCX. Run the command again after an update of "
      "nixl\n"
      "or Slime.");
  command.option(
      "--nixl", options->python,
      "the Python that has nixl; else that of $VIRTUAL_ENV, of slime's own environment, or python3");
  command.flag("--json", options->json, "one JSON object");
  command.action([options] { return nixl_plugin_dir(*options); });
}

int run(int argc, char** argv) {
  command_line::Program program(
      "slime", "Slime: peers, one-sided transfers and calls over RDMA mailboxes, or plain TCP");
  program.require_command();
  program.version_flag("--version", "slime " SLIME_VERSION);
  std::string log_level = "warning";
  // check() also rejects an unknown level that comes from the environment.
  program.option("--log", log_level, "debug, info, warning, error or off; to stderr")
      .env("SLIME_LOG")
      .check([](const std::string& name) { return set_log_level(name); });
  add_doctor(program);
  add_peers(program);
  add_call(program);
  add_services(program);
  add_stubs(program);
  add_nixl_plugin_dir(program);
  bench::add_commands(program);
  program.add_command("version", "Print the version").action([] {
    std::printf("slime %s\n", SLIME_VERSION);
    return kExitOk;
  });
  return program.run(argc, argv);
}

}  // namespace
}  // namespace slime::cli

int main(int argc, char** argv) {
  // Ignores SIGPIPE: the program that reads our output may close its pipe before we end.
  std::signal(SIGPIPE, SIG_IGN);
  // Prints diagnostics on SIGUSR1. If the handler cannot be installed, SIGUSR1 ends the program.
  slime::dump_on_signal().ignore();
  return slime::cli::run(argc, argv);
}
