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
    if (key == "machine" || key == "spread" || key == "ratio_spread" || value.is_null()) continue;
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

}  // namespace

std::string format_report(const std::string& report) {
  json j = json::parse(report);
  if (!j.contains("runs")) return table_of(j);
  std::string out;
  for (const json& run : j["runs"]) out += str(table_of(run), "\n\n");
  j.erase("runs");
  return out + table_of(j);
}

}  // namespace slime::bench
