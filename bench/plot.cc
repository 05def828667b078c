#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/str.h"
#include "bench/ctrl_present.h"
#include "bench/present.h"
#include "bench/read_file.h"
#include "bench/svg.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr double kWidth = 960;
constexpr double kLabels = 330;  // left of the bars
constexpr double kRow = 22;
constexpr double kTop = 62;
constexpr const char* kGrid = "#dddddd";
constexpr const char* kOurs = "#2f6db5";
constexpr const char* kLimit = "#c2402f";
constexpr const char* kColours[] = {"#2f6db5", "#3c9a5f", "#c2402f", "#8a5fb0", "#b8860b", "#4d4d4d"};

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

struct Bar {
  std::string label;
  double value = 0;
  double mark = 0;  // the limit
  std::string note;
};

// Bars along a logarithmic axis, each with a mark.
Svg draw_bars(const std::string& title, const std::string& legend, const std::vector<Bar>& bars) {
  double least = bars[0].value;
  double most = least;
  for (const Bar& bar : bars) {
    least = std::min({least, bar.value, bar.mark});
    most = std::max({most, bar.value, bar.mark});
  }
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  Svg out(kWidth, bottom + 36);
  out.text(16, 24, title, Svg::Anchor::kStart, 16);
  out.text(16, 44, legend, Svg::Anchor::kStart, 12, "#555555");
  const LogAxis axis(least * 0.8, most, kLabels, kWidth - 130);
  for (const double tick : axis.ticks()) {
    out.line(axis.at(tick), kTop - 4, axis.at(tick), bottom, kGrid);
    out.text(axis.at(tick), bottom + 18, short_number(tick), Svg::Anchor::kMiddle);
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    out.text(kLabels - 8, y + 14, bars[i].label, Svg::Anchor::kEnd, 11);
    out.rect(kLabels, y + 4, axis.at(bars[i].value) - kLabels, kRow - 9, kOurs);
    out.line(axis.at(bars[i].mark), y + 1, axis.at(bars[i].mark), y + kRow - 3, kLimit, 3);
    out.text(std::max(axis.at(bars[i].value), axis.at(bars[i].mark)) + 6, y + 14, bars[i].note,
             Svg::Anchor::kStart, 11);
  }
  return out;
}

struct Point {
  double size = 0;
  double ours = 0;
  double limit = 0;
};
using Curves = std::map<std::string, std::vector<Point>>;

void draw_curve(Svg& out, const std::vector<Point>& points, const LogAxis& x, const LogAxis& y,
                const char* colour) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    out.circle(x.at(points[i].size), y.at(points[i].ours), 3.5, colour);
    if (i == 0) continue;
    const Point& before = points[i - 1];
    out.line(x.at(before.size), y.at(before.ours), x.at(points[i].size), y.at(points[i].ours), colour, 2);
    out.line(x.at(before.size), y.at(before.limit), x.at(points[i].size), y.at(points[i].limit), colour, 1.5,
             true);
  }
}

std::string size_name(double bytes) {
  const bool mib = bytes >= 1 << 20;
  return short_number(bytes / (mib ? 1 << 20 : 1 << 10)) + (mib ? " MiB" : " KiB");
}

