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

// Declares a program's commands, their options and their actions. Only command_line.cc includes
// CLI11, whose headers take many seconds to compile.
namespace slime::command_line {

// Handle of one option of a Command. Each function changes the option and returns the handle.
class Option {
 public:
  // Reads the value from this environment variable if the command line has none.
  Option env(const char* variable);
  Option required();
  // Shows the target's current value in --help as the default.
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
  // Splits an argument at its commas into several values.
  Option split_at_commas();
  // Refuses a value if `check` returns an error; prints the error's text.
  Option check(std::function<Status(const std::string& value)> check);
  // Refuses this option unless `other` is given too.
  Option needs(Option other);

 private:
  friend class Command;
  explicit Option(CLI::Option& option) : option_(&option) {}
  CLI::Option* option_;
};

// Handle of one command of a Program, or of the program itself. The Program and the targets of the
// options must live until Program::run() has returned; handles may be copied and dropped.
class Command {
 public:
  // Adds a subcommand.
  Command add_command(const std::string& name, const std::string& description);
  // Hides the command from its parent's --help.
  Command hide();
  // Sets the text at the end of --help.
  Command footer(const std::string& text);
  // Requires exactly one subcommand.
  Command require_command();

  // Adds the option "--name", or the positional argument "name". Stores its value in `target`,
  // which stays unchanged if neither command line nor environment has one. A list takes all words
  // up to the next option.
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
  // Declares an option that always fails as wrong usage, for an option that users may expect.
  // Prints `text`, never the value, which may be a secret. --help does not show the option.
  void refused_option(const std::string& name, const std::string& text);
  // Returns whether the command line or the environment has this option. Call it in an action.
  [[nodiscard]] bool given(const std::string& option) const;

  // Runs `action` if the command line names this command and no subcommand, and every option is
  // valid. The action returns the exit status, or an error for wrong usage: run() prints its text
  // and returns 2.
  void action(std::function<Result<int>()> action);

 protected:
  Command(CLI::App& app, int& exit_status) : app_(&app), exit_status_(&exit_status) {}
  CLI::App* app_;
  int* exit_status_;
};

// Command line of a whole program.
class Program : public Command {
 public:
  Program(const std::string& name, const std::string& description);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Parses the command line and runs the action of the named command. Returns the exit status: the
  // action's, 0 after --help and the version flag, 2 after wrong usage (stderr says what is wrong).
  int run(int argc, const char* const* argv);

 private:
  struct Parser;
  explicit Program(std::unique_ptr<Parser> parser);
  std::unique_ptr<Parser> parser_;
};

}  // namespace slime::command_line
