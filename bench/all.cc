#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/process.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr Nanos kLongestLine =
    std::chrono::hours(2);  // 1,000 rounds of seconds each; Ctrl-C ends a line, too

// Replaces the file, which is one whole object at every moment.
Status write_file(const std::string& path, const json& value) {
  const std::string next = path + ".next";
  std::ofstream file(next, std::ios::trunc);
  file << value.dump(1) << "\n";
  file.close();
  if (!file) return {Code::kUnavailable, str("cannot write ", next)};
  if (std::rename(next.c_str(), path.c_str()) != 0) return from_errno(path, errno);
  return {};
}

std::string joined(const std::vector<std::string>& words) {
  std::string out = "slime bench";
  for (const std::string& word : words) out += " " + word;
  return out;
}

// Runs the measurement in a process of its own, without traces of the measurement before.
Result<json> run_line(const Line& line) {
  std::vector<std::string> arguments{"bench"};
  arguments.insert(arguments.end(), line.arguments.begin(), line.arguments.end());
  arguments.emplace_back("--json");
  auto child = Child::start(arguments);
  if (!child) return std::move(child).error();
  const auto text = child->read_line(kLongestLine);
  if (!text) return text.error();
  json report = json::parse(*text, nullptr, false);
  if (!report.is_object()) return Status(Code::kInternal, str("the measurement said: ", *text));
  if (report.contains("error")) {
    // After Ctrl-C the child may end before this process notices the signal.
    if (interrupted()) return Status(Code::kCancelled, "interrupted");
    return Status(Code::kInternal, report["error"].get<std::string>());
  }
  if (!report.value("verified", true)) return Status(Code::kCorrupt, "wrong data");
  report.erase("machine");  // the file names the machine once
  return report;
}

std::string summary(const json& report) {
  const json& limit = report.at("limit");
  char text[128];
  const std::string figure = limit.at("figure").get<std::string>();
  std::snprintf(text, sizeof text, "%s %.4g, limit %.4g, ratio %.3f", figure.c_str(),
                report.at(figure).get<double>(), limit.at("value").get<double>(),
                report.at("ratio_to_limit").get<double>());
  return text;
}

// Returns the providers that work here; `skipped` gets the reasons of the others.
std::vector<std::string> usable_providers(const AllOptions& options, json& skipped) {
  std::vector<std::string> out;
  const std::vector<std::string> usual{"tcp", "shm"};
  for (const std::string& provider : options.providers.empty() ? usual : options.providers) {
    auto agent = PeerAgent::start({.name = "bench-probe", .provider = provider});
    if (agent) {
      out.push_back(provider);
    } else {
      skipped.push_back({{"provider", provider}, {"reason", agent.error().to_string()}});
      std::fprintf(stderr, "slime bench: no %s here: %s\n", provider.c_str(),
                   agent.error().to_string().c_str());
    }
  }
  return out;
}

}  // namespace

Status measure_all(const AllOptions& options) {
  install_interrupt_flag();
  json skipped = json::array();
  std::vector<Line> lines;
  for (const std::string& provider : usable_providers(options, skipped)) {
    for (Line& line : lines_of(provider, options)) lines.push_back(std::move(line));
  }
  if (lines.empty() && !skipped.empty()) return {Code::kUnavailable, "none of these providers works here"};
  if (lines.empty()) return {Code::kInvalidArgument, "--only: no line has such a name"};
  json out = {{"format", 1},
              {"complete", false},
              {"interrupted", false},
              {"version", SLIME_VERSION},
              {"commit", options.commit.empty() ? "unknown" : options.commit},
              {"command", options.quick ? str("slime bench all --quick")
                                        : str("slime bench all --rounds ", options.rounds, " --seconds ",
                                              options.seconds)},
              {"quick", options.quick},
              {"machine", machine_facts()},
              {"skipped", std::move(skipped)},
              {"lines", json::array()}};
  SLIME_TRY(write_file(options.file, out));
  std::size_t failed = options.providers.empty() ? 0 : out["skipped"].size();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    std::fprintf(stderr, "[%zu/%zu] %s: ", i + 1, lines.size(), line.name.c_str());
    const auto report = run_line(line);
    if (interrupted() || (!report && report.error().code() == Code::kCancelled)) {
      std::fprintf(stderr, "interrupted\n");
      out["interrupted"] = true;
      SLIME_TRY(write_file(options.file, out));
      return {Code::kCancelled, str("interrupted; what was done is in ", options.file)};
    }
    json entry = {{"name", line.name},
                  {"group", line.group},
                  {"title", line.title},
                  {"command", joined(line.arguments)}};
    if (report) {
      entry["report"] = *report;
      std::fprintf(stderr, "%s\n", summary(*report).c_str());
    } else {
      ++failed;
      entry["error"] = report.error().to_string();
      std::fprintf(stderr, "FAILED: %s\n", report.error().to_string().c_str());
    }
    out["lines"].push_back(std::move(entry));
    SLIME_TRY(write_file(options.file, out));
  }
  out["complete"] = true;
  SLIME_TRY(write_file(options.file, out));
  if (failed != 0)
    return {Code::kInternal, str(failed, " could not be measured; the others are in ", options.file)};
  return {};
}

}  // namespace slime::bench
