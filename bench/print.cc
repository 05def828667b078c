// Reports for people, on a terminal.
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/ctrl_present.h"
#include "bench/text.h"

namespace slime::bench {
namespace {

using nlohmann::json;

std::string text(const json& in, const char* key) { return in.at(key).get<std::string>(); }

std::string what(const json& j) {
  const std::string bench = text(j, "bench");
  std::string out = bench + " " + text(j, "provider") + " " + text(j, "mode");
  if (j.contains("operation")) out += " " + text(j, "operation");
  if (j.value("cold", false)) out += " cold";
  if (j.value("memory", "slime") == "foreign") out += " foreign memory";
  out += print(", %llu B", static_cast<unsigned long long>(j.at("size").get<std::uint64_t>()));
  if (j.value("count", 1U) > 1) out += print(" x %u", j.at("count").get<unsigned>());
  if (j.value("batch", 1U) > 1) out += print(" x %u", j.at("batch").get<unsigned>());
  if (j.contains("inflight")) {
    const auto clients = j.at("clients").get<unsigned>();
    out += print(", %u in flight, %u client%s", j.at("inflight").get<unsigned>(), clients,
                 clients == 1 ? "" : "s");
  }
  return out;
}

std::string measured(const json& j) {
  std::string out = print(": p50 %.2f us, p99 %.1f us", number(j, "p50_us"), number(j, "p99_us"));
  if (j.contains("p999_us")) out += print(", p99.9 %.1f us", number(j, "p999_us"));
  out += print(", %.0f ops/s", number(j, "ops_per_s"));
  if (j.contains("gb_per_s")) out += print(", %.3f GB/s", number(j, "gb_per_s"));
  if (j.contains("cpu_s_per_gib")) out += print(", %.2f CPU s/GiB", number(j, "cpu_s_per_gib"));
  return out + (j.at("verified").get<bool>() ? ", data verified" : ", WRONG DATA");
}

std::string limit(const json& j) {
  const json& limit = j.at("limit");
  std::string name = text(limit, "name");
  if (limit.contains("variant")) name += " (" + text(limit, "variant") + ")";
  std::string out = print("\n  limit in the same run: %s: %s %.3f; ratio %.3f", name.c_str(),
                          text(limit, "figure").c_str(), number(limit, "value"), number(j, "ratio_to_limit"));
  if (j.value("rounds", 1U) > 1) {
    out += print(" (%.3f to %.3f in %u rounds)", j.at("ratio_spread").at(0).get<double>(),
                 j.at("ratio_spread").at(1).get<double>(), j.at("rounds").get<unsigned>());
  }
  return out;
}

std::string details(const json& j) {
  std::string out;
  if (j.contains("faults_per_operation")) {
    out += print("\n  page faults for each operation: %.3f", number(j, "faults_per_operation"));
    if (j.contains("server_faults_per_operation"))
      out += print(", of the server %.3f", number(j, "server_faults_per_operation"));
  }
  if (j.value("cold", false)) {
    out += print("; %.0f blocks moved, %.0f different ones", number(j, "blocks_moved"),
                 number(j, "distinct_blocks"));
  }
  if (j.contains("one_client")) {
    out += print(
        "\n  one client alone: %.0f ops/s; all together %.2f of that; the least client has %.2f of its share",
        number(j.at("one_client"), "ops_per_s"), number(j.at("one_client"), "ratio"),
        number(j, "least_share"));
  }
  if (j.contains("per_operation")) {
    const json& each = j.at("per_operation");
    out += print(
        "\n  each operation: %.2f work requests, %.2f doorbells, %.2f completions; %.0f work requests/s",
        number(each, "work_requests"), number(each, "doorbells"), number(each, "completions"),
        number(j, "work_requests_per_s"));
  }
  return out;
}

std::string idle(const json& j) {
  return print(
      "idle agent, %s, %u peers, %u calls each: %.3f %% of a core, %.1f KiB of Pss and %.2f descriptors a "
      "peer; "
      "%.0f ms to connect them all\n  %s: %.0f; ratio %.2f",
      text(j, "provider").c_str(), j.at("peers").get<unsigned>(), j.at("calls").get<unsigned>(),
      number(j, "cpu_percent"), number(j, "pss_kib_per_peer"), number(j, "fds_per_peer"),
      number(j, "connect_ms"), text(j.at("limit"), "name").c_str(), number(j.at("limit"), "value"),
      number(j, "ratio_to_limit"));
}

}  // namespace

std::string format_report(const std::string& report) {
  const json j = json::parse(report);
  if (text(j, "bench") == "idle") return idle(j);
  if (text(j, "bench") == "ctrl") return format_ctrl(j);
  return what(j) + measured(j) + limit(j) + details(j);
}

}  // namespace slime::bench
