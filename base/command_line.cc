#include "base/command_line.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "base/program.h"

namespace slime::command_line {
namespace {

template <class T>
CLI::Option& add(CLI::App& app, const std::string& name, T& target, const std::string& help) {
  return *app.add_option(name, target, help);
}

}  // namespace

Option Option::env(const char* variable) {
  option_->envname(variable);
  return *this;
}
Option Option::required() {
  option_->required();
  return *this;
}
Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}
Option Option::show_default(const char* text) {
  option_->default_str(text);
  return *this;
}
Option Option::in_range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
Option Option::in_range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
Option Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}
Option Option::as_size() {
  option_->transform(CLI::AsSizeValue(false));
  return *this;
}
Option Option::split_at_commas() {
  option_->delimiter(',');
  return *this;
}
Option Option::check(std::function<Status(const std::string& value)> check) {
  option_->check([check = std::move(check)](const std::string& value) { return check(value).text(); });
  return *this;
}
Option Option::needs(Option other) {
  option_->needs(other.option_);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& description) {
  return {*app_->add_subcommand(name, description), *exit_status_};
}
Command Command::hide() {
  app_->group("");
  return *this;
}
Command Command::footer(const std::string& text) {
  app_->footer(text);
  return *this;
}
Command Command::require_command() {
  app_->require_subcommand(1);
  return *this;
}

Option Command::option(const std::string& name, std::string& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, double& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::uint16_t& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::uint32_t& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::uint64_t& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::optional<double>& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::optional<std::uint32_t>& target,
                       const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::vector<int>& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::option(const std::string& name, std::vector<std::uint32_t>& target, const std::string& help) {
  return Option(add(*app_, name, target, help));
}
Option Command::flag(const std::string& name, bool& target, const std::string& help) {
  return Option(*app_->add_flag(name, target, help));
}
Option Command::version_flag(const std::string& name, const std::string& text) {
  return Option(*app_->set_version_flag(name, text));
}

void Command::refused_option(const std::string& name, const std::string& text) {
  // Accepts any number of words, also none: an error about a wrong number of words would show the
  // words, which may be a secret.
  app_->add_option(name,
                   [name, text](const CLI::results_t&) -> bool { throw CLI::ValidationError(name, text); })
      ->expected(0, 1)
      ->group("");
}

bool Command::given(const std::string& option) const { return app_->count(option) != 0; }

void Command::action(std::function<Result<int>()> action) {
  app_->callback([action = std::move(action), app = app_, exit_status = exit_status_] {
    if (!app->get_subcommands().empty()) return;  // the subcommand's action runs
    const Result<int> status = action();
    if (!status) throw CLI::ValidationError(status.error().text());
    *exit_status = *status;
  });
}

struct Program::Parser {
  Parser(const std::string& name, const std::string& description) : app(description, name) {}
  CLI::App app;
  int exit_status = daemon::kExitOk;
};

Program::Program(const std::string& name, const std::string& description)
    : Program(std::make_unique<Parser>(name, description)) {}
Program::Program(std::unique_ptr<Parser> parser)
    : Command(parser->app, parser->exit_status), parser_(std::move(parser)) {}
Program::~Program() = default;

int Program::run(int argc, const char* const* argv) {
  try {
    parser_->app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 throws --help and --version as errors with exit status 0.
    return parser_->app.exit(error) == 0 ? daemon::kExitOk : daemon::kExitUsage;
  }
  return parser_->exit_status;
}

}  // namespace slime::command_line
