#include "bench/ctrl_present.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/str.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr double kWidth = 960;
constexpr double kPanel = 300;
constexpr double kTop = 92;
constexpr double kBottom = 330;
constexpr const char* kGrid = "#dddddd";
constexpr const char* kColours[] = {"#2f6db5", "#c2402f", "#2e8b57", "#8a5fb0"};

std::string errors_text(const json& errors) {
  std::string out;
  for (const auto& [status, count] : errors.items())
    out += str(out.empty() ? "" : ", ", status, ": ", count.get<std::uint64_t>());
  return out.empty() ? "none" : out;
}

std::string latency_text(const char* name, const json& latencies) {
  const json& due = latencies.at("from_due_ms");
  const json& sent = latencies.at("from_sent_ms");
  return print(
      "\n  %s: p50 %.2f ms, p99 %.2f, p99.9 %.2f, max %.1f since due; %.2f, %.2f, %.2f, %.1f since sent",
      name, number(due, "p50"), number(due, "p99"), number(due, "p999"), number(due, "max"),
      number(sent, "p50"), number(sent, "p99"), number(sent, "p999"), number(sent, "max"));
}

// Empty: somebody's nanoctrl, whose store is not known.
std::string store_of(const json& run) {
  const auto store = run.find("store");
  return store == run.end() || store->is_null() ? std::string() : store->get<std::string>();
}

std::string window_text(const char* name, const json& window) {
  return latency_text(name, window.at("heartbeats")) +
         print(
             "\n    server: %.3f cores, %.1f MiB resident; generator: %.3f cores, lag p99 %.2f ms; errors: "
             "%s",
             number(window.at("server"), "cpu_cores"), number(window.at("server"), "resident_mib"),
             number(window.at("generator"), "cpu_cores"), number(window.at("generator").at("lag_ms"), "p99"),
             errors_text(window.at("errors")).c_str());
}

std::string hostile_text(const json& run) {
  const json& attack = run.at("hostile").at("attack");
  const double seconds = number(run.at("hostile"), "seconds");
  return print("ctrl on %s, %.0f agents in %.0f scopes beside a hostile tenant", store_of(run).c_str(),
               number(run, "agents"), number(run, "scopes")) +
         window_text("idle", run.at("idle")) + window_text("hostile", run.at("hostile")) +
         print(
             "\n    the tenant: %.0f lists of %.0f MB, %.0f MB of requests, %.0f connections closed, until "
             "the end of the %.0f s; %.0f records of a megabyte%s",
             number(attack, "scans"), number(attack, "scan_bytes") / 1e6, number(attack, "flood_bytes") / 1e6,
             number(attack, "closed"), seconds, number(attack.at("filled"), "records"),
             attack.at("filled").at("share_is_full").get<bool>() ? ", its share" : "") +
         print("\n  heartbeats at p99: %.2f times as long (at most %.0f, and %.0f ms): %s",
               number(run, "p99_ratio"), number(run, "p99_ratio_most"), number(run, "p99_most_ms"),
               run.at("verified").get<bool>() ? "ok" : "FAILED");
}

std::string run_text(const json& run) {
  if (run.contains("p99_ratio")) return hostile_text(run);
  std::string out = print(
      "ctrl%s, %.0f agents in %.0f scopes, %s connections, heartbeat %.3g s, TTL %.3g s, %.0f s: %.0f "
      "requests/s, "
      "%.0f events/s, %.1f deaths and registrations/s (of %.1f)",
      store_of(run).empty() ? "" : str(" on ", store_of(run)).c_str(), number(run, "agents"),
      number(run, "scopes"), run.at("connections").get<std::string>().c_str(), number(run, "heartbeat_s"),
      number(run, "ttl_s"), number(run, "seconds"), number(run, "requests_per_s"),
      number(run, "events_per_s"), number(run, "rate_reached_per_s"), number(run, "rate_per_s"));
  out += latency_text("heartbeats", run.at("heartbeats"));
  out += latency_text("registrations", run.at("registrations"));
  if (const json& server = run.at("server"); !server.is_null()) {
    out += print("\n  server: %.3f cores, %.0f us of CPU a request, %.1f MiB resident, %.1f at its peak",
                 number(server, "cpu_cores"), number(server, "cpu_us_per_request"),
                 number(server, "resident_mib"), number(server, "resident_peak_mib"));
  }
  if (const auto store = run.find("store_server"); store != run.end() && !store->is_null()) {
    out += print("\n  its %s: %.3f cores, %.0f us of CPU a request, %.1f MiB resident, %.1f at its peak",
                 store_of(run).c_str(), number(*store, "cpu_cores"), number(*store, "cpu_us_per_request"),
                 number(*store, "resident_mib"), number(*store, "resident_peak_mib"));
  }
  const json& generator = run.at("generator");
  out += print("\n  generator: %.3f cores, %.0f us of CPU a request, lag p99 %.2f ms, max %.1f%s",
               number(generator, "cpu_cores"), number(generator, "cpu_us_per_request"),
               number(generator.at("lag_ms"), "p99"), number(generator.at("lag_ms"), "max"),
               generator.at("bottleneck").get<bool>() ? ": IT WAS THE BOTTLENECK" : "");
  const json& deaths = run.at("deaths");
  out += print(
      "\n  deaths: %.0f, %.0f times an agent had to hear of one: %.0f late (slack %.0f s), %.0f never, %.0f "
      "too "
      "early; heard p50 %.2f s, p99 %.2f, max %.2f after the lease",
      number(deaths, "count"), number(deaths, "pairs"), number(deaths, "late"), number(deaths, "slack_s"),
      number(deaths, "never"), number(deaths, "early"), number(deaths.at("delay_s"), "p50"),
      number(deaths.at("delay_s"), "p99"), number(deaths.at("delay_s"), "max"));
  out += print(
      "\n  lost agents: %.0f; errors: %s; broken connections: %.0f (%.0f without answer in time), closed "
      "while "
      "idle: %.0f; heartbeats skipped: %.0f; follow-ups: %.0f; lists: %.0f; unknown: %.0f",
      number(run, "lost"), errors_text(run.at("errors")).c_str(), number(run, "reconnects"),
      number(run, "timeouts"), number(run, "idle_closed"), number(run, "skipped"), number(run, "follow_ups"),
      number(run, "resyncs"), number(run, "unknown"));
  return out + (run.at("verified").get<bool>()
                    ? ""
                    : "\n  FAILED: agents were lost, or deaths heard of late or too early");
}

