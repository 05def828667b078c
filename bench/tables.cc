#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/str.h"
#include "bench/ctrl_present.h"
#include "bench/present.h"
#include "bench/read_file.h"

namespace slime::bench {
namespace {

using nlohmann::json;

struct Group {
  const char* name;
  const char* title;
};
constexpr Group kGroups[] = {{"calls", "Calls and notifications"},
                             {"sizes", "Calls by size"},
                             {"hot", "Blocks, hot: the same ones again and again"},
                             {"cold", "Blocks, cold: random ones between two pools"},
                             {"foreign", "Blocks in memory that is not Slime's"},
                             {"batches", "Batches of many small blocks"},
                             {"connect", "Connecting"},
                             {"cache", "Cache"},
                             {"idle", "Idle"}};

// "1,234,567", "12.3", "0.456": three digits that count.
std::string digits(double value) {
  char text[64];
  if (std::abs(value) >= 10'000) {
    std::snprintf(text, sizeof text, "%.0f", value);
    std::string out = text;
    for (auto at = static_cast<int>(out.size()) - 3; at > 0; at -= 3)
      out.insert(static_cast<std::size_t>(at), ",");
    return out;
  }
  std::snprintf(text, sizeof text,
                std::abs(value) >= 100  ? "%.0f"
                : std::abs(value) >= 10 ? "%.1f"
                                        : "%.2f",
                value);
  return text;
}

std::string unit_of(const std::string& figure) {
  if (figure == "p50_us") return "us";
  if (figure == "ops_per_s") return "/s";
  if (figure == "gb_per_s") return "GB/s";
  if (figure == "pss_kib_per_peer") return "KiB";
  return figure;
}

// "0.93 us (0.90 to 1.02)"
std::string with_spread(double value, const json& spread, const std::string& unit) {
  std::string out = digits(value) + " " + unit;
  if (spread.is_array() && spread.at(0) != spread.at(1))
    out += str(" (", digits(spread.at(0).get<double>()), " to ", digits(spread.at(1).get<double>()), ")");
  return out;
}

// What else a line has to say.
std::string remarks(const json& report) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  const auto number = [&report](const char* key) { return report.at(key).get<double>(); };
  if (report.at("limit").at("figure") == "p50_us") add(str("p99 ", digits(number("p99_us")), " us"));
  if (report.contains("one_client")) {
    add(str(digits(report["one_client"]["ratio"].get<double>()), " of one client's ",
            digits(report["one_client"]["ops_per_s"].get<double>()), "/s; least share ",
            digits(number("least_share"))));
  }
  if (report.contains("faults_per_operation")) add(str("faults ", digits(number("faults_per_operation"))));
  if (report.contains("distinct_blocks")) add(str(digits(number("distinct_blocks")), " different blocks"));
  if (report.contains("cpu_percent")) {
    add(str(digits(number("cpu_percent")), " % of a core; ", digits(number("fds_per_peer")),
            " descriptors a peer"));
  }
  return out;
}

void put_line(std::ostream& out, const json& line) {
  const auto cell = [&line](const char* key) { return line.at(key).get<std::string>(); };
  const std::string name = cell("name");
  const std::string provider = name.substr(0, name.find('/'));
  out << "| " << cell("title") << " | " << provider << " | ";
  if (line.contains("error")) {
    out << "failed: " << cell("error") << " | | | | ";
  } else {
    const json& report = line.at("report");
    const json& limit = report.at("limit");
    const std::string figure = limit.at("figure").get<std::string>();
    const json spread = report.contains("spread") ? report["spread"].value(figure, json()) : json();
    std::string ratio = digits(report.at("ratio_to_limit").get<double>());
    out << with_spread(report.at(figure).get<double>(), spread, unit_of(figure)) << " | "
        << limit.at("name").get<std::string>() << ": "
        << with_spread(limit.at("value").get<double>(), limit.at("spread"), unit_of(figure)) << " | " << ratio
        << " | " << remarks(report) << " | ";
  }
  out << "`" << cell("command") << "` |\n";
}

void put_machine(std::ostream& out, const json& file) {
  const json& machine = file.at("machine");
  const auto text = [&machine](const char* key) { return machine.at(key).get<std::string>(); };
  out << "| | |\n|---|---|\n";
  out << "| command | `" << file.at("command").get<std::string>() << "` |\n";
  out << "| version, commit | " << file.at("version").get<std::string>() << ", "
      << file.at("commit").get<std::string>() << " |\n";
  out << "| when | " << text("time") << ", load before " << digits(machine.at("load").get<double>())
      << " |\n";
  out << "| processor | " << text("cpu") << ", " << machine.at("cores").get<unsigned>()
      << " cores; siblings of the first one: " << text("siblings") << " |\n";
  out << "| caches of the first core | ";
  for (const json& cache : machine.at("caches")) out << cache.get<std::string>() << "; ";
  out << " |\n| memory, kernel | " << digits(machine.at("memory_gib").get<double>()) << " GiB, Linux "
      << text("kernel") << ", " << text("arch") << " |\n";
  if (file.at("quick").get<bool>()) out << "| | one short round each (--quick): no figures to go by |\n";
  if (!file.at("complete").get<bool>()) out << "| | not complete: it was interrupted |\n";
  for (const json& skipped : file.at("skipped")) {
    out << "| no " << skipped.at("provider").get<std::string>() << " | "
        << skipped.at("reason").get<std::string>() << " |\n";
  }
}

std::string tables_of_all(const json& file) {
  std::ostringstream out;
  put_machine(out, file);
  for (const Group& group : kGroups) {
    bool begun = false;
    for (const json& line : file.at("lines")) {
      if (line.at("group") != group.name) continue;
      if (!begun) {
        out << "\n### " << group.title
            << "\n\n| what | provider | Slime | limit, in the same run | ratio | | command |\n"
            << "|---|---|---|---|---|---|---|\n";
        begun = true;
      }
      put_line(out, line);
    }
  }
  return out.str();
}

// A file of bench/compare/peers.py.
std::string tables_of_peers(const json& file) {
  std::ostringstream out;
  out << "| what | Slime | peer | its figure | Slime : peer | of the rounds |\n|---|---|---|---|---|---|\n";
  for (const json& row : file.at("comparisons")) {
    const std::string unit = row.at("unit").get<std::string>();
    for (const json& peer : row.at("peers")) {
      out << "| " << row.at("what").get<std::string>() << " | ";
      if (row.at("slime").is_null()) {
        out << "failed | ";
      } else {
        out << digits(row.at("slime").get<double>()) << " " << unit << " | ";
      }
      out << peer.at("name").get<std::string>() << " | ";
      if (peer.at("median").is_null() || peer.at("ratio").is_null()) {
        out << "failed | | |\n";
        continue;
      }
      out << digits(peer.at("median").get<double>()) << " " << unit << " | "
          << digits(peer.at("ratio").get<double>()) << " | " << digits(peer.at("ratios").at(0).get<double>())
          << " to " << digits(peer.at("ratios").at(1).get<double>()) << " |\n";
    }
  }
  return out.str();
}

struct Marks {
  std::string begin;
  std::string end;
};

Status replace_between(const std::string& path, const Marks& marks, const std::string& tables) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  if (!in) return {Code::kNotFound, str("cannot read ", path)};
  std::string page = all.str();
  const auto begin = page.find(marks.begin);
  const auto end = page.find(marks.end);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return {Code::kNotFound, str(path, " has no lines ", marks.begin, " and ", marks.end)};
  const auto after = begin + marks.begin.size();
  page.replace(after, end - after, "\n\n" + tables + "\n");
  std::ofstream out(path, std::ios::trunc);
  out << page;
  out.close();
  if (!out) return {Code::kUnavailable, str("cannot write ", path)};
  return {};
}

}  // namespace

Status print_tables(const std::string& file, const std::string& into) {
  const auto json_file = read_json(file);
  if (!json_file) return json_file.error();
  const bool peers = json_file->contains("comparisons");
  const bool ctrl = json_file->contains("runs");
  std::string tables;
  // Only a file that somebody changed by hand lacks what is looked up here.
  try {
    tables = peers  ? tables_of_peers(*json_file)
             : ctrl ? tables_of_ctrl(*json_file)
                    : tables_of_all(*json_file);
  } catch (const json::exception& missing) {
    return {Code::kInvalidArgument, str(file, ": not such a file: ", missing.what())};
  }
  if (!into.empty()) {
    const std::string what = peers ? "peers" : ctrl ? "ctrl" : "tables";
    return replace_between(into, {str("<!-- ", what, ": begin -->"), str("<!-- ", what, ": end -->")},
                           tables);
  }
  std::cout << tables;
  return {};
}

}  // namespace slime::bench
