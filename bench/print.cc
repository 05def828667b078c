// A report as a table for a terminal.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"

namespace slime::bench {
namespace {

using nlohmann::json;
using Rows = std::vector<std::pair<std::string, std::string>>;

std::string short_number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : "%.4g", value);
  return text;
}

std::string cell(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? short_number(value.get<double>()) : value.dump();
}

// Returns the least and the largest round by figure; a limit has one figure.
json spreads_of(const json& object) {
  json out = object.value("spread", json::object());
  if (out.is_array()) return {{"value", out}};
  if (object.contains("ratio_spread")) out["ratio_to_limit"] = object["ratio_spread"];
  return out;
}

// Adds a row for each value of an object, with its path as the name: "limit.value". A figure with a
// spread shows its least and largest round.
void add_rows(const json& object, const std::string& prefix, const json& spread, Rows& rows) {
  for (const auto& [key, value] : object.items()) {
    if (key == "machine" || key == "server_machine" || key == "spread" || key == "ratio_spread" ||
        value.is_null())
      continue;
    const std::string name = prefix.empty() ? key : str(prefix, ".", key);
    if (value.is_object()) {
      add_rows(value, name, spreads_of(value), rows);
      continue;
    }
    std::string text = cell(value);
    if (spread.contains(key) && spread[key][0] != spread[key][1])
      text += str("  (", cell(spread[key][0]), " to ", cell(spread[key][1]), ")");
    rows.emplace_back(name, std::move(text));
  }
}

std::string table_of(const json& report) {
  Rows rows;
  add_rows(report, "", spreads_of(report), rows);
  std::size_t width = 0;
  for (const auto& [name, text] : rows) width = std::max(width, name.size());
  std::string out;
  for (const auto& [name, text] : rows)
    out += str(out.empty() ? "" : "\n", name, std::string(width + 2 - name.size(), ' '), text);
  return out;
}

std::string csv_value(const json& value) {
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Adds a column for each value of an object, except lists.
void add_columns(const json& object, const std::string& prefix, Rows& columns) {
  for (const auto& [key, value] : object.items()) {
    if (key == "machine" || key == "server_machine" || key == "server_machine" || value.is_array()) continue;
    const std::string name = prefix.empty() ? key : str(prefix, ".", key);
    if (value.is_object())
      add_columns(value, name, columns);
    else
      columns.emplace_back(name, csv_value(value));
  }
}

// Returns the rows of a sweep as a table, below the facts that all rows share.
std::string sweep_table(const json& report) {
  json facts = report;
  for (const char* key : {"rows", "columns"}) facts.erase(key);
  std::vector<std::vector<std::string>> lines{report["columns"].get<std::vector<std::string>>()};
  for (const json& row : report["rows"]) {
    lines.emplace_back();
    for (const std::string& name : lines.front()) lines.back().push_back(cell(row.at(name)));
  }
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out = table_of(facts) + "\n";
  for (const auto& line : lines) {
    out += "\n";
    for (std::size_t i = 0; i < line.size(); ++i)
      out += str(i == 0 ? "" : "  ", std::string(widths[i] - line[i].size(), ' '), line[i]);
  }
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string format_csv(const std::string& report) {
  const json parsed = json::parse(report);
  json rows = json::array({parsed});
  for (const char* name : {"rows", "runs"}) {
    if (parsed.contains(name)) rows = parsed[name];
  }
  std::string names;
  std::string lines;
  for (const json& row : rows) {
    Rows columns;
    for (const auto& name : parsed.value("columns", std::vector<std::string>()))
      columns.emplace_back(name, csv_value(row.at(name)));
    if (columns.empty()) add_columns(row, "", columns);
    names.clear();
    std::string line;
    for (const auto& [name, text] : columns) {
      names += str(",", csv_field(name));
      line += str(",", csv_field(text));
    }
    lines += str("\n", line.substr(1));
  }
  return names.substr(1) + lines;
}

std::string format_report(const std::string& report) {
  json j = json::parse(report);
  if (j.contains("rows")) return sweep_table(j);
  if (!j.contains("runs")) return table_of(j);
  std::string out;
  for (const json& run : j["runs"]) out += str(table_of(run), "\n\n");
  j.erase("runs");
  return out + table_of(j);
}

}  // namespace slime::bench