// One figure of a run, for a plot and a table.
double server_figure(const json& run, const char* key) {
  return run.at("server").is_null() ? 0 : number(run.at("server"), key);
}

struct Extreme {
  double value;
  const char* colour;
};

struct Curve {
  std::string name;
  const char* colour;
  std::vector<std::pair<double, double>> points;  // agents, figure
};

void draw_curve(Svg& out, const Curve& curve, const LogAxis& x, const LogAxis& y) {
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const auto& [agents, value] = curve.points[i];
    out.circle(x.at(agents), y.at(value), 3.5, curve.colour);
    if (i == 0) continue;
    const auto& [before, value_before] = curve.points[i - 1];
    out.line(x.at(before), y.at(value_before), x.at(agents), y.at(value), curve.colour, 2);
  }
}

// Above the largest figure of a column and below the least: those between them would lie on the lines.
void draw_figures(Svg& out, const std::vector<Curve>& curves, const LogAxis& x, const LogAxis& y) {
  std::map<double, std::pair<Extreme, Extreme>> columns;  // by agents: least and most
  for (const Curve& curve : curves) {
    for (const auto& [agents, value] : curve.points) {
      auto& [least, most] = columns.try_emplace(agents, Extreme{1e30, ""}, Extreme{0, ""}).first->second;
      if (value < least.value) least = {value, curve.colour};
      if (value > most.value) most = {value, curve.colour};
    }
  }
  for (const auto& [agents, extremes] : columns) {
    const auto& [least, most] = extremes;
    out.text(x.at(agents), y.at(most.value) - 8, print("%.3g", most.value), Svg::Anchor::kMiddle, 10,
             most.colour);
    out.text(x.at(agents), kBottom + 18, print("%.0f", agents), Svg::Anchor::kMiddle, 11);
    if (least.value < most.value)
      out.text(x.at(agents), y.at(least.value) + 16, print("%.3g", least.value), Svg::Anchor::kMiddle, 10,
               least.colour);
  }
}

// One of the pictures beside each other; both axes logarithmic.
void draw_panel(Svg& out, double left, const std::string& title, std::vector<Curve> curves) {
  double least = 1e30;
  double most = 0;
  double first = 1e30;
  double last = 0;
  for (Curve& curve : curves) {
    // A logarithm has no place for what is not there: a server that did nothing, or is not known.
    std::erase_if(curve.points, [](const auto& point) { return !(point.second > 0); });
    for (const auto& [agents, value] : curve.points) {
      least = std::min(least, value);
      most = std::max(most, value);
      first = std::min(first, agents);
      last = std::max(last, agents);
    }
  }
  out.text(left + 10, kTop - 28, title, Svg::Anchor::kStart, 13);
  if (most <= 0) return;
  const LogAxis x(first, last, left + 56, left + kPanel - 24, LogAxis::Ends::kValues);
  const LogAxis y(least, most, kBottom, kTop);
  for (const double tick : y.ticks()) {
    out.line(left + 48, y.at(tick), left + kPanel - 16, y.at(tick), kGrid);
    out.text(left + 44, y.at(tick) + 4, print("%g", tick), Svg::Anchor::kEnd, 11);
  }
  for (std::size_t i = 0; i < curves.size(); ++i) {
    out.text(left + 56 + 62 * static_cast<double>(i), kTop - 12, curves[i].name, Svg::Anchor::kStart, 11,
             curves[i].colour);
    draw_curve(out, curves[i], x, y);
  }
  draw_figures(out, curves, x, y);
}

