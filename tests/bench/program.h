#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

// `slime bench` as a process of a test.
namespace slime::bench::program_test {

using nlohmann::json;
using test::Process;

inline const Nanos kPatience = test::patient(std::chrono::seconds(120));

inline Process start(std::vector<std::string> arguments) {
  std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$0\" bench \"$@\" 2>&1",
                                test::built_file("cli/slime")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  auto process = Process::spawn(std::move(argv));
  REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
  return *std::move(process);
}

struct Outcome {
  int exit_code = -1;
  std::string text;
};

inline Outcome finish(Process process) {
  Outcome out;
  for (auto line = process.read_line(kPatience); line; line = process.read_line(kPatience)) {
    out.text.append(*line).append("\n");
  }
  const auto ended = process.wait(kPatience);
  REQUIRE_MESSAGE(ended.has_value(), ended.status().to_string());
  CHECK_FALSE(ended->signaled);
  out.exit_code = ended->value;
  return out;
}

inline Outcome run(const std::vector<std::string>& arguments) { return finish(start(arguments)); }

inline json report(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = run(arguments);
  CAPTURE(outcome.text);
  CHECK(outcome.exit_code == 0);
  json out = json::parse(outcome.text, nullptr, false);
  REQUIRE(out.is_object());
  return out;
}

// What every report of every measurement has.
inline void check_report(const json& report, const std::string& provider) {
  CAPTURE(report.dump());
  CHECK(report["provider"] == provider);
  CHECK(report.value("verified", true) == true);
  REQUIRE(report["limit"].is_object());
  CHECK_FALSE(report["limit"]["name"].get<std::string>().empty());
  CHECK(report["limit"]["value"] > 0);
  const std::string figure = report["limit"]["figure"];
  REQUIRE(report.contains(figure));
  CHECK(report["ratio_to_limit"].get<double>() ==
        doctest::Approx(report[figure].get<double>() / report["limit"]["value"].get<double>()));
  CHECK_FALSE(report["machine"]["cpu"].get<std::string>().empty());
}

inline bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

inline const std::vector<std::string> kBrief = {"--seconds", "0.05", "--warmup", "0.01"};

inline std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// `slime bench serve` on a free port.
struct Server {
  explicit Server(const std::vector<std::string>& more = {})
      : process(start(with({"serve", "--listen", "127.0.0.1:0", "--json"}, more))) {
    const auto line = process.read_line(kPatience);
    REQUIRE_MESSAGE(line.has_value(), line.status().to_string());
    const json started = json::parse(*line, nullptr, false);
    REQUIRE_MESSAGE(started.is_object(), *line);
    address = started["address"];
    version = started["version"];
  }
  Process process;
  std::string address;
  std::string version;
};

}  // namespace slime::bench::program_test
