#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

// The command line of a program: its commands, their options, and the action of each. Backed by CLI11, whose
// headers take many seconds to compile: only command_line.cc includes them.
namespace slime::command_line {

// Handle of one option of a Command. Each function changes the option and returns the handle.
class Option {
 public:
  // Takes the value from this environment variable where the command line has none.
  Option env(const char* variable);
  Option required();
  // Shows the target's present value in --help as the default.
  Option show_default();
  // Shows `text` in --help as the default.
  Option show_default(const char* text);
  // Accepts only numbers from `low` to `high`.
  Option in_range(double low, double high);
  Option in_range(int low, int high);
  // Accepts only these words.
  Option one_of(const std::vector<std::string>& words);
  // Accepts a number of bytes with an optional unit: 64K, 1M, 2GB. Units are powers of 1,024.
  Option as_size();
  // Splits one argument at its commas into several values.
  Option split_at_commas();
  // Refuses a value for which `check` returns an error, with the error's text.
  Option check(std::function<Status(const std::string& value)> check);
  // Refuses this option where `other` is not given.
  Option needs(Option other);

 private:
  friend class Command;
  explicit Option(CLI::Option& option) : option_(&option) {}
  CLI::Option* option_;
};

// Handle of one command of a Program, or of the program itself. The Program and the targets of the options
// must outlive its parsing; handles may be copied and dropped.
class Command {
 public:
  // Adds a command below this one.
  Command add_command(const std::string& name, const std::string& description);
  // Leaves the command out of its parent's --help.
  Command hide();
  // Text at the end of --help.
  Command footer(const std::string& text);
  // Requires exactly one of the commands below this one.
  Command require_command();

  // Adds "--name", or "name" for a positional argument. Its value goes to `target`, which stays unchanged
  // where the command line and the environment have none. A list takes all words up to the next option.
  Option option(const std::string& name, std::string& target, const std::string& help = "");
  Option option(const std::string& name, double& target, const std::string& help = "");
  Option option(const std::string& name, std::uint16_t& target, const std::string& help = "");
  Option option(const std::string& name, std::uint32_t& target, const std::string& help = "");
  Option option(const std::string& name, std::uint64_t& target, const std::string& help = "");
  Option option(const std::string& name, std::optional<double>& target, const std::string& help = "");
  Option option(const std::string& name, std::optional<std::uint32_t>& target, const std::string& help = "");
  Option option(const std::string& name, std::vector<std::string>& target, const std::string& help = "");
  Option option(const std::string& name, std::vector<int>& target, const std::string& help = "");
  Option option(const std::string& name, std::vector<std::uint32_t>& target, const std::string& help = "");
  // Adds a flag, which sets `target` to true.
  Option flag(const std::string& name, bool& target, const std::string& help);
  // Adds a flag that prints `text` and ends the program with status 0.
  Option version_flag(const std::string& name, const std::string& text);
  // Whether the command line, or the environment, has this option of the command. For actions.
  [[nodiscard]] bool given(const std::string& option) const;

  // Runs `action` when the command line names this command, none below it, and every option is valid. The
  // action returns the program's exit status, or an error for wrong usage: its text is printed, and the exit
  // status is 2.
  void action(std::function<Result<int>()> action);

 protected:
  Command(CLI::App& app, int& exit_status) : app_(&app), exit_status_(&exit_status) {}
  CLI::App* app_;
  int* exit_status_;
};

// The command line of a whole program.
class Program : public Command {
 public:
  Program(const std::string& name, const std::string& description);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Parses the command line and runs the action of the command that it names. Returns the exit status: that
  // of the action, 0 after --help and the version flag, 2 after wrong usage, which is told on stderr.
  int run(int argc, const char* const* argv);

 private:
  struct Parser;
  explicit Program(std::unique_ptr<Parser> parser);
  std::unique_ptr<Parser> parser_;
};

}  // namespace slime::command_line
