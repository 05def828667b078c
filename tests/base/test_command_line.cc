#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/command_line.h"

using namespace slime;
using namespace slime::command_line;

namespace {

int run(Program& program, std::vector<const char*> words) {
  words.insert(words.begin(), "program");
  return program.run(static_cast<int>(words.size()), words.data());
}

}  // namespace

TEST_CASE("the action of the command that is named runs, and gives the exit status") {
  Program program("program", "a program");
  program.action([] { return 1; });
  Command outer = program.add_command("outer", "has one below");
  outer.action([] { return 2; });
  outer.add_command("inner", "is below").action([] { return 3; });
  SUBCASE("none") { CHECK(run(program, {}) == 1); }
  SUBCASE("one") { CHECK(run(program, {"outer"}) == 2); }
  SUBCASE("one below") { CHECK(run(program, {"outer", "inner"}) == 3); }
}

TEST_CASE("an action's error is wrong usage") {
  Program program("program", "a program");
  program.action([]() -> Result<int> { return Status(Code::kInvalidArgument, "PEER is required"); });
  CHECK(run(program, {}) == 2);
}

TEST_CASE("a refused option is wrong usage with its text, and no word of it is told") {
  Program program("program", "a program");
  program.require_command();
  Command command = program.add_command("command", "a command");
  command.refused_option("--token", "give --token-file");
  bool ran = false;
  command.action([&] {
    ran = true;
    return 0;
  });
  for (const auto& words : {std::vector<const char*>{"command", "--token", "a-secret"},
                            {"command", "--token=a-secret"},
                            {"command", "--token"}}) {
    std::ostringstream said;
    std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
    const int status = run(program, words);
    std::cerr.rdbuf(before);
    CHECK(status == 2);
    CHECK(said.str().find("give --token-file") != std::string::npos);
    CHECK(said.str().find("a-secret") == std::string::npos);
  }
  CHECK_FALSE(ran);
  CHECK(run(program, {"command"}) == 0);
}

TEST_CASE("no action runs where an option is wrong") {
  Program program("program", "a program");
  bool ran = false;
  double seconds = 1;
  std::string word = "a";
  std::string checked;
  bool flag = false;
  program.option("--seconds", seconds).in_range(0.5, 2.0);
  program.option("--word", word).one_of({"a", "b"});
  program.option("--checked", checked).check([](const std::string& value) {
    return value == "good" ? Status() : Status(Code::kInvalidArgument, "not good");
  });
  program.flag("--flag", flag, "").needs(program.option("--other", checked));
  program.action([&] {
    ran = true;
    return 0;
  });
  SUBCASE("range") { CHECK(run(program, {"--seconds", "3"}) == 2); }
  SUBCASE("words") { CHECK(run(program, {"--word", "c"}) == 2); }
  SUBCASE("check") { CHECK(run(program, {"--checked", "bad"}) == 2); }
  SUBCASE("needs") { CHECK(run(program, {"--flag"}) == 2); }
  SUBCASE("unknown") { CHECK(run(program, {"--unknown"}) == 2); }
  SUBCASE("help") { CHECK(run(program, {"--help"}) == 0); }
  CHECK(!ran);
}

TEST_CASE("values go to their targets, and targets without one stay as they are") {
  ::setenv("SLIME_TEST_COMMAND_LINE", "from the environment", 1);
  Program program("program", "a program");
  std::string from_environment;
  std::string untouched = "before";
  std::uint64_t bytes = 0;
  std::optional<std::uint32_t> absent;
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> words;
  program.option("--env", from_environment).env("SLIME_TEST_COMMAND_LINE");
  program.option("--untouched", untouched);
  program.option("--bytes", bytes).as_size();
  program.option("--absent", absent);
  program.option("--numbers", numbers).split_at_commas();
  program.option("words", words);
  program.action([&] { return program.given("--bytes") && !program.given("--untouched") ? 0 : 9; });
  CHECK(run(program, {"a", "b", "--numbers", "1,2", "--bytes", "64K"}) == 0);
  CHECK(from_environment == "from the environment");
  CHECK(untouched == "before");
  CHECK(bytes == 64 << 10);
  CHECK(!absent);
  CHECK(numbers == std::vector<std::uint32_t>{1, 2});
  CHECK(words == std::vector<std::string>{"a", "b"});
  ::unsetenv("SLIME_TEST_COMMAND_LINE");
}

TEST_CASE("a required option, or command, is required") {
  Program program("program", "a program");
  std::string value;
  SUBCASE("option") { program.option("--value", value).required(); }
  SUBCASE("command") {
    program.require_command();
    program.add_command("one", "");
  }
  CHECK(run(program, {}) == 2);
}
