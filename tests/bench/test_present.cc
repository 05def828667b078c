// Tables and plots of a small file that `slime bench all --quick` wrote, and of files that are not whole.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/present.h"
#include "bench/svg.h"
#include "tests/support/folder.h"

namespace slime::bench {
namespace {

using nlohmann::json;

struct Folder : test::Folder {
  [[nodiscard]] std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
};

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

json limit(const char* figure, double value, bool less) {
  return {{"name", "a limit"}, {"kind", "memcpy"},       {"figure", figure},
          {"value", value},    {"less_is_better", less}, {"spread", {value, 2 * value}}};
}

json line(const char* name, const char* group, json report) {
  return {{"name", name},
          {"group", group},
          {"title", "a title"},
          {"command", "slime bench x"},
          {"report", std::move(report)}};
}

json block(std::uint64_t size, double speed) {
  return {{"bench", "bulk"},
          {"provider", "shm"},
          {"mode", "caller"},
          {"operation", "write"},
          {"size", size},
          {"gb_per_s", speed},
          {"ratio_to_limit", 0.5},
          {"faults_per_operation", 0.25},
          {"spread", {{"gb_per_s", {speed, speed + 1}}}},
          {"limit", limit("gb_per_s", 2 * speed, false)}};
}

json sample() {
  json out = {{"format", 1},
              {"complete", false},
              {"version", "0.1.0"},
              {"commit", "unknown"},
              {"command", "slime bench all --quick"},
              {"quick", true},
              {"skipped", {{{"provider", "verbs"}, {"reason", "no device"}}}},
              {"machine",
               {{"cpu", "a processor"},
                {"cores", 2},
                {"siblings", "0"},
                {"caches", {"L1 Data 32K"}},
                {"memory_gib", 8.0},
                {"kernel", "6.1"},
                {"arch", "x86_64"},
                {"load", 0.5},
                {"time", "2026-01-01T00:00:00Z"}}}};
  out["lines"] = {line("shm/rpc-64", "calls",
                       {{"bench", "rpc"},
                        {"provider", "shm"},
                        {"mode", "caller"},
                        {"size", 64},
                        {"p50_us", 1.25},
                        {"p99_us", 3.5},
                        {"ratio_to_limit", 2.5},
                        {"spread", {{"p50_us", {1.0, 2.0}}}},
                        {"limit", limit("p50_us", 0.5, true)}}),
                  line("shm/bulk-1", "hot", block(65536, 10)),
                  line("shm/bulk-2", "hot", block(1 << 20, 20)),
                  {{"name", "shm/broken"},
                   {"group", "cold"},
                   {"title", "broken"},
                   {"command", "slime bench y"},
                   {"error", "unavailable: it broke"}}};
  return out;
}

TEST_CASE("tables name figure, limit, ratio, machine and what is missing") {
  const Folder folder;
  const std::string file = folder.put("all.json", sample().dump());
  const std::string page =
      folder.put("page.md", "before\n<!-- tables: begin -->\nstale\n<!-- tables: end -->\nafter\n");
  const Status status = print_tables(file, page);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  const std::string text = folder.text("page.md");
  CAPTURE(text);
  CHECK(text.rfind("before\n<!-- tables: begin -->\n", 0) == 0);
  CHECK(contains(text, "<!-- tables: end -->\nafter\n"));
  CHECK_FALSE(contains(text, "stale"));
  CHECK(contains(
      text,
      "| a title | shm | 1.25 us (1.00 to 2.00) | a limit: 0.50 us (0.50 to 1.00) | 2.50 | p99 3.50 us |"));
  CHECK(contains(text,
                 "| 10.0 GB/s (10.0 to 11.0) | a limit: 20.0 GB/s (20.0 to 40.0) | 0.50 | faults 0.25 |"));
  CHECK(contains(text, "failed: unavailable: it broke"));
  CHECK(contains(text, "no verbs | no device"));
  CHECK(contains(text, "not complete"));
  CHECK(contains(text, "a processor"));
  // Once more: the marks are still there.
  CHECK(print_tables(file, page).ok());
  CHECK(folder.text("page.md") == text);
}

TEST_CASE("a page without marks, or no file, is told") {
  const Folder folder;
  const std::string file = folder.put("all.json", sample().dump());
  CHECK(print_tables(file, folder.put("bare.md", "nothing\n")).code() == Code::kNotFound);
  CHECK(folder.text("bare.md") == "nothing\n");
  CHECK(print_tables(folder.file("none.json"), "").code() == Code::kNotFound);
  CHECK(print_tables(folder.put("half.json", "{\"format\": 1"), "").code() == Code::kInvalidArgument);
  CHECK(print_tables(folder.put("other.json", "{}"), folder.file("page")).code() == Code::kInvalidArgument);
  CHECK(write_plots(folder.put("other.json", "{}"), folder.file("plots")).code() == Code::kInvalidArgument);
}

TEST_CASE("plots: latency, throughput of each provider, ratios") {
  const Folder folder;
  const std::string file = folder.put("all.json", sample().dump());
  const Status status = write_plots(file, folder.file("plots"));
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  for (const char* name : {"plots/latency.svg", "plots/throughput-shm.svg", "plots/ratios.svg"}) {
    const std::string text = folder.text(name);
    CAPTURE(name);
    CHECK(text.rfind("<svg ", 0) == 0);
    CHECK(contains(text, "</svg>\n"));
    CHECK_FALSE(contains(text, "nan"));
    CHECK_FALSE(contains(text, "inf"));
  }
  CHECK(contains(folder.text("plots/latency.svg"), "shm/rpc-64"));
  CHECK(contains(folder.text("plots/throughput-shm.svg"), "hot write"));
  CHECK(contains(folder.text("plots/throughput-shm.svg"), "stroke-dasharray"));
  CHECK(contains(folder.text("plots/ratios.svg"), "2.5 (less is better)"));
  CHECK_FALSE(contains(folder.text("plots/ratios.svg"), "broken"));
}

TEST_CASE("text in a picture cannot end it") {
  Svg picture(10, 10);
  picture.text(0, 0, "a<b>&c");
  CHECK(contains(picture.str(), "a&lt;b&gt;&amp;c"));
}

TEST_CASE("a logarithmic axis covers whole decades") {
  const LogAxis axis(0.2, 30, 0, 300);
  CHECK(axis.ticks() == std::vector<double>{0.1, 1, 10, 100});
  CHECK(axis.at(1) == doctest::Approx(100));
  CHECK(axis.at(1000) == doctest::Approx(300));
  const LogAxis values(4, 64, 0, 100, LogAxis::Ends::kValues);
  CHECK(values.at(4) == doctest::Approx(0));
  CHECK(values.at(16) == doctest::Approx(50));
  const LogAxis one(4, 4, 0, 100, LogAxis::Ends::kValues);
  CHECK(one.at(4) == doctest::Approx(0));
}

}  // namespace
}  // namespace slime::bench