// One for each store, in the order in which they were measured.
template <class Figure>
std::vector<Curve> curves_of(const json& runs, Figure figure) {
  std::vector<Curve> out;
  for (const json& run : runs) {
    const std::string name = store_of(run);
    auto curve = std::find_if(out.begin(), out.end(), [&](const Curve& other) { return other.name == name; });
    if (curve == out.end())
      curve = out.insert(out.end(), {name, kColours[out.size() % std::size(kColours)], {}});
    curve->points.emplace_back(number(run, "agents"), figure(run));
  }
  for (Curve& curve : out) std::sort(curve.points.begin(), curve.points.end());
  return out;
}

}  // namespace

std::string format_ctrl(const json& report) {
  std::string out;
  for (const json& run : report.at("runs")) out += (out.empty() ? "" : "\n") + run_text(run);
  return out;
}

std::string tables_of_ctrl(const json& report) {
  const json& machine = report.at("machine");
  std::string out = print("%s, %u cores, Linux %s, %s; load before: %.2f.\n\n",
                          machine.at("cpu").get<std::string>().c_str(), machine.at("cores").get<unsigned>(),
                          machine.at("kernel").get<std::string>().c_str(),
                          machine.at("time").get<std::string>().c_str(), number(machine, "load"));
  out +=
      "| agents, scopes | store | connections | requests/s | heartbeat, ms since due: p50, p99, p99.9, max | "
      "registration, ms since due: p50, p99 | server: "
      "cores, us a request | resident, peak MiB | its Redis: cores, peak MiB | deaths: pairs, late, never | "
      "heard after the lease, s: "
      "p50, max | lost | generator: cores, lag p99 "
      "ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const json& run : report.at("runs")) {
    const json& heartbeat = run.at("heartbeats").at("from_due_ms");
    const json& registration = run.at("registrations").at("from_due_ms");
    const json& deaths = run.at("deaths");
    const json& generator = run.at("generator");
    out += print("| %.0f, %.0f | %s | %s | %.0f | %.2f, %.2f, %.2f, %.1f | %.2f, %.2f | ",
                 number(run, "agents"), number(run, "scopes"), store_of(run).c_str(),
                 run.at("connections").get<std::string>().c_str(), number(run, "requests_per_s"),
                 number(heartbeat, "p50"), number(heartbeat, "p99"), number(heartbeat, "p999"),
                 number(heartbeat, "max"), number(registration, "p50"), number(registration, "p99"));
    out += run.at("server").is_null()
               ? std::string("| | ")
               : print("%.3f, %.0f | %.1f, %.1f | ", server_figure(run, "cpu_cores"),
                       server_figure(run, "cpu_us_per_request"), server_figure(run, "resident_mib"),
                       server_figure(run, "resident_peak_mib"));
    const auto store = run.find("store_server");
    out += store == run.end() || store->is_null()
               ? std::string("| ")
               : print("%.3f, %.1f | ", number(*store, "cpu_cores"), number(*store, "resident_peak_mib"));
    out += print("%.0f, %.0f, %.0f | %.2f, %.2f | %.0f | %.3f, %.2f%s |\n", number(deaths, "pairs"),
                 number(deaths, "late"), number(deaths, "never"), number(deaths.at("delay_s"), "p50"),
                 number(deaths.at("delay_s"), "max"), number(run, "lost"), number(generator, "cpu_cores"),
                 number(generator.at("lag_ms"), "p99"),
                 generator.at("bottleneck").get<bool>() ? " (the bottleneck)" : "");
  }
  return out;
}

Status write_ctrl_plot(const json& report, const std::string& out) {
  const json& runs = report.at("runs");
  if (runs.empty()) return {Code::kNotFound, "no figures"};
  Svg picture(kWidth, kBottom + 40);
  picture.text(16, 26,
               str("nanoctrl over the number of agents, ", runs[0].at("connections").get<std::string>(),
                   " connections"),
               Svg::Anchor::kStart, 16);
  draw_panel(picture, 10, "nanoctrl's CPU, cores",
             curves_of(runs, [](const json& run) { return server_figure(run, "cpu_cores"); }));
  draw_panel(picture, 10 + kPanel + 15, "nanoctrl's memory at its peak, MiB",
             curves_of(runs, [](const json& run) { return server_figure(run, "resident_peak_mib"); }));
  draw_panel(
      picture, 10 + 2 * (kPanel + 15), "Heartbeat, p99, ms since it was due",
      curves_of(runs, [](const json& run) { return number(run.at("heartbeats").at("from_due_ms"), "p99"); }));
  const std::string path = out + "/ctrl.svg";
  SLIME_TRY(picture.write(path));
  std::cout << path << "\n";
  return {};
}

}  // namespace slime::bench
