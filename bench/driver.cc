#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/histogram.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

json machine_facts() {
  utsname name{};
  uname(&name);
  std::string model = "unknown";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return {{"cpu", model},
          {"cores", std::thread::hardware_concurrency()},
          {"kernel", name.release},
          {"arch", name.machine}};
}

struct Totals {
  Histogram latency;
  double ops_per_s = 0;
  double cpu = 0;
  double operations = 0;
  double work_requests = 0;
  double doorbells = 0;
  double completions = 0;
  bool verified = true;
};

Status add_result(const std::string& text, Totals& totals) {
  const json result = json::parse(text, nullptr, false);
  if (result.is_discarded()) return {Code::kInternal, "a client's result does not parse"};
  Histogram latency;
  if (!latency.decode(result.at("latency").get<std::string>()))
    return {Code::kInternal, "a client's histogram does not parse"};
  totals.latency.merge(latency);
  const auto operations = result.at("operations").get<double>();
  totals.operations += operations;
  totals.ops_per_s += operations / result.at("seconds").get<double>();
  totals.cpu += result.at("cpu").get<double>();
  totals.work_requests += result.at("work_requests").get<double>();
  totals.doorbells += result.at("doorbells").get<double>();
  totals.completions += result.at("completions").get<double>();
  totals.verified = totals.verified && result.at("verified").get<bool>();
  return {};
}

Result<double> server_cpu(Child& server) {
  auto text = server.ask("CPU", "CPU", kAnswer);
  if (!text) return std::move(text).error();
  return std::strtod(text->c_str(), nullptr);
}

json make_report(const Options& options, const Totals& totals, const json& limit) {
  const double bytes = static_cast<double>(options.size) * options.count * (options.moves_blocks() ? 1 : 2);
  const double moved = totals.operations * bytes;
  const double gb_per_s = totals.ops_per_s * bytes / 1e9;
  const double p50 = totals.latency.quantile(0.5) / 1000;
  json out = {{"bench", options.bench},
              {"provider", options.provider},
              {"mode", options.mode},
              {"face", options.face},
              {"size", options.size},
              {"inflight", options.inflight},
              {"clients", options.clients},
              {"seconds", options.seconds},
              {"p50_us", p50},
              {"p99_us", totals.latency.quantile(0.99) / 1000},
              {"p999_us", totals.latency.quantile(0.999) / 1000},
              {"ops_per_s", totals.ops_per_s},
              {"gb_per_s", gb_per_s},
              {"cpu_s_per_gib", moved > 0 ? totals.cpu / (moved / static_cast<double>(1 << 30)) : 0},
              {"verified", totals.verified}};
  if (options.moves_blocks()) out["operation"] = options.operation;
  if (options.bench == "blocks") out["count"] = options.count;
  if (totals.work_requests > 0) {
    out["per_operation"] = {{"work_requests", totals.work_requests / totals.operations},
                            {"doorbells", totals.doorbells / totals.operations},
                            {"completions", totals.completions / totals.operations}};
    out["work_requests_per_s"] = totals.work_requests / totals.operations * totals.ops_per_s;
  }
  // The ratio that is better when it is larger: speed to the limit's speed. One call in flight is about
  // latency, and there the limit's p50 comes first.
  if (options.moves_blocks()) {
    const auto value = limit.at("gb_per_s").get<double>();
    out["limit"] = {{"name", "raw TCP stream, GB/s"}, {"value", value}};
    out["ratio_to_limit"] = gb_per_s / value;
  } else if (options.inflight == 1 && options.clients == 1) {
    const auto value = limit.at("p50_us").get<double>();
    const bool half = options.bench == "notify";
    const double limit_value = half ? value / 2 : value;
    out["limit"] = {{"name", half ? "raw TCP echo, half trip, p50 us" : "raw TCP echo, p50 us"},
                    {"value", limit_value}};
    out["ratio_to_limit"] = p50 / limit_value;
  } else {
    const auto value = limit.at("ops_per_s").get<double>();
    out["limit"] = {{"name", "raw TCP echo in windows of inflight, ops/s"}, {"value", value}};
    out["ratio_to_limit"] = totals.ops_per_s / value;
  }
  out["memcpy_gb_per_s"] = limit.at("memcpy_gb_per_s");
  out["machine"] = machine_facts();
  return out;
}

Result<Totals> run_clients(std::vector<Child>& clients, Child& server, const Options& options) {
  const Nanos longest = to_nanos(options.seconds) + kAnswer;
  for (Child& client : clients) {
    auto ready = client.read_line(longest);
    if (!ready) return std::move(ready).error();
    if (*ready != "READY -") return Status(Code::kInternal, str("a client said: ", *ready));
  }
  auto cpu_before = server_cpu(server);
  if (!cpu_before) return std::move(cpu_before).error();
  for (Child& client : clients) SLIME_TRY(client.write_line("GO"));
  Totals totals;
  for (Child& client : clients) {
    auto line = client.read_line(longest);
    if (!line) return std::move(line).error();
    if (line->rfind("RESULT ", 0) != 0) return Status(Code::kInternal, str("a client said: ", *line));
    SLIME_TRY(add_result(line->substr(7), totals));
  }
  auto cpu_after = server_cpu(server);
  if (!cpu_after) return std::move(cpu_after).error();
  totals.cpu += *cpu_after - *cpu_before;
  return totals;
}

}  // namespace

Result<std::string> measure(const Options& options) {
  SLIME_TRY(options.validate());
  install_interrupt_flag();
  std::vector<std::string> arguments = options.to_arguments();
  arguments.insert(arguments.begin(), "bench-server");
  auto server = Child::start(arguments);
  if (!server) return std::move(server).error();
  auto ready = server->read_line(kAnswer);
  if (!ready) return std::move(ready).error();
  if (ready->rfind("READY ", 0) != 0) return Status(Code::kInternal, str("the server said: ", *ready));
  const std::string address = ready->substr(6);

  std::vector<Child> clients;
  arguments[0] = "bench-client";
  arguments.insert(arguments.begin() + 1, "");
  for (std::uint32_t i = 0; i < options.clients; ++i) {
    arguments[1] = str(address, "#", i);
    auto client = Child::start(arguments);
    if (!client) return std::move(client).error();
    clients.push_back(std::move(*client));
  }
  auto totals = run_clients(clients, *server, options);
  if (!totals) return std::move(totals).error();
  auto port = server->ask("RAW", "RAW", kAnswer);
  if (!port) return std::move(port).error();
  auto limit = clients[0].ask(str("RAW ", *port), "LIMIT", std::chrono::minutes(10));
  if (!limit) return std::move(limit).error();
  return make_report(options, *totals, json::parse(*limit)).dump();
}

}  // namespace slime::bench