// GB/s by the size of a block, each curve with its limit beside it.
Svg draw_throughput(const std::string& provider,
                    Curves curves) {  // NOLINT(performance-unnecessary-value-param): sorted here
  Point least{1e30, 1e30, 1e30};
  Point most;
  std::map<double, bool> sizes;
  for (auto& [name, points] : curves) {
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.size < b.size; });
    for (const Point& point : points) {
      least = {std::min(least.size, point.size), std::min({least.ours, point.ours, point.limit}), 0};
      most = {std::max(most.size, point.size), std::max({most.ours, point.ours, point.limit}), 0};
      sizes[point.size] = true;
    }
  }
  constexpr double kBottom = 460;
  Svg out(kWidth, kBottom + 46);
  out.text(16, 24, str("Blocks over ", provider, ": GB/s by the size of a block"), Svg::Anchor::kStart, 16);
  out.text(16, 44, "dashed: the limit in the same run", Svg::Anchor::kStart, 12, "#555555");
  const LogAxis x(least.size, most.size, 80, kWidth - 240, LogAxis::Ends::kValues);
  const LogAxis y(least.ours, most.ours, kBottom, kTop);
  for (const double tick : y.ticks()) {
    out.line(60, y.at(tick), kWidth - 220, y.at(tick), kGrid);
    out.text(52, y.at(tick) + 4, short_number(tick), Svg::Anchor::kEnd);
  }
  for (const auto& [size, unused] : sizes) {
    out.line(x.at(size), kTop, x.at(size), kBottom, kGrid);
    out.text(x.at(size), kBottom + 20, size_name(size), Svg::Anchor::kMiddle);
  }
  std::size_t i = 0;
  for (const auto& [name, points] : curves) {
    const char* colour = kColours[i % std::size(kColours)];
    draw_curve(out, points, x, y, colour);
    out.rect(kWidth - 200, kTop + 24 * static_cast<double>(i), 14, 14, colour);
    out.text(kWidth - 178, kTop + 12 + 24 * static_cast<double>(i), name);
    ++i;
  }
  return out;
}

// What the plots are drawn from.
struct Drawn {
  std::vector<Bar> latencies;
  std::vector<Bar> ratios;
  std::map<std::string, Curves> curves;  // by provider
};

void collect(const json& line, Drawn& out) {
  if (!line.contains("report")) return;
  const json& report = line.at("report");
  const json& limit = report.at("limit");
  const auto name = line.at("name").get<std::string>();
  const auto group = line.at("group").get<std::string>();
  const auto figure = limit.at("figure").get<std::string>();
  const double ours = report.at(figure).get<double>();
  const double value = limit.at("value").get<double>();
  const double ratio = report.at("ratio_to_limit").get<double>();
  // A logarithm has no place for what is not there: idle peers may cost nothing.
  if (!(ours > 0) || !(value > 0)) return;
  if (figure == "p50_us") out.latencies.push_back({name, ours, value, short_number(ours) + " us"});
  const bool less = limit.at("less_is_better").get<bool>();
  out.ratios.push_back({name, ratio, 1, short_number(ratio) + (less ? " (less is better)" : "")});
  if (group == "hot" || group == "cold" || group == "foreign") {
    if (report.at("mode") == "thread") return;
    const auto provider = report.at("provider").get<std::string>();
    out.curves[provider][group + " " + report.at("operation").get<std::string>()].push_back(
        {report.at("size").get<double>(), ours, value});
  }
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return {Code::kUnavailable, str(path, ": ", error.message())};
  return {};
}

}  // namespace

Status write_plots(const std::string& file, const std::string& out) {
  const auto parsed = read_json(file);
  if (!parsed) return parsed.error();
  Drawn drawn;
  // Only a file that somebody changed by hand lacks what is looked up here.
  try {
    if (parsed->value("bench", "") == "ctrl") {
      SLIME_TRY(make_folder(out));
      return write_ctrl_plot(*parsed, out);
    }
    for (const json& line : parsed->at("lines")) collect(line, drawn);
  } catch (const json::exception& missing) {
    return {Code::kInvalidArgument, str(file, ": not such a file: ", missing.what())};
  }
  if (drawn.ratios.empty()) return {Code::kNotFound, str(file, " has no figures")};
  SLIME_TRY(make_folder(out));
  const auto write = [&out](const std::string& name, const Svg& picture) {
    const std::string path = out + "/" + name;
    SLIME_TRY(picture.write(path));
    std::cout << path << "\n";
    return Status();
  };
  if (!drawn.latencies.empty()) {
    SLIME_TRY(write("latency.svg",
                    draw_bars("Latency, p50 in us", "red: the limit in the same run", drawn.latencies)));
  }
  for (auto& [provider, curves] : drawn.curves) {
    SLIME_TRY(write("throughput-" + provider + ".svg", draw_throughput(provider, std::move(curves))));
  }
  return write("ratios.svg", draw_bars("Ratio to the limit in the same run",
                                       "red: the limit itself. More is better, but for latencies and memory",
                                       drawn.ratios));
}

}  // namespace slime::bench
